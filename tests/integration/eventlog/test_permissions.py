"""deploy/nats: each service may do its own work on the log, and nothing else. Both directions, on the real server."""

import asyncio
import os
import re
import shutil
import subprocess
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from restow.eventlog.archive import export, import_
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.jetstream import reader as reader_module
from restow.eventlog.jetstream.connect import ApiError, Broker, Denied
from restow.eventlog.port import BrokerRefused
from restow.eventlog.server import find_binary, temporary_server
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import envelope
from restow.replay.restore import restore

from .helpers import BODY, take
from .test_import import exported, logged

DEPLOY = Path(__file__).parents[3] / "deploy" / "nats"
CLUSTER = "main"
FAMILIES = {
    "cluster_watcher": "cluster",
    "scheduler_session": "session",
    "reservation_cache": "reservation",
    "descheduler": "migration",
    "garbage_collector": "gc",
}
READERS = ("console", "cli")
USERS = (*FAMILIES, *READERS, "operator")
PASSWORDS = {f"RESTOW_NATS_{user.upper()}_PASSWORD": f"p{user}" for user in USERS}


@contextmanager
def guarded_server(more: str = "", **options):
    """A broker with the users and permissions that are deployed, and whatever else its configuration is to say."""
    server = temporary_server(extra=f"include ./permissions.conf\n{more}", environment=PASSWORDS, **options)
    shutil.copy(DEPLOY / "permissions.conf", server.folder)
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(server.folder)


@pytest.fixture
def guarded():
    with guarded_server() as server:
        yield server


@pytest.fixture
async def as_user(guarded, opened):
    async def open_(user, **options):
        return await opened(
            guarded.url,
            CLUSTER,
            user=user,
            password=f"p{user}",
            inbox_prefix=f"_INBOX_{user}",
            create=user in FAMILIES or user == "operator",
            **options,
        )

    return open_


async def test_each_service_appends_to_its_own_family_and_no_other(as_user):
    logs = {user: await as_user(user) for user in FAMILIES}
    for user, log in logs.items():
        for family in FAMILIES.values():
            if family == FAMILIES[user]:
                await log.append(family, BODY, envelope(), expected_last=0)
            else:
                with pytest.raises(BrokerRefused, match=rf"forbid this user to publish to restow\.main\.{family}"):
                    await log.append(family, BODY, envelope(), expected_last=0)
    assert await logs["descheduler"].tail() == len(FAMILIES)


async def test_everybody_reads_everything(as_user):
    for user, family in FAMILIES.items():
        await (await as_user(user)).append(family, BODY, envelope(), expected_last=0)
    for user in USERS:
        log = await as_user(user)
        assert [r.family for r in await take(log, 1, 5)] == list(FAMILIES.values())
        assert await log.last_of("gc") == 5


async def test_readers_write_nothing(as_user):
    await (await as_user("scheduler_session")).append("session", BODY, envelope(), expected_last=0)
    for user in READERS:
        log = await as_user(user)
        for family in FAMILIES.values():
            with pytest.raises(BrokerRefused, match="forbid this user to publish"):
                await log.append(family, BODY, envelope(), expected_last=0)
        with pytest.raises(BrokerRefused, match="forbid"):
            await log.truncate(1)


async def test_only_the_collector_truncates_and_writes_snapshots(as_user):
    collector = await as_user("garbage_collector")
    await collector.append("gc", BODY, envelope(), expected_last=0)
    snapshot = Snapshot(log_id=collector.log_id, seq=1, fold_version=1, body=os.urandom(1_500_000))
    await (await open_snapshots(collector)).put(snapshot)
    for user in USERS:
        if user == "garbage_collector":
            continue
        log = await as_user(user)
        with pytest.raises(BrokerRefused, match=r"forbid.*STREAM\.PURGE\.restow-main"):
            await log.truncate(1)
        snapshots = await open_snapshots(log, create=False)
        assert await snapshots.latest() == snapshot
        with pytest.raises(BrokerRefused, match="forbid"):
            await snapshots.put(snapshot)
    for seq in (2, 3):
        await (await open_snapshots(collector)).put(
            Snapshot(log_id=collector.log_id, seq=seq, fold_version=1, body=b"")
        )
    assert await (await open_snapshots(collector)).sequences() == [2, 3]
    await collector.truncate(1)
    assert await collector.first() == 2


