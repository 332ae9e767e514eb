"""A log asked in SQL."""

import csv
import io
import json
import re
from pathlib import Path

import duckdb
import pytest
from cli.conftest import export
from replay.handmade import migration, placements, time_at

from restow.cli.sql import STATE
from restow.cli.views import VIEWS
from restow.contracts import codec
from restow.contracts import events as e
from restow.contracts.envelope import Envelope
from restow.eventlog.port import Record
from restow.replay.state_at import state_at
from restow.replay.tables import views

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/sql.md").read_text(), re.DOTALL)
GOLDEN = sorted((ROOT / "proto/golden").glob("*.json"))


@pytest.fixture
def ask(restow, moved):
    """The rows that a query finds."""

    def asked(query, *more, log=moved):
        result = restow("sql", query, log, "-o", "json", *more)
        assert result.exit_code == 0, result.output
        return json.loads(result.output)["items"]

    return asked


def of_every_kind():
    """A state with something of each kind."""
    log = migration()
    group = e.PodGroupObserved("shop", "gang", "uid-gang", time_at(0), "research", 2)
    log.facts(group, kind="podgroups")
    return state_at(log.source())


@pytest.fixture
def refused(restow, moved):
    """What is said of a query that has no answer."""

    def called(query, code=2):
        result = restow("sql", query, moved)
        assert result.exit_code == code
        return result.said

    return called


def test_every_event_of_the_log_is_a_row_and_so_is_every_commit(ask):
    log = migration()
    events = [event for record in log.records for decision in codec.decode(record.body) for event in decision.events]
    assert ask("select count(*) n, sum(events) e from commits") == [{"n": len(log.records), "e": len(events)}]
    assert [one["event"] for one in ask("select event from events order by seq, decision")] == [codec.name_of(event) for event in events]


def test_an_event_type_is_a_table_with_its_fields_as_columns(ask):
    (landed,) = ask("select * from migration.landed")
    assert (landed["migration"], landed["node"]) == ("p1-1", "b")
    assert ask("select plan, unnest(cast(moves as json[]))->>'name' as pod from migration.planned") == [{"plan": "p1", "pod": "web-old"}]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_table_of_an_event_type_says_what_the_event_says(path):
    raw = path.read_bytes()
    event, name = codec.decode_event(raw), path.stem
    database = duckdb.connect()
    database.execute("create table events (seq bigint, time timestamp, event varchar, data json)")
    database.execute("insert into events values (7, '2026-01-01', ?, ?)", [name, raw.decode()])
    found = database.execute(f"select * from ({views()[name]})")
    columns, (row,) = [column[0] for column in found.description], found.fetchall()
    assert columns[:2] == ["seq", "time"]
    fields = event.__struct_fields__
    assert [column.removesuffix("_") for column in columns[2:]] == [name.removesuffix("_") for name in event.__struct_encode_fields__]
    for field, cell in zip(fields, row[2:], strict=True):
        said = getattr(event, field)
        assert cell == said or not isinstance(said, str | int | bool)


def test_a_field_that_is_not_written_is_as_by_default_and_not_null(ask):
    assert ask("select count(*) n from cluster.pod_observed where deleting is null or phase is null") == [{"n": 0}]
    assert ask("select count(*) n from cluster.pod_observed where not deleting")[0]["n"] > 0


def test_what_there_is_is_that_of_the_end_or_of_the_point_that_is_named(ask, as_json, moved):
    assert ask("select name, node, status from pods") == [{"name": "web-new", "node": "b", "status": "Running"}]
    then = as_json("state", "pods", "--at", "10", "--log", moved)["items"]
    assert ask("select name, status from pods order by namespace, name", "--at", "10") == [{"name": one["name"], "status": one["status"]} for one in then]
    assert ask("select max(seq) n from commits", "--at", "10") == [{"n": 10}]


@pytest.mark.parametrize("kind", STATE)
def test_the_columns_of_what_there_is_are_what_get_shows(kind):
    """What `restow get` gains is a column here, too."""
    rows = VIEWS[kind](of_every_kind(), None)
    assert rows
    for row in rows:
        assert list(STATE[kind]) == list(row)


