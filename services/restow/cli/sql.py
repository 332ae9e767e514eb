"""`restow sql`: questions to a log that no other command answers."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, heading, table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from restow.domain.record_trust import Examined
    from restow.domain.state import ClusterState
    from restow.eventlog.port import Record

BATCH = 50_000
"""Rows that are held beside the database."""

_TEXT, _JSON, _WHOLE, _YES, _TIME = "VARCHAR", "JSON", "BIGINT", "BOOLEAN", "TIMESTAMP"
STATE: dict[str, dict[str, str]] = {
    "nodes": {
        "name": _TEXT, "ready": _YES, "unschedulable": _YES, "unreadable": _TEXT, "labels": _JSON, "pods": _WHOLE, "holds": _WHOLE, "allocatable": _JSON,
        "used": _JSON, "reserved": _JSON, "releasing": _JSON, "free": _JSON, "deviceFree": _JSON, "claimDevices": _JSON,
    },
    "pods": {
        "namespace": _TEXT, "name": _TEXT, "uid": _TEXT, "labels": _JSON, "status": _TEXT, "ready": _YES, "node": _TEXT, "shape": _TEXT, "requests": _JSON, "unreadable": _TEXT,
        "devices": _JSON, "created": _TIME, "reason": _TEXT, "migration": _TEXT, "ours": _YES,
    },
    "migrations": {
        "id": _TEXT, "plan": _TEXT, "step": _TEXT, "namespace": _TEXT, "name": _TEXT, "pod": _TEXT, "source": _TEXT, "target": _TEXT, "since": _TIME,
        "deadline": _TIME, "successor": _TEXT, "reason": _TEXT, "message": _TEXT, "beside": _JSON, "asked": _TIME, "waits": _TEXT,
    },
    "podgroups": {
        "namespace": _TEXT, "name": _TEXT, "phase": _TEXT, "minMember": _WHOLE, "ready": _WHOLE, "waiting": _WHOLE, "running": _WHOLE, "succeeded": _WHOLE,
        "failed": _WHOLE, "queue": _TEXT, "priority": _WHOLE, "reason": _TEXT, "message": _TEXT,
    },
    "queues": {
        "name": _TEXT, "exists": _YES, "state": _TEXT, "parent": _TEXT, "weight": _WHOLE, "invalid": _TEXT, "podGroups": _JSON, "allocated": _JSON,
        "guarantee": _JSON, "deserved": _JSON, "capability": _JSON,
    },
    "reservations": {
        "namespace": _TEXT, "name": _TEXT, "uid": _TEXT, "api": _TEXT, "phase": _TEXT, "reason": _TEXT, "message": _TEXT, "since": _TIME,
        "created": _TIME, "expires": _TIME, "minAvailable": _WHOLE, "owners": _JSON, "allocatable": _JSON, "allocated": _JSON, "beyond": _JSON,
        "foreign": _TEXT, "migration": _TEXT, "deleting": _YES, "slots": _JSON,
    },
    "plans": {
        "plan": _TEXT, "phase": _TEXT, "at": _TIME, "until": _TIME, "trigger": _TEXT, "plugin": _TEXT, "planner": _TEXT, "search": _WHOLE, "reason": _TEXT,
        "cancelled": _TEXT, "moves": _WHOLE, "waves": _WHOLE, "steps": _JSON, "sources": _JSON, "before": _JSON, "after": _JSON, "kept": _JSON,
        "slots": _WHOLE, "profile": _TEXT, "mode": _TEXT, "waitsUntil": _TIME, "answer": _TEXT, "answered": _TIME, "by": _TEXT, "why": _TEXT,
    },
}  # fmt: skip
"""Tables of what is at the end of the log, or at --at: the columns of each, as in `restow get KIND -o json`."""


@click.command(name="sql")
@click.argument("query", required=False)
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--at", default="now", show_default=True, metavar="POINT", help="The log up to here: a sequence, a time, now, or -5m.")
@log_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="Output format.")
def sql(query: str | None, file: str | None, at: str, where: Where, output: str) -> None:
    """Ask a log in SQL.

    QUERY is for DuckDB; `-` reads it from standard input, and without one the tables and their columns are listed. FILE is an export, or an archive in
    a folder or a bucket (s3://...); without it, the running log. Tables: `commits`, `events`, one for each event type, called as it is in the log
    (`migration.evicted`), and what there is at the end: nodes, pods, podgroups, queues, reservations, plans, migrations. Times are in UTC. A query reads
    these tables and nothing else: neither files nor other hosts. Examples are in docs/sql.md.

    \b
    Examples:
      restow sql                                                     the tables
      restow sql "select event, count(*) from events group by all"   the running log
      restow sql "select * from migration.evicted" incident.jsonl.zst -o csv
    """
    if query == "-":
        query = sys.stdin.read()
    # `os.path`: of a text that no path can be (longer than a name may be, say) Path.exists() raises.
    if query and not file and (query.startswith("s3://") or os.path.exists(query)):
        raise click.UsageError(f"{query} is a log, and no query; allowed: the query first (restow sql 'select ...' {query})")
    where.log = file or where.log
    database = _database()
    if query is None:
        _create(database)
        return _list(database, output)
    _load(database, where, at)
    _show(*_answer(database, query), output)
    return None


def _database() -> DuckDBPyConnection:
    """An empty one in memory, that loads nothing from anywhere. Raises Failure."""
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError:
        raise Failure("SQL needs the packages duckdb and pyarrow: pip install 'restow[sql]'. Restow's image has none of them: take an export from there (restow log export), and ask it elsewhere", UNUSABLE) from None
    database = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    database.execute("SET TimeZone = 'UTC'")
    return database


def _create(database: DuckDBPyConnection) -> None:
    from restow.replay.tables import COMMITS, EVENT_COLUMNS, views

    for name, columns in (("commits", COMMITS), ("events", EVENT_COLUMNS), *((kind, tuple(columns.items())) for kind, columns in STATE.items())):
        listed = ", ".join(f'"{column}" {kind}' for column, kind in columns)
        database.execute(f"CREATE TABLE {name} ({listed})")
    for name, select in views().items():
        family, _, event = name.partition(".")
        database.execute(f'CREATE SCHEMA IF NOT EXISTS "{family}"')
        database.execute(f'CREATE VIEW "{family}"."{event}" AS {select}')


def _load(database: DuckDBPyConnection, where: Where, at: str) -> None:
    """The log up to that point. Raises what `state_at` raises."""
    from restow.replay.state_at import state_at
    from restow.replay.tables import COMMITS, EVENT_COLUMNS, rows_of

    _create(database)
    commits, events = _Rows(database, "commits", COMMITS), _Rows(database, "events", EVENT_COLUMNS)

    def each(_state: ClusterState, record: Record, found: Examined) -> None:
        commit, told = rows_of(record, found)
        commits.add([commit])
        events.add(told)

    with where.source() as source, Progress("reading the log") as progress:
        point = where.point(at, source)
        state = state_at(source, seq=point.seq, time=point.time, progress=progress, watch=each)
    commits.write()
    events.write()
    _load_state(database, state)
    # Whoever wrote the query may have it from anywhere.
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def _load_state(database: DuckDBPyConnection, state: ClusterState) -> None:
    from restow.cli.views import VIEWS

    for kind, columns in STATE.items():
        rows = _Rows(database, kind, tuple(columns.items()))
        rows.add(tuple(_cell(value.get(name), of) for name, of in columns.items()) for value in VIEWS[kind](state, None))
        rows.write()


def _cell(value: Any, kind: str) -> Any:
    """What stands in a column: JSON as text, times in µs since the epoch, and nothing instead of no time."""
    import msgspec

    if value is None or (kind == _TIME and not value):
        return None
    if kind == _JSON:
        return msgspec.json.encode(value).decode()
    if kind == _TIME:
        return int(datetime.datetime.fromisoformat(value).timestamp() * 1_000_000)
    return str(value) if kind == _TEXT else value


class _Rows:
    """Rows on their way into a table, BATCH at a time."""

    def __init__(self, database: DuckDBPyConnection, name: str, columns: Sequence[tuple[str, str]]) -> None:
        self._database, self._name, self._columns = database, name, columns
        self._rows: list[tuple] = []

    def add(self, rows: Iterable[tuple]) -> None:
        self._rows.extend(rows)
        if len(self._rows) >= BATCH:
            self.write()

    def write(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        types = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "BOOLEAN": pa.bool_(), "TIMESTAMP": pa.timestamp("us")}
        columns = zip(zip(*self._rows, strict=True), self._columns, strict=True)
        arrays = [pa.array(values, type=types.get(kind, pa.string())) for values, (_, kind) in columns]
        self._database.register("arriving", pa.Table.from_arrays(arrays, names=[name for name, _ in self._columns]))
        self._database.execute(f"INSERT INTO {self._name} SELECT * FROM arriving")
        self._database.unregister("arriving")
        self._rows.clear()


def _answer(database: DuckDBPyConnection, query: str) -> tuple[list[str], list[tuple]]:
    """Names of columns, and rows, of the last statement; JSON is read. Raises Failure with what DuckDB says of the query."""
    import duckdb

    try:
        found = database.execute(query)
        if found is None or found.description is None:
            raise Failure("the query is empty", UNUSABLE)
        rows, types = found.fetchall(), [str(column[1]) for column in found.description]
    except duckdb.Error as error:
        raise Failure(f"{error}\n`restow sql` without a query lists the tables", UNUSABLE) from None
    if "JSON" in types:
        rows = [tuple(_read(cell) if kind == "JSON" else cell for cell, kind in zip(row, types, strict=True)) for row in rows]
    return [column[0] for column in found.description], rows


def _read(cell: str | None) -> Any:
    return None if cell is None else json.loads(cell)


def _show(columns: list[str], rows: list[tuple], output: str) -> None:
    if output == "json":
        names = [name if name not in columns[:at] else f"{name}_{at + 1}" for at, name in enumerate(columns)]
        return emit({"items": [dict(zip(names, map(_json, row), strict=True)) for row in rows]})
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(cell) for cell in row] for row in rows)
        return None
    right = [name for at, name in enumerate(columns) if rows and all(isinstance(row[at], _NUMBERS) and not isinstance(row[at], bool) for row in rows)]
    table(columns, [[_text(cell) for cell in row] for row in rows], right=right)
    return None


_NUMBERS = (int, float, decimal.Decimal, type(None))


def _json(value: Any) -> Any:
    """As JSON can say it: what it has no form for, as text."""
    match value:
        case None | bool() | str():
            return value
        case int() if -(1 << 63) <= value < 1 << 63:
            return value
        case float() if math.isfinite(value):
            return value
        case dict():
            return {str(key): _json(one) for key, one in value.items()}
        case list() | tuple():
            return [_json(one) for one in value]
    return _text(value)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6g}"
        case datetime.datetime():
            return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        case dict() | list() | tuple():
            return json.dumps(_json(value), ensure_ascii=False)
        case bytes():
            return value.hex()
    return str(value)


def _list(database: DuckDBPyConnection, output: str) -> None:
    query = """
        SELECT CASE schema WHEN 'main' THEN name ELSE schema || '.' || name END AS name, column_names AS columns
        FROM (SHOW ALL TABLES) ORDER BY schema <> 'main', 1"""
    found = database.execute(query).fetchall()
    if output == "json":
        return emit({"items": [{"table": name, "columns": columns} for name, columns in found]})
    if output == "csv":
        return _show(["table", "column"], [(name, column) for name, columns in found for column in columns], "csv")
    click.echo(heading("restow sql QUERY reads these; each event type is a table, too"))
    table(("TABLE", "COLUMNS"), [(name, ", ".join(columns)) for name, columns in found], wrap=("COLUMNS",))
    return None
