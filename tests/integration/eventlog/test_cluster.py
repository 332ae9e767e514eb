"""Three brokers, three copies: any one of them dies while services read and append, and one more copy is made while they run."""

import asyncio
import re
import shutil
from contextlib import suppress

import pytest
from click.testing import CliRunner

from restow.cli.main import cli
from restow.eventlog.archive import export
from restow.eventlog.jetstream import open_snapshots
from restow.eventlog.jetstream.copies import Copies
from restow.eventlog.port import LogMismatch, Unavailable, reached
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import envelope, running_brokers
from restow.replay.restore import fill
from restow.replay.source import open_path

from .helpers import BODY, end, follow, persist, take, until


@pytest.fixture
def brokers():
    with running_brokers(3) as servers:
        yield servers


def urls(brokers):
    return [server.url for server in brokers]


async def leader_of(log, brokers, stream=""):
    """The broker that leads the stream now."""
    async with asyncio.timeout(60):
        while True:
            try:
                info = await log.broker.api(f"STREAM.INFO.{stream or f'restow-{log.cluster}'}")
            except Unavailable:
                continue
            if name := info["cluster"].get("leader"):
                return brokers[int(name[1:])]
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
async def test_a_leader_that_goes_loses_and_repeats_nothing(brokers, opened, cluster, how):
    """SIGKILL, SIGTERM as when its node is drained, and SIGSTOP: a machine that hangs."""
    log = await opened(urls(brokers), cluster, replicas=3, append_timeout=2.0, wait=30.0)
    other = await opened(urls(brokers), cluster, replicas=3)
    reader, seen = follow(other, 1)

    async def writer():
        return [await persist(log, f"commit-{number}") for number in range(100)]

    writing = asyncio.create_task(writer())
    await until(lambda: len(seen) > 20, 60)
    leader = await leader_of(other, brokers)
    await asyncio.to_thread(getattr(leader, how))
    async with asyncio.timeout(120):
        sequences = await writing
    await until(lambda: len(seen) >= 100, 60)
    if how == "pause":
        leader.resume()
    assert sequences == list(range(1, 101))
    assert [r.seq for r in seen] == sequences
    assert [r.envelope.id for r in seen] == [f"commit-{number}" for number in range(100)]
    assert await persist(log, "one more") == 101
    await end(reader)


@pytest.mark.slow
async def test_a_broker_that_has_lost_the_others_is_left_for_one_that_has_not(brokers, opened, cluster, monkeypatch):
    """It keeps its clients, who waited for as long as it was cut off. (Its SIGSTOP would end the connection, so what it says of the others is put into its mouth.)"""
    log = await opened(urls(brokers), cluster, replicas=3, wait=30.0)
    last, alone = await persist(log, "first"), log.broker.client.connected_url.netloc
    monkeypatch.setattr(Copies, "too_few", lambda self: "it has lost the others" if log.broker.client.connected_url.netloc == alone else "")
    assert not reached(log)
    assert await log.tail() == last
    await until(lambda: reached(log), 30)
    assert log.broker.client.connected_url.netloc != alone
    assert await persist(log, "second") == last + 1
    monkeypatch.setattr(Copies, "too_few", lambda self: "all have")
    losses = log.broker.losses
    for _ in range(3):
        await log.tail()
    assert log.broker.losses == losses, "not again before a while"


@pytest.mark.slow
async def test_every_broker_in_turn_is_started_anew_while_services_append(brokers, opened, cluster):
    """As a rolling upgrade of the brokers does: in order, each waits until the one before is whole again."""
    log = await opened(urls(brokers), cluster, replicas=3, append_timeout=2.0, wait=30.0)
    reader, seen = follow(await opened(urls(brokers), cluster), 1)
    done = asyncio.Event()
    written = []

    async def writer():
        while not done.is_set():
            written.append(await persist(log, f"commit-{len(written)}"))

    writing = asyncio.create_task(writer())
    for broker in brokers:
        await until(lambda before=len(written): len(written) > before + 20, 120)
        await asyncio.to_thread(broker.stop)
        await until(lambda before=len(written): len(written) > before + 5, 120)
        await asyncio.to_thread(broker.start)
        await whole(log)
    done.set()
    await writing
    await until(lambda: len(seen) >= len(written), 60)
    assert written == [r.seq for r in seen] == list(range(1, len(written) + 1))
    await end(reader)


