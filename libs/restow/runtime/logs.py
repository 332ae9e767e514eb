"""Structured logs: one JSON line an event, on standard error. Libraries that use `logging` come out the same way."""

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog

from restow.contracts.redact import HIDDEN, names_a_secret, redacted

Logger = Any
"""A structlog bound logger."""


class Unfailing:
    """A stream whose lines are lost where it takes none (its disk is full, its reader has gone): what a service does matters more than what it says of it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure(level: str, form: str, **context: str) -> Logger:
    """Set logging up for this process; `context` (service, identity) is on every line."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_secrets,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    stream: Any = Unfailing(sys.stderr)
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _adder(context)],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _without_secrets, renderer],
        )
    )
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    return structlog.get_logger().bind(**context)


def _without_secrets(_logger: Any, _name: str, event: Any) -> Any:
    """The last door: no line leaves the process with a secret in it, whatever library wrote it."""
    return _hidden(dict(event))


def _hidden(value: Any) -> Any:
    match value:
        case str():
            return redacted(value)
        case dict():
            return {key: HIDDEN if one and isinstance(one, str | bytes) and names_a_secret(str(key)) else _hidden(one) for key, one in value.items()}
        case list() | tuple():
            return [_hidden(one) for one in value]
        case BaseException():
            return redacted(str(value))
    return value


def _adder(context: dict[str, str]) -> Any:
    def add(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
        return context | event

    return add


def get(**context: Any) -> Logger:
    """A logger with more context. Usable before `configure`, for tests."""
    return structlog.get_logger().bind(**context)


def silent() -> Logger:
    """One that says nothing, for a command whose answer is its own."""
    return structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
