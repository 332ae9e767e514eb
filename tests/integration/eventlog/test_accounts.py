"""From a broker that knows no users to one with accounts (docs/install.md, Upgrading): the log comes along whole, by the commands that are written there."""

import asyncio
import hashlib
import json
import re
import shutil

import pytest
from click.testing import CliRunner

from restow.cli.main import cli
from restow.eventlog.jetstream import connect
from restow.eventlog.jetstream.append import Appender
from restow.eventlog.port import Unknown
from restow.eventlog.server import temporary_server
from restow.eventlog.testing import envelope
from restow.replay.source import open_path

from .helpers import BODY
from .test_permissions import CLUSTER, DEPLOY, PASSWORDS


@pytest.fixture
def server():
    one = temporary_server(environment=PASSWORDS)
    shutil.copy(DEPLOY / "permissions.conf", one.folder)
    try:
        yield one.start()
    finally:
        one.stop()
        shutil.rmtree(one.folder)


def restow(*argv):
    done = CliRunner().invoke(cli, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def records_of(url, user=None, first=1):
    async def read():
        log = await connect(url, CLUSTER, user=user, password=user and f"p{user}", create=False)
        found = []
        try:
            tail = await log.tail()
            async for batch in log.read(first):
                found += batch
                if found[-1].seq >= tail:
                    return log.log_id, found
        finally:
            await log.close()

    return asyncio.run(read())


def append_as(url, user, family, expected, count=1):
    async def write():
        log = await connect(url, CLUSTER, user=user, password=user and f"p{user}")
        try:
            for number in range(count):
                expected_now = await log.last_of(family) if expected is None else expected
                await log.append(family, BODY, envelope(f"{family}-{number}", logic=f"{family}@1"), expected_last=expected_now)
            return await log.tail()
        finally:
            await log.close()

    return asyncio.run(write())


@pytest.mark.parametrize("truncated", [0, 5])
def test_the_log_of_a_broker_without_users_moves_into_the_accounts_by_export_and_import(server, tmp_path, truncated):
    for family in ("cluster", "session", "gc"):
        append_as(server.url, None, family, None, count=4)
    if truncated:

        async def truncate():
            log = await connect(server.url, CLUSTER)
            await log.truncate(truncated)
            await log.close()

        asyncio.run(truncate())
    before = records_of(server.url, first=truncated + 1)
    file = tmp_path / "log.jsonl.zst"
    restow("log", "export", str(file), "--server", server.url, "--cluster", CLUSTER)
    server.stop()
    server._extra = "include ./permissions.conf"
    server.start()
    restow("log", "import", str(file), "--server", server.url.replace("nats://", "nats://operator:poperator@"))
    after = records_of(server.url, "cli", first=truncated + 1)
    assert after[0] == before[0]
    assert [(r.seq, r.family, r.envelope, r.body) for r in after[1]] == [(r.seq, r.family, r.envelope, r.body) for r in before[1]]
    last = max(r.seq for r in after[1] if r.family == "session")
    assert append_as(server.url, "scheduler_session", "session", last) == 13


def with_accounts(server):
    server.stop()
    server._extra = "include ./permissions.conf"
    server.start()


def exported(server, tmp_path, count=30):
    for family in ("cluster", "session"):
        append_as(server.url, None, family, None, count=count)
    file = tmp_path / "log.jsonl"
    restow("log", "export", str(file), "--server", server.url, "--cluster", CLUSTER)
    with_accounts(server)
    return file, server.url.replace("nats://", "nats://operator:poperator@")


def test_an_import_that_was_interrupted_is_finished_by_the_next_one(server, tmp_path, monkeypatch):
    file, url = exported(server, tmp_path)
    once = Appender._store

    async def interrupted(self, record):
        if record.seq > 40:
            raise Unknown(record.family, record.envelope.id, "the wire was cut")
        await once(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "_store", interrupted)
        assert "the wire was cut" in CliRunner().invoke(cli, ["log", "import", str(file), "--server", url]).output
    half = CliRunner().invoke(cli, ["log", "stats", "--server", url, "--cluster", CLUSTER])
    assert half.exit_code == 3
    assert re.search(r"is not whole: it ends at (40|[123]?\d), and is to end at 60\.", " ".join(half.output.split()))
    restow("log", "import", str(file), "--server", url)
    assert [record.seq for record in records_of(server.url, "cli")[1]] == list(range(1, 61))
    again = CliRunner().invoke(cli, ["log", "import", str(file), "--server", url])
    assert again.exit_code != 0
    assert "has this log already, with sequences 1 to 60" in " ".join(again.output.split())


def test_an_import_into_a_log_to_which_somebody_has_appended_is_refused(server, tmp_path):
    file, url = exported(server, tmp_path)
    log_id = open_path(file).log_id

    async def other():
        log = await connect(server.url, CLUSTER, user="operator", password="poperator", log_id=log_id)
        await log.append("session", BODY, envelope("another", logic="session@1"), expected_last=0)
        await log.close()

    asyncio.run(other())
    refused = CliRunner().invoke(cli, ["log", "import", str(file), "--server", url])
    assert refused.exit_code != 0
    assert "whose record 1 is not that of" in " ".join(refused.output.split())
    assert len(records_of(server.url, "cli")[1]) == 1


def test_a_file_that_makes_no_sense_in_its_middle_leaves_nothing_behind(server, tmp_path):
    """Its seal fits: somebody has written it so."""
    file, url = exported(server, tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[40] = lines[39]
    body = b"".join(lines[:-1])
    file.write_bytes(body + json.dumps({"restow": "seal", "sha256": hashlib.sha256(body).hexdigest()}, separators=(",", ":")).encode() + b"\n")
    refused = CliRunner().invoke(cli, ["log", "import", str(file), "--server", url])
    assert refused.exit_code != 0
    assert "line 41" in refused.output

    async def tail():
        log = await connect(server.url, CLUSTER, user="operator", password="poperator")
        try:
            return await log.tail()
        finally:
            await log.close()

    assert asyncio.run(tail()) == 0


# -- the command line beside a service -----------------------------------------------------------------------------------------------------


def as_service(monkeypatch, server, user="descheduler"):
    """The environment of a service's container."""
    for name, value in {"URL": server.url, "USER": user, "PASSWORD": f"p{user}"}.items():
        monkeypatch.setenv(f"RESTOW_NATS_{name}", value)
    monkeypatch.setenv("RESTOW_CLUSTER", CLUSTER)


def test_in_a_services_container_the_command_line_is_the_services_user(server, monkeypatch):
    with_accounts(server)
    append_as(server.url, "cluster_watcher", "cluster", None, count=3)
    as_service(monkeypatch, server)
    assert json.loads(restow("log", "stats", "-o", "json"))["families"]["cluster"]["commits"] == 3


def test_in_a_services_container_an_import_is_the_services_user_and_refused(server, tmp_path, monkeypatch):
    file, _ = exported(server, tmp_path)
    as_service(monkeypatch, server)
    refused = CliRunner().invoke(cli, ["log", "import", str(file), "--cluster", "other"])
    assert refused.exit_code != 0
    assert "only `operator` may do that" in " ".join(refused.output.split())


def test_the_services_password_goes_to_the_services_broker_and_to_no_other(server, monkeypatch):
    with_accounts(server)
    append_as(server.url, "cluster_watcher", "cluster", None)
    as_service(monkeypatch, server)
    refused = CliRunner().invoke(cli, ["log", "stats", "--server", server.url])
    assert refused.exit_code == 3
    assert "does not accept this user or password" in " ".join(refused.output.split())
    assert json.loads(restow("log", "stats", "-o", "json", "--server", server.url.replace("//", "//cli:pcli@")))["families"]["cluster"]["commits"] == 1