async def whole(log, count=3):
    async with asyncio.timeout(120):
        while True:
            try:
                info = await log.broker.api(f"STREAM.INFO.restow-{log.cluster}")
            except Unavailable:
                continue
            others = info["cluster"].get("replicas") or []
            if len(others) == count - 1 and all(other["current"] for other in others):
                return
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_the_log_and_its_snapshots_get_more_copies_while_services_run_and_survive_their_broker(brokers, opened, cluster):
    log = await opened(urls(brokers), cluster, wait=30.0)
    assert log.replicas == 1
    snapshots = await open_snapshots(log)
    snapshot = Snapshot(log_id=log.log_id, seq=1, fold_version=1, body=b"x" * 700_000)
    for number in range(20):
        await persist(log, f"before-{number}")
    await snapshots.put(snapshot)
    with pytest.raises(LogMismatch, match=r"has 1 copy, and must have 3.*`restow log replicas 3`"):
        await opened(urls(brokers), cluster, replicas=3)
    reader, seen = follow(log, 1)
    said = await asyncio.to_thread(
        CliRunner().invoke, cli, ["log", "replicas", "3", "--server", ",".join(urls(brokers)), "--cluster", cluster], catch_exceptions=False
    )
    assert said.exit_code == 0, said.output
    assert f"the log of cluster {cluster} and its snapshots have 3 copies" in said.output
    three = await opened(urls(brokers), cluster, replicas=3)
    assert three.replicas == 3
    await open_snapshots(three)
    await asyncio.to_thread((await leader_of(three, brokers)).kill)
    assert await persist(three, "after") == 21
    async with asyncio.timeout(60):
        while True:
            try:
                assert await (await open_snapshots(three, create=False)).latest() == snapshot
                break
            except Unavailable:
                continue
    await until(lambda: len(seen) >= 21, 60)
    assert [r.seq for r in seen] == list(range(1, 22))
    await end(reader)


@pytest.mark.slow
async def test_more_copies_than_brokers_are_refused_with_what_to_do(nats_server, brokers, opened, cluster):
    for servers, ready in (([nats_server.url], 5.0), (urls(brokers), 10.0)):
        with pytest.raises(Unavailable, match=r"too few brokers for 5 copies of 'restow-.*: start 5 as a cluster .*set RESTOW_NATS_REPLICAS to 1"):
            await opened(servers, cluster, replicas=5, wait=ready)
    for servers, count in (([nats_server.url], 3), (urls(brokers), 5)):
        log = await opened(servers, cluster)
        said = await asyncio.to_thread(CliRunner().invoke, cli, ["log", "replicas", str(count), "--server", ",".join(servers), "--cluster", cluster])
        assert said.exit_code != 0
        assert re.search(f"too few brokers for {count} copies", " ".join(said.output.split()))
        info = await log.broker.api(f"STREAM.INFO.restow-{cluster}")
        assert info["config"]["num_replicas"] == 1, "services would refuse to start"


async def test_a_log_with_fewer_copies_than_were_wanted_is_no_log_of_ours(nats_server, opened, cluster):
    await opened(nats_server.url, cluster)
    with pytest.raises(LogMismatch, match="has 1 copy, and must have 3"):
        await opened(nats_server.url, cluster, replicas=3)
    assert await (await opened(nats_server.url, cluster)).append("session", BODY, envelope(), expected_last=0) == 1


@pytest.mark.slow
async def test_a_log_is_restored_on_three_brokers_too(brokers, opened, cluster, tmp_path):
    """They take no second commit of a family that names its last one while the first is under way."""
    log = await opened(urls(brokers), cluster, wait=30.0)
    last = dict.fromkeys(("session", "cluster"), 0)
    for number in range(60):
        family = ("session", "cluster", "cluster")[number % 3]
        last[family] = await log.append(family, BODY, envelope(family=family), expected_last=last[family])
    await export(log, tmp_path / "archive")
    source = open_path(tmp_path / "archive")
    copy = await opened(urls(brokers), f"{cluster}-b", log_id=log.log_id, replicas=3)
    assert await copy.bulk_append(_records(source, 25)) == 25
    assert await fill(source, copy) == 35
    assert (await copy.tail(), await copy.last_of("session"), await copy.last_of("cluster")) == (60, last["session"], last["cluster"])
    with pytest.raises(LogMismatch, match="record 30 cannot stand in its place: somebody else appends"):
        await copy.bulk_append(_records(source, 30, 30))


