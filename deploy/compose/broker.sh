# sh broker.sh CONFIG: starts nats-server with this file of /etc/nats, and a limit of what it stores.
#
# Its own limit is three quarters of what is free when it starts, so behind a log with half of the disk it would store nothing more. As for the brokers of
# `restow up`, it is what there is already, and three quarters of what is free.
set -eu

has=$(du -sk /data | cut -f1)
free=$(df -Pk /data | awk 'NR == 2 {print $4}')
mkdir -p /tmp/nats
cp /etc/nats/*.conf /tmp/nats/
sed "s|store_dir: .*|&\n  max_file_store: $((has * 1024 + free * 768))|" /etc/nats/nats.conf >/tmp/nats/nats.conf
exec nats-server --config "/tmp/nats/$1"
