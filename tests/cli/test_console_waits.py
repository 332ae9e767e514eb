"""`restow console --on-demand`, as the chart and compose start it: beside services that wait for the broker and make the log, so it waits, too."""

import asyncio
import shutil
import signal
import subprocess

import pytest
from cli.conftest import RESTOW

from restow.eventlog import jetstream
from restow.eventlog.server import temporary_server


@pytest.fixture
def broker():
    server = temporary_server()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder)


def started(url, tmp_path):
    command = [RESTOW, "console", "--on-demand", "--port", "0", "--address-file", str(tmp_path / "address"), "--server", url, "--cluster", "main"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path)


async def test_it_waits_for_the_broker_and_for_the_log(broker, tmp_path):
    url = broker.start().url
    broker.stop()
    process = started(url, tmp_path)
    try:
        assert "waiting for the log: no broker answers" in process.stderr.readline()
        broker.start()
        assert "waiting for the log: cluster 'main' has no log here" in process.stderr.readline()
        await (await jetstream.connect([url], "main", create=True)).close()
        async with asyncio.timeout(60):
            while not (tmp_path / "address").exists():
                assert process.poll() is None
                await asyncio.sleep(0.1)
    finally:
        process.kill()
        process.communicate()


def test_it_waits_for_a_broker_that_does_not_let_it_in_yet(tmp_path):
    server = temporary_server(extra="authorization { user: console, password: pnew }")
    process = started(server.start().url.replace("//", "//console:pold@"), tmp_path)
    try:
        assert "does not accept this user or password" in process.stderr.readline()
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
        server.stop()
        shutil.rmtree(server.folder)


def test_it_ends_in_order_while_it_waits(broker, tmp_path):
    process = started(broker.start().url, tmp_path)
    try:
        assert "waiting for the log" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_without_on_demand_it_says_that_there_is_none(broker, tmp_path):
    done = subprocess.run([RESTOW, "console", "--port", "0", "--server", broker.start().url, "--cluster", "main"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 3
    assert "has no log here" in done.stderr
