"""JetStream adapter of the event log. The only package that knows NATS."""

from restow.eventlog.jetstream.log import JetStreamLog, connect

__all__ = ["JetStreamLog", "connect"]
