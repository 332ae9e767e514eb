#!/bin/sh
# Makes the passwords of the broker's users, and the tokens of the descheduler's API, in a volume: once, at the first start. Each service reads
# its own file of variables, the broker all of them. `docker compose down --volumes` forgets them, with the log.
set -eu
folder=$1
permissions=$2

# One that nats-server reads as a text: it begins with a letter.
password() { printf 'p%s' "$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')"; }

# Renamed when it is whole: a start that is broken off leaves none that is half written.
keep() {
    cat >"$folder/.new"
    mv "$folder/.new" "$folder/$1"
}

for token in api-token answers-token; do
    [ -s "$folder/$token" ] || password | keep "$token"
done
# `route`: what three brokers know each other by.
for user in route $(sed -n 's/^ *user: //p' "$permissions"); do
    [ -s "$folder/$user.env" ] || printf 'export RESTOW_NATS_USER=%s RESTOW_NATS_PASSWORD=%s\n' "$user" "$(password)" | keep "$user.env"
done
for user in route $(sed -n 's/^ *user: //p' "$permissions"); do
    variable=RESTOW_NATS_$(echo "$user" | tr '[:lower:]' '[:upper:]')_PASSWORD
    sed "s/.*RESTOW_NATS_PASSWORD=/export $variable=/" "$folder/$user.env"
done | keep broker.env
