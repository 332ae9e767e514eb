"""Archive or log as Parquet, one row an event, for SQL. Needs the optional package pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from restow.eventlog.disk import sync_folder
from restow.eventlog.port import LogError, Record

ROW_GROUP = 100_000
"""Rows of one row group; as many are held in memory."""


class ParquetError(LogError):
    """pyarrow is missing. Says what to do."""


class _Decision(msgspec.Struct):
    command: msgspec.Raw
    events: list[msgspec.Raw]


class _Commit(msgspec.Struct):
    decisions: list[_Decision]


class _Tagged(msgspec.Struct):
    type: str = ""


_commit = msgspec.json.Decoder(_Commit).decode
_tag = msgspec.json.Decoder(_Tagged).decode

_COLUMNS = (
    ("seq", "int64"),
    ("family", "string"),
    ("time", "int64"),
    ("ce_id", "string"),
    ("read", "int64"),
    ("logic", "string"),
    ("decision", "int32"),
    ("command_type", "string"),
    ("event_type", "string"),
    ("event", "string"),
)


def write_parquet(records: Iterable[Record], path: str | Path) -> int:
    """Write one row an event and return how many. A decision without events has one row without event, a record that is no
    commit (void: RULES G-16) one row without command either.

    Columns: seq, family, time (ns since the epoch, UTC), ce_id, read, logic, decision (index in its commit),
    command_type, event_type, event (JSON). The file appears only when it is whole. Raises ParquetError, OSError.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ParquetError("Parquet needs the package pyarrow: pip install 'restow[parquet]'. Restow's image does not have it: take an export as .jsonl.zst from there") from None
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    types = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string()}
    schema = pa.schema(
        [(name, pa.timestamp("ns", tz="UTC") if name == "time" else types[kind]) for name, kind in _COLUMNS]
    )
    rows: list[tuple[Any, ...]] = []
    count = 0
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for record in records:
                rows.extend(_rows(record))
                if len(rows) >= ROW_GROUP:
                    count += _flush(pa, writer, schema, rows)
            count += _flush(pa, writer, schema, rows)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    return count


def _rows(record: Record) -> Iterable[tuple[Any, ...]]:
    envelope = record.envelope
    rows: list[tuple[Any, ...]] = []
    start = (record.seq, record.family, record.time, envelope.id, envelope.read, envelope.logic)
    try:
        for index, decision in enumerate(_commit(record.body).decisions):
            command = _tag(decision.command).type
            if not decision.events:
                rows.append((*start, index, command, None, None))
            for event in decision.events:
                rows.append((*start, index, command, _tag(event).type, bytes(event).decode()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [(*start, 0, None, None, None)]
    return rows


def _flush(pa: Any, writer: Any, schema: Any, rows: list[tuple[Any, ...]]) -> int:
    if not rows:
        return 0
    columns = [pa.array(column, type=field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    count = len(rows)
    rows.clear()
    return count
