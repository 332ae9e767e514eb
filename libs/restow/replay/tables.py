"""A log as tables for SQL: what is in each row, and what each event type's own view looks like. Pure; who runs queries is `cli/sql.py`.

`commits` has a row for each record of the log, `events` one for each event. Each event type is a view over `events` besides, called as its type in
the log is (`migration.evicted`), with its fields as columns: texts, numbers and truth values as such, everything else as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.inspect import (
    BoolType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    Type,
    UnionType,
    type_info,
)

from restow.contracts.codec import Decision, name_of
from restow.contracts.events import EVENTS, Unknown
from restow.domain.record_trust import Examined
from restow.eventlog.port import Record
from restow.replay.state_at import time_of

KEYS = ("pod", "node", "namespace", "name", "migration", "plan", "reservation")
"""Fields that many events have: columns of `events`, NULL where an event has none."""

COMMITS = (
    ("seq", "BIGINT"), ("time", "TIMESTAMP"), ("family", "VARCHAR"), ("version", "VARCHAR"), ("read", "BIGINT"), ("decisions", "INTEGER"),
    ("events", "INTEGER"), ("bytes", "BIGINT"), ("void", "VARCHAR"),
)  # fmt: skip
"""`time` in UTC; `version` of the decider; `read` is the last sequence that it had folded; `bytes` of the body; `void` says why it does not count, NULL where it does."""

EVENT_COLUMNS = (
    ("seq", "BIGINT"), ("time", "TIMESTAMP"), ("family", "VARCHAR"), ("decision", "INTEGER"), ("command", "VARCHAR"), ("event", "VARCHAR"),
    *((key, "VARCHAR") for key in KEYS), ("data", "JSON"),
)  # fmt: skip
"""`decision` counts in its commit from 0; `command` and `event` are types; `data` is the event, in its form of today."""

Row = tuple[Any, ...]
_json = msgspec.json.Encoder().encode


def rows_of(record: Record, found: Examined) -> tuple[Row, list[Row]]:
    """Its row of `commits`, and its rows of `events`. `found`: what the fold took it for. Times in µs since the epoch."""
    envelope, time = record.envelope, time_of(record) * 1000
    events = list(_events(record, time, found.decisions))
    commit = (
        record.seq, time, record.family, envelope.logic, envelope.read, len(found.decisions), len(events), len(record.body), found.why if found.kind else None,
    )  # fmt: skip
    return commit, events


def _events(record: Record, time: int, decisions: tuple[Decision, ...]) -> Iterator[Row]:
    for number, decision in enumerate(decisions):
        command = name_of(decision.command)
        for event in decision.events:
            keys = [None] * len(KEYS) if type(event) is Unknown else [_text(getattr(event, key, None)) for key in KEYS]
            yield (record.seq, time, record.family, number, command, name_of(event), *keys, _data(event))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _data(event: Any) -> str:
    return (event.raw if type(event) is Unknown else _json(event)).decode(errors="replace")


def views() -> dict[str, str]:
    """Event type → the SELECT of its view over `events`."""
    found = ((str(kind.__struct_config__.tag), type_info(kind)) for kind in EVENTS)
    return {name: _view(name, info.fields) for name, info in found}  # type: ignore[attr-defined]


def _view(name: str, fields: tuple[Field, ...]) -> str:
    columns = ["seq", "time", *(f"{_value(field)} AS {column(field.encode_name)}" for field in fields)]
    return f"SELECT {', '.join(columns)} FROM main.events WHERE event = '{name}'"


def column(field: str) -> str:
    """What a field of an event is called in its view, quoted: `seq` and `time` are those of the commit."""
    return f'"{field}_"' if field in ("seq", "time") else f'"{field}"'


def _value(field: Field) -> str:
    kind = sql_type(field.type)
    if kind == "JSON":
        return f"data->'$.{field.encode_name}'"
    value = f"CAST(data->>'$.{field.encode_name}' AS {kind})"
    # Fields that are as by default are not written.
    default = field.default
    return value if field.required or not isinstance(default, str | int | float) else f"coalesce({value}, {_literal(default)})"


def _literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def sql_type(of: Type) -> str:
    """The column's type of a field; JSON for whatever is no single value."""
    match of:
        case StrType() | LiteralType():
            return "VARCHAR"
        case IntType():
            return "BIGINT"
        case BoolType():
            return "BOOLEAN"
        case FloatType():
            return "DOUBLE"
        case UnionType(types=types):
            kinds = {sql_type(one) for one in types if not isinstance(one, NoneType)}
            return kinds.pop() if len(kinds) == 1 else "JSON"
    return "JSON"
