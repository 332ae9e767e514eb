"""`helm test`: what its pod asks the log, on a real broker."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner
from deploy.manifests import DEPLOY
from domain.build import node
from integration.runtime.rig import facts

from restow.cli.main import cli
from restow.contracts import events as e
from restow.contracts.ids import FAMILIES
from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server, unique_cluster

LED = {"cluster": e.ClusterLed, "session": e.SessionLed, "reservation": e.ReservationLed, "migration": e.MigrationLed, "gc": e.GcLed}


@pytest.fixture(scope="module")
def server():
    with running_server(sync=False) as one:
        yield one


def asked(server, cluster, tmp_path):
    """As the chart has it, without Helm."""
    text = (DEPLOY / "chart" / "templates" / "tests" / "log.yaml").read_text()
    script = textwrap.dedent(re.search(r"^        - \|\n(.*?)^      env:", text, re.M | re.S)[1]).replace("{{ .Release.Namespace }}", "here").replace("/tmp/", f"{tmp_path}/")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "RESTOW_NATS_URL": server.url, "RESTOW_CLUSTER": cluster}
    return subprocess.run(["sh", "-euc", script], env=env, capture_output=True, text=True, timeout=120, check=False)


async def logged(server, cluster, *families):
    log = await connect(server.url, cluster)
    for family in families:
        await facts(log, LED[family](1, f"pod-of-{family}/1"), family=family)
    await log.close()


async def truncated(server, cluster):
    log = await connect(server.url, cluster, create=False)
    for number in range(9):
        await facts(log, node(f"n{number}"))
    await log.close()
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["log", "refold", "--server", server.url, "--cluster", cluster])
    assert done.exit_code == 0, done.output
    log = await connect(server.url, cluster, create=False)
    await log.truncate(await log.tail() - 2)
    await log.close()


def test_who_has_led_is_known_also_once_the_log_holds_nothing_of_it_any_more(server, tmp_path):
    """Of a cluster without Reservations nobody had led `reservation`, once a day's commits had come behind."""
    cluster = unique_cluster()
    asyncio.run(logged(server, cluster, *FAMILIES))
    asyncio.run(truncated(server, cluster))
    done = asked(server, cluster, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{family}: pod-of-{family}/1 leads, epoch 1" for family in FAMILIES]


def test_who_has_not_led_is_named(server, tmp_path):
    cluster = unique_cluster()
    asyncio.run(logged(server, cluster, "cluster", "session", "migration", "gc"))
    done = asked(server, cluster, tmp_path)
    assert (done.returncode, done.stderr) == (1, "nobody has led reservation yet: kubectl -n here get pods\n")
    assert asked(server, unique_cluster(), tmp_path).returncode != 0, "a log that is not there"