async def _records(source, upto, start=1):
    for batch in source.batches(start, upto):
        for record in batch:
            yield record


async def damaged_alone(log, brokers, number):
    """One of the brokers, which does not lead the log, and has another bit in this record; all are there."""
    leader = await leader_of(log, brokers)
    damaged = next(broker for broker in brokers if broker is not leader)
    await asyncio.to_thread(damaged.stop)
    (block,) = damaged.folder.glob("**/streams/restow-*/msgs/*.blk")
    data = bytearray(block.read_bytes())
    data[data.index(b"%d" % number) + 2] ^= 1
    block.write_bytes(data)
    await asyncio.to_thread(damaged.start)
    await whole(log)
    return damaged


async def leads(log, brokers, one):
    name = b"n%d" % brokers.index(one)
    async with asyncio.timeout(60):
        while await leader_of(log, brokers) is not one:
            # Its answer may be lost with the leader.
            await log.broker.client.publish(f"$JS.API.STREAM.LEADER.STEPDOWN.restow-{log.cluster}", b'{"placement":{"preferred":"%s"}}' % name)
            await asyncio.sleep(1.0)


async def numbered(log, count):
    for number in range(count):
        await log.append("session", b'{"decisions":[],"number":%d}' % (1_000 + number), envelope(f"id-{number}"), expected_last=number)
    await whole(log)


def verified(brokers, cluster):
    return asyncio.to_thread(CliRunner().invoke, cli, ["log", "verify", "--server", ",".join(urls(brokers)), "--cluster", cluster])


@pytest.mark.slow
async def test_what_one_of_three_brokers_has_lost_is_read_from_the_others(brokers, opened, cluster, caplog):
    """Whichever of them leads, and whichever a reader's consumer is on. It stopped all decisions: by chance, for one service and not for another."""
    log = await opened(urls(brokers), cluster, replicas=3, wait=30.0)
    await numbered(log, 20)
    damaged = await damaged_alone(log, brokers, 1010)
    said = f"record 11 of restow-{cluster} is missing on one broker (n{brokers.index(damaged)}), and there on another"

    async def reads_all():
        reader = await opened(urls(brokers), cluster, wait=30.0)
        assert [(r.seq, r.envelope.id) for r in await take(reader, 1, 20)] == [(number + 1, f"id-{number}") for number in range(20)]
        return reader.damaged_copy()

    async with asyncio.timeout(120):
        # A consumer is on one of the three by chance.
        while not (found := await reads_all()):
            assert said not in caplog.text
    assert said in caplog.text
    assert found == f"{said.replace(f' of restow-{cluster}', '')}: its volume is damaged (docs/failures.md)"
    await leads(log, brokers, damaged)
    async with asyncio.timeout(120):
        # Nobody leads who would have it: a reader's next consumer is on another one.
        while not (found_again := await reads_all()):
            pass
    assert found_again == found
    assert (await verified(brokers, cluster)).exit_code == 0


@pytest.mark.slow
async def test_what_is_truncated_while_it_is_read_is_no_damage_of_the_broker_that_has_truncated_it_first(brokers, opened, cluster, monkeypatch, caplog):
    """A broker that leads anew, or leads no more and has not heard of it, may still show what the others have truncated. (That one answers so is put into its mouth: a
    broker of today leads once it has applied what was before.)"""
    for name, value in (("PULL_BATCH", 10), ("BUFFER_MESSAGES", 10)):
        monkeypatch.setattr(f"restow.eventlog.jetstream.reader.{name}", value)
    log = await opened(urls(brokers), cluster, replicas=3, wait=30.0)
    await numbered(log, 200)
    reader = await opened(urls(brokers), cluster, wait=30.0)
    kept = {seq: await reader._stream.message(seq) for seq in range(1, 201)}
    batches = reader.read(1)
    read = (await anext(batches))[-1].seq
    await log.truncate(190)

    async def shows(seq, following=False):
        return kept[seq]

    monkeypatch.setattr(reader._stream, "message", shows)
    seen = [record.seq for record in await anext(batches)]
    while seen[-1] < 150:
        seen += [record.seq for record in await anext(batches)]
    assert seen == list(range(read + 1, seen[-1] + 1)), "what it shows is true"
    assert reader.damaged_copy() == ""
    assert "damaged" not in caplog.text
    await batches.aclose()


