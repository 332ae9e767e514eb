"""JetStream adapter of the event log. The only package that knows NATS."""

from restow.eventlog.jetstream.log import JetStreamLog, connect
from restow.eventlog.jetstream.objects import JetStreamSnapshots, open_snapshots

__all__ = ["JetStreamLog", "JetStreamSnapshots", "connect", "open_snapshots"]
