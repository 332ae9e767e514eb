"""Health: who leads, what is kept of the log, and the verdict on it, which a process of its own makes."""

import asyncio
import os
from collections import Counter

import pytest
from cli.conftest import export
from console.browser import needs_chromium
from console.test_plan_maps import index_of
from replay.handmade import Handmade, migration, node, pod, shape, time_at

from restow.console.health import Verifier, health
from restow.console.index import Index
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.replay.state_at import state_at


def ruled():
    """Two leaders of the session, one after the other; an archive, a truncation and a snapshot."""
    log = Handmade()
    log.facts(node("a"), kind="nodes")
    log.decide("session", c.Lead("one/1"), e.SessionLed(1, "one/1"))
    log.decide("session", c.Lead("two/2"), e.SessionLed(2, "two/2"))
    log.facts(shape(), pod("p"))
    kept = e.SnapshotTaken(3, 10, 4_096), e.Archived(1, 3, "1-3.jsonl.zst", "d"), e.Truncated(2)
    log.decide("gc", c.Collect(time_at(6)), *kept)
    return log


def found(log):
    return health(index_of(log), state_at(log.source()))


def test_of_each_family_it_says_who_leads_since_when_and_what_was_written():
    log = ruled()
    said = found(log)
    one = next(one for one in said["families"] if one["family"] == "session")
    assert (one["holder"], one["epoch"], one["since"], one["commits"], one["last"]) == ("two/2", 2, time_at(3), 2, 3)
    written = Counter(record.family for record in log.records)
    assert {one["family"]: one["commits"] for one in said["families"]} == written
    assert sum(one["events"] for one in said["families"]) == index_of(log).events
    assert [(change["holder"], change["seq"]) for change in said["changes"]] == [("one/1", 2), ("two/2", 3)]


def test_a_leader_of_an_older_epoch_is_no_change():
    log = ruled()
    log.decide("session", c.Lead("old/0"), e.SessionLed(1, "old/0"))
    said = found(log)
    assert said["changes"][-1]["holder"] == "two/2"
    assert sum(said["rejected"].values()) == 1


def test_it_says_what_is_kept_of_the_log():
    kept = found(ruled())["kept"]
    assert (kept.archived, kept.truncated, kept.snapshot, kept.snapshot_size, kept.snapshot_at) == (3, 2, 3, 4_096, time_at(5))


def test_an_archive_that_was_lost_and_begins_again_may_end_before_the_old_one_did():
    log = ruled()
    log.decide("gc", c.Collect(time_at(7)), e.Archived(1, 1, "1-1.jsonl.zst", "d"))
    assert (found(log)["kept"].archived, state_at(log.source()).archived) == (1, 1)


def test_from_a_snapshot_on_what_was_kept_before_it_is_known_and_the_snapshot_is_no_commit():
    log, index = ruled(), Index()
    index.begin(state_at(log.source()))
    kept = health(index, state_at(log.source()))["kept"]
    assert (kept.archived, kept.truncated, kept.snapshot, kept.snapshot_at) == (3, 2, log.seq, 0)
    said = health(index, state_at(log.source()))
    assert said["commits"] == sum(one["commits"] for one in said["families"]) == 0
    assert next(one for one in said["families"] if one["family"] == "session")["last"] == 0
    log.decide("session", c.Lead("old/0"), e.SessionLed(1, "old/0"))
    state = state_at(log.source())
    index.note(state, "session", 1, [e.SessionLed(1, "old/0")])
    assert health(index, state)["changes"] == []


# -- verify ----------------------------------------------------------------------------------------------------------------


async def ended(verifier, last, seconds=90):
    async with asyncio.timeout(seconds):
        while (said := verifier.said(last))["state"] == "running":
            await asyncio.sleep(0.1)
        return said


async def test_the_first_question_begins_it_and_the_verdict_stays(tmp_path):
    log = migration()
    verifier = Verifier(["--log", export(tmp_path / "log.jsonl", log)])
    assert verifier.said(15)["state"] == "running"
    said = await ended(verifier, 15)
    assert said["state"] == "done"
    verdict = said["verdict"]
    assert verdict["last"] == len(log.records)
    assert verdict["sentence"]
    assert verifier.said(15)["state"] == "done"
    assert verifier.said(99)["state"] == "done", "ten minutes after it has ended at the earliest"


async def test_where_the_log_cannot_be_read_it_says_why_and_does_not_try_all_the_time(tmp_path):
    verifier = Verifier(["--log", str(tmp_path / "none.jsonl")])
    said = await ended(verifier, 1)
    assert said["state"] == "failed"
    assert "none.jsonl" in said["fault"]
    assert verifier.said(1)["state"] == "failed"


async def test_it_ends_with_the_console(tmp_path):
    verifier = Verifier(["--log", export(tmp_path / "log.jsonl", migration())])
    verifier.said(1)
    while verifier._process is None:
        await asyncio.sleep(0.01)
    pid = verifier._process.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) in (0, 19)
    await verifier.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_it_ends_with_the_console_also_while_it_is_being_started(monkeypatch):
    real = asyncio.create_subprocess_exec

    async def endless(*_, **__):
        await asyncio.sleep(0.05)
        return await real("sleep", "60", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", endless)
    verifier = Verifier(["--log", "none.jsonl"])
    verifier.said(1)
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await verifier.stop()
    assert verifier.said(1)["state"] == "failed", "nothing is begun any more"


async def test_a_console_that_cannot_name_its_log_has_none(looking):
    async with looking(migration().source()) as client:
        assert (await client.json("/api/v1/health"))["verify"] == {"state": "off"}


# -- the page --------------------------------------------------------------------------------------------------------------


@needs_chromium
async def test_the_page_shows_it(opened):
    async with opened(ruled()) as it:
        await it.go()
        await it.page.keyboard.press("h")
        await it.page.wait_for_selector(".verify")
        text = await it.text(".healthview")
        for words in ("two/2", "sequences 1 to 5", "4.0 KiB", "2 changes of leaders", "broken at nowhere"):
            assert words in text, text
        await it.page.locator("summary").focus()
        await it.page.keyboard.press("Space")
        assert await it.page.locator(".play").get_attribute("aria-label") == "Play"
        await it.page.locator(".healthview .told .seq").last.click()
        await it.at(2)
