"""What a stack's services are told is of the stack alone; and what becomes of its log where the disk is full."""

import asyncio
import os
import subprocess
import sys

import pytest

from restow.cli.embedded import broker
from restow.cli.embedded.broker import Broker
from restow.cli.embedded.child import Child
from restow.cli.embedded.failures import StackError
from restow.cli.embedded.folder import CLUSTER
from restow.cli.embedded.stack import Stack
from restow.runtime import settings


async def test_an_archive_that_the_user_has_set_for_another_log_is_not_the_stacks(tmp_path, monkeypatch):
    async def start(child):
        pass

    monkeypatch.setattr(Child, "start", start)
    monkeypatch.setenv("RESTOW_ARCHIVE", "s3://backups/prod")
    stack = Stack(tmp_path / "stack", policy="", scheduler="", kube="http://127.0.0.1:1")
    stack._broker._server.port = 4222
    await stack._start_service("garbage_collector")
    given = settings.read("garbage_collector", [], os.environ | stack.children["garbage_collector"]._environment)
    assert given.archive_of(CLUSTER) == str(stack.folder / "archive" / "archive" / CLUSTER)


@pytest.mark.parametrize("trouble", [StackError("the broker did not start: No space left on device"), asyncio.CancelledError()])
async def test_the_log_of_the_stack_before_stays_where_it_cannot_be_saved(tmp_path, monkeypatch, trouble):
    def start(self):
        raise trouble

    log = tmp_path / "stack" / "nats" / "store" / "jetstream" / "LOG" / "streams" / "restow-embedded"
    log.mkdir(parents=True)
    monkeypatch.setattr(Broker, "start", start)
    stack = Stack(tmp_path / "stack", policy="", scheduler="", save=True)
    with pytest.raises(type(trouble)) as raised:
        await stack.start()
    await stack.stop()
    assert log.exists()
    if isinstance(trouble, StackError):
        assert f"is left in {stack.files.nats}: run this again once that is mended, use another --data folder, or give the log up with --delete-log" in str(raised.value)


async def test_a_disk_that_was_full_is_said_and_the_broker_started_again_once_there_is_space(tmp_path, monkeypatch):
    one, said, free = Broker(tmp_path / "nats"), [], [0]
    one.start()
    before = one.pid
    monkeypatch.setattr(broker, "_free", lambda folder: free[0])
    keeper = asyncio.create_task(one.keep(pytest.fail, said.append))
    try:
        await _until(lambda: said)
        assert said == [f"the disk of {tmp_path / 'nats'} is full: nothing is decided until there is space. What was decided is kept; it goes on by itself"]
        assert one.pid == before
        free[0] = 10 << 20
        await _until(lambda: one.pid not in (before, None))
        assert said[1:] == [f"the disk of {tmp_path / 'nats'} has space again: the broker is started again, and everything goes on"]
    finally:
        keeper.cancel()
        await one.stop()


async def test_whoever_takes_the_folder_away_does_not_end_the_watch_over_the_broker(tmp_path):
    assert broker._free(tmp_path / "gone") > broker.FULL


async def _until(true):
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.05)


def test_a_service_whose_words_cannot_be_written_goes_on():
    """The disk of what it prints may be full: a stack's services ended and were started again, until the stack gave up."""
    program = "import logging; from restow.runtime import logs; logs.configure('info', 'json').info('one'); logging.getLogger('nats').error('two'); print('goes on')"
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", program], stderr=full, stdout=subprocess.PIPE, text=True, check=False).stdout == "goes on\n"