async def test_what_a_broker_lacks_is_said_until_that_is_truncated(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    for number in range(20):
        await persist(log, f"id-{number}")
    log._note_damaged(5, 11, "n1")
    assert log.damaged_copy().startswith("records 5 to 11 are missing on one broker (n1)")
    await log.truncate(7)
    await log.tail()
    assert log.damaged_copy().startswith("records 8 to 11 are missing")
    await log.truncate(11)
    await log.tail()
    assert log.damaged_copy() == ""


@pytest.mark.slow
async def test_who_reads_one_by_one_from_a_damaged_leader_waits_for_a_consumer_on_another_broker(brokers, opened, cluster, monkeypatch):
    log = await opened(urls(brokers), cluster, replicas=3, wait=30.0)
    await numbered(log, 20)
    await leads(log, brokers, await damaged_alone(log, brokers, 1010))
    reader = await opened(urls(brokers), cluster, wait=30.0)
    publish, electing = reader.broker.client.publish, True

    async def loses(subject, payload=b"", reply="", headers=None):
        if not electing or "CONSUMER.CREATE" not in subject:
            await publish(subject, payload, reply, headers)

    monkeypatch.setattr(reader.broker.client, "publish", loses)
    following, seen = follow(reader, 1)
    await until(lambda: len(seen) == 10, 30)
    await asyncio.sleep(1.0)
    assert len(seen) == 10
    electing = False
    await until(lambda: len(seen) == 20, 60)
    assert [r.seq for r in seen] == list(range(1, 21))
    await end(following)


@pytest.mark.slow
async def test_a_log_whose_end_the_leading_broker_cannot_show_is_whole_once_that_one_has_copied_it_from_the_others(brokers, opened, cluster):
    """As docs/failures.md says: no record is given up that two of three have."""
    log = await opened(urls(brokers), cluster, replicas=3, wait=30.0)
    await numbered(log, 20)
    damaged = await damaged_alone(log, brokers, 1019)
    await leads(log, brokers, damaged)
    said = await verified(brokers, cluster)
    assert said.exit_code == 1
    assert "record 20" in said.output
    assert f"Broker n{brokers.index(damaged)} leads" in said.output
    await asyncio.to_thread(damaged.stop)
    shutil.rmtree(damaged.folder / "store")
    await asyncio.to_thread(damaged.start)
    await whole(log)
    assert (await verified(brokers, cluster)).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["followers", "leader"])
async def test_who_has_nothing_to_append_notices_that_too_few_brokers_are_left(brokers, opened, cluster, whose):
    """Whoever is left answers all questions, so that an idle service went on being ready."""
    log = await opened(urls(brokers), cluster, replicas=3)
    leader = await leader_of(log, brokers)
    gone = [server for server in brokers if server is not leader]
    if whose == "leader":
        gone[0] = leader

    async def heard(what, seconds):
        async with asyncio.timeout(seconds):
            while not what():
                with suppress(Unavailable):
                    await log.tail()
                await asyncio.sleep(0.2)

    await heard(lambda: log._stream.copies._brokers == 3, 10)
    assert (log.too_few(), log.some_silent()) == ("", "")
    await asyncio.to_thread(gone[0].kill)
    await heard(log.some_silent, 30)
    name = f"n{brokers.index(gone[0])}"
    assert (log.too_few(), log.some_silent()) == ("", f"a broker that keeps a copy of the log is silent: {name}, of 3; if one more goes, no commit is taken")
    await asyncio.to_thread(gone[1].kill)
    await heard(log.too_few, 40)
    assert re.fullmatch(r"no commit is taken: of the 3 brokers that keep the log (n., n. are silent|none leads it), and 2 must be there: start them again", log.too_few())
    assert log.some_silent() == ""
    for server in gone:
        await asyncio.to_thread(server.start)
    await heard(lambda: not log.too_few() and not log.some_silent(), 60)
    assert await persist(log, "again") == 1