async def test_nobody_changes_or_deletes_the_stream(as_user):
    for user in USERS:
        log = await as_user(user) if user not in READERS else None
        if log is None:
            continue
        for verb in ("DELETE", "MSG.DELETE", *(() if user == "operator" else ("UPDATE",))):
            with pytest.raises(BrokerRefused, match="forbid"):
                await log.broker.api(f"STREAM.{verb}.restow-{CLUSTER}", {})


# Requests that every reader may make, and what the broker would answer with.
ALLOWED = (
    ("STREAM.INFO.restow-main", b""),
    ("STREAM.MSG.GET.restow-main", b'{"seq":1}'),
    ("STREAM.INFO.OBJ_restow-main", b""),
)
FORBIDDEN = ("restow.main.session", "restow.main.cluster", "restow.main.anything", "$O.restow-main.M.eA==", "$O.restow-main.C.eA")
"""Subjects of the two streams."""


async def messages(log):
    """How much there is in the log and among the snapshots."""
    states = [(await log.broker.api(f"STREAM.INFO.{stream}"))["state"] for stream in ("restow-main", "OBJ_restow-main")]
    return [(state["messages"], state["first_seq"], state["last_seq"]) for state in states]


async def filled(as_user):
    """A log and a snapshot, and the collector's view of both."""
    collector = await as_user("garbage_collector")
    await collector.append("gc", BODY, envelope(), expected_last=0)
    await (await open_snapshots(collector)).put(Snapshot(log_id=collector.log_id, seq=1, fold_version=1, body=b"x"))
    return collector


@pytest.mark.parametrize("user", USERS)
async def test_no_reply_subject_of_an_allowed_request_writes_into_the_log(as_user, user):
    """The broker publishes its answer wherever the request asks it to: here that leads nowhere."""
    collector = await filled(as_user)
    before = await messages(collector)
    log = await as_user(user)
    for reply in (*FORBIDDEN, "$JS.API.STREAM.PURGE.restow-main", "$JS.API.STREAM.DELETE.restow-main"):
        for verb, body in ALLOWED:
            await log.broker.client.publish(f"{log.broker.api_prefix}.{verb}", body, reply)
    await log.broker.client.flush()
    await asyncio.sleep(0.1)
    assert await messages(collector) == before
    assert (await take(await as_user("cli"), 1, 1))[0].family == "gc"


@pytest.mark.parametrize("user", ["console", "descheduler"])
async def test_no_consumer_delivers_into_the_log_or_into_the_snapshots(as_user, user):
    """Neither by push, from either stream to the subjects of either, nor by what a pull asks for."""
    collector = await filled(as_user)
    heard = []

    async def hear(message):
        heard.append(message)

    await collector.broker.client.subscribe("_INBOX_garbage_collector.forged", cb=hear)
    before = await messages(collector)
    log = await as_user(user)
    number = 0
    for stream, filters in (("restow-main", ""), ("OBJ_restow-main", "$O.restow-main.C.*")):
        for target in (*FORBIDDEN, "$JS.API.STREAM.PURGE.restow-main", "JS.LOG.API.STREAM.PURGE.restow-main", "_INBOX_garbage_collector.forged"):
            for push in (True, False):
                number += 1
                config = {"name": f"evil{number}", "deliver_policy": "all", "ack_policy": "none", "mem_storage": True}
                config |= {"deliver_subject": target} if push else {}
                config |= {"filter_subject": filters} if filters else {}
                verb = f"CONSUMER.CREATE.{stream}.evil{number}" + (f".{filters}" if filters else "")
                request = {"stream_name": stream, "config": config, "action": "create"}
                if push and target.startswith("$O." if filters else "restow."):
                    with pytest.raises(ApiError, match="cycle"):
                        await log.broker.api(verb, request)
                    continue
                await log.broker.api(verb, request)
                if not push:
                    await log.broker.client.publish(f"{log.broker.api_prefix}.CONSUMER.MSG.NEXT.{stream}.evil{number}", b'{"batch":9}', target)
    await log.broker.client.flush()
    await asyncio.sleep(0.2)
    assert await messages(collector) == before
    assert not heard