def test_a_record_that_does_not_count_is_a_commit_that_says_why_and_has_no_events(ask, tmp_path):
    log = placements()
    log.records.append(Record(log.seq + 1, "session", Envelope("", "", "", 0, "", given={"Nats-Sequence": "1"}), b"{}", 0))
    file = export(tmp_path / "void.jsonl", log)
    (found,) = ask("select seq, events, void from commits where void is not null", log=file)
    assert (found["seq"], found["events"]) == (log.seq, 0)
    assert found["void"]
    assert ask(f"select count(*) n from events where seq = {log.seq}", log=file) == [{"n": 0}]


@pytest.mark.parametrize("query", EXAMPLES, ids=[query.split("\n")[0][:40] for query in EXAMPLES])
@pytest.mark.parametrize("log", [migration, lambda: migration(lands=False), placements], ids=["moved", "moving", "placed"])
def test_every_example_of_the_docs_has_an_answer(restow, tmp_path, query, log):
    result = restow("sql", query, export(tmp_path / "log.jsonl", log()))
    assert result.exit_code == 0, result.output


def test_there_are_ten_examples():
    assert len(EXAMPLES) == 10


def test_a_log_where_the_query_belongs_is_no_query(restow, moved):
    """Every other command takes the file first."""
    for given in (str(moved), "s3://bucket/prefix"):
        result = restow("sql", given)
        assert result.exit_code == 2
        assert f"{given} is a log, and no query" in result.said


def test_the_examples_find_the_move(ask):
    said = [ask(query) for query in EXAMPLES]
    assert [one for rows in said for one in rows if one.get("plan") == "p1" and one.get("landed") == 1]
    assert [one for rows in said for one in rows if one.get("moves") == 1 and one.get("longest_ms")]


@pytest.mark.parametrize("query", EXAMPLES)
def test_the_examples_are_asked_of_a_log_that_is_no_argument(restow, moved, query):
    """As of the running log. The query was looked for among the files, and half of the ten ended with "File name too long"."""
    result = restow("sql", query, "--log", moved)
    assert result.exit_code == 0, result.output


def test_without_a_query_the_tables_are_listed_and_no_log_is_needed(restow):
    result = restow("sql")
    assert result.exit_code == 0
    assert "migration.evicted" in result.output
    assert "commits" in result.output
    listed = json.loads(restow("sql", "-o", "json").output)["items"]
    assert {"table": "migration.evicted", "columns": ["seq", "time", "migration", "deadline"]} in listed


def test_a_query_comes_from_standard_input_too(process, moved):
    import subprocess
    import sys

    command = [Path(sys.executable).with_name("restow"), "sql", "-", moved, "-o", "csv"]
    found = subprocess.run(command, input="select 1 as a, 'x,y' as b", capture_output=True, text=True, timeout=180, check=True)
    assert list(csv.reader(io.StringIO(found.stdout))) == [["a", "b"], ["1", "x,y"]]


def test_values_that_json_has_no_form_for_are_texts(ask):
    (row,) = ask("select 2::hugeint ** 70 as big, 'nan'::double as nan, 1.5::decimal(4,2) as money, date '2026-01-01' as day, '\\xC3\\xA9'::blob as raw, 1 as a, 2 as a")
    assert (row["nan"], row["money"], row["day"], row["raw"], row["a"], row["a_7"]) == ("nan", "1.50", "2026-01-01", "c3a9", 1, 2)


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/hostname')",
        "select * from '/etc/hostname'",
        "copy events to 'x.csv'",
        "attach 'x.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "select * from read_text('https://example.org/')",
    ],
)
def test_a_query_reaches_neither_files_nor_other_hosts(refused, tmp_path, query):
    refused(query)
    assert not (tmp_path / "x.csv").exists()
    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize("query", ["", "  ;", "/* nothing */"])
def test_an_empty_query_is_refused(refused, query):
    assert "the query is empty" in refused(query)


def test_what_is_wrong_with_a_query_is_said_with_the_way_on(refused):
    assert 'Did you mean "evicted"' in refused("select * from migration.evictd")
    assert "`restow sql` without a query lists the tables" in refused("selec")


def test_names_that_steer_a_terminal_do_not(restow, moved):
    assert "\x1b" not in restow("sql", "select chr(27) || '[31m' as \"a\x1b\"", moved).output