async def test_a_reader_has_no_other_way_to_the_brokers_api(as_user):
    """What is not imported is not there, whatever prefix it is asked for under."""
    await filled(as_user)
    log = await as_user("cli")
    for prefix in ("$JS.API", "JS.LOG.API", "$JS.LOG.API"):
        for verb in ("STREAM.DELETE.restow-main", "STREAM.PURGE.restow-main", "STREAM.UPDATE.restow-main", "STREAM.NAMES", "STREAM.CREATE.x"):
            with pytest.raises(Denied):
                await log.broker.request(f"{prefix}.{verb}", b"{}", timeout=2)


async def test_a_readers_inbox_is_renewed_before_the_broker_remembers_too_much(as_user, monkeypatch):
    monkeypatch.setattr(reader_module, "RENEW", 4)
    monkeypatch.setattr(reader_module, "PULL_BATCH", 10)
    log, last = await as_user("scheduler_session"), 0
    for _ in range(300):
        last = await log.append("session", BODY, envelope(), expected_last=last)
    feed_of = log._feeds
    records, remade = [], 0
    async with asyncio.timeout(60), aclosing(log.read(1)) as batches:
        async for batch in batches:
            records += batch
            remade = max(remade, *(feed.remade for feed in feed_of))
            if records[-1].seq >= 300:
                break
    assert [record.seq for record in records] == list(range(1, 301))
    assert remade > 3


async def test_nobody_listens_to_anothers_answers(guarded):
    with pytest.raises(BrokerRefused, match="forbid this user to listen on _INBOX_console"):
        await connect(guarded.url, CLUSTER, user="cli", password="pcli", inbox_prefix="_INBOX_console", wait=3)


async def test_user_and_password_may_stand_in_the_address_and_the_inbox_is_theirs(guarded, as_user):
    await (await as_user("garbage_collector")).append("gc", BODY, envelope(), expected_last=0)
    log = await connect(guarded.url.replace("://", "://cli:pcli@"), CLUSTER, create=False)
    assert await log.tail() == 1
    await log.close()


async def test_a_wrong_password_is_refused_at_once(guarded):
    with pytest.raises(BrokerRefused, match="does not accept this user or password"):
        await Broker.connect(guarded.url, user="cli", password="wrong", wait=5)


async def test_the_operator_imports_into_an_empty_log(as_user, tmp_path):
    from restow.eventlog.memory import MemoryLog

    source = MemoryLog(CLUSTER)
    last = 0
    for _ in range(20):
        last = await source.append("session", BODY, envelope(), expected_last=last)
    await export(source, tmp_path)
    log = await as_user("operator", log_id=source.log_id)
    assert await import_(tmp_path, log) == 20


def test_no_password_is_written_down_and_a_missing_one_stops_the_server(tmp_path):
    text = (DEPLOY / "permissions.conf").read_text()
    assert re.findall(r"password: *(\S+)", text) == [f"${name}" for name in PASSWORDS]
    for file in DEPLOY.glob("*.conf"):
        shutil.copy(file, tmp_path)
    command = [find_binary(), "-t", "-c", tmp_path / "nats.conf"]
    environment = PASSWORDS | {"RESTOW_NATS_NAME": "nats-0"}
    good = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert good.returncode == 0, good.stderr
    environment.pop("RESTOW_NATS_CLI_PASSWORD")
    bad = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert bad.returncode != 0
    assert "RESTOW_NATS_CLI_PASSWORD" in bad.stderr


def test_the_production_file_syncs_every_commit():
    text = (DEPLOY / "nats.conf").read_text()
    assert "sync_interval: always" in text
    assert "max_payload: 8MB" in text


def test_who_may_not_import_is_told_who_may(guarded, tmp_path):
    source = exported(tmp_path / "a.jsonl.zst", logged(("cluster", BODY)))
    for user in ("cli", "operator"):
        with pytest.raises(BrokerRefused, match=r"forbid this user to publish .* only `operator` may do that \(--server nats://operator:PASSWORD@HOST:4222\)"):
            restore(source, [guarded.url.replace("://", f"://{user}:p{user}@")], "main" if user == "cli" else "other")
    assert restore(source, [guarded.url.replace("://", "://operator:poperator@")], "main") == 1


async def test_a_user_that_the_address_names_too_has_the_password_of_the_address(guarded):
    address = guarded.url.replace("nats://", "nats://cli:pcli@")
    broker = await Broker.connect(address, user="cli", wait=5)
    await broker.close()
