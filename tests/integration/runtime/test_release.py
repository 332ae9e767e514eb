"""Every commit names the release that decided it, and `restow version` says the same of what is installed."""

import json
import re

from click.testing import CliRunner

from restow.cli.main import cli
from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server, unique_cluster
from restow.garbage_collector.service import service as garbage_collector
from restow.kubesim.testing import kubesim
from restow.runtime import release

from .test_services import service

IMAGE = "registry.example/restow@sha256:0123"


async def test_a_services_commits_name_its_wheel_its_code_and_its_image():
    cluster = unique_cluster()
    with running_server(sync=False) as broker:
        async with kubesim() as kube, service(garbage_collector(), broker, cluster, kube, image=IMAGE) as running:
            await running.leading()
            log = await connect(broker.url, cluster)
            (record, *_) = await anext(log.read(1))
            await log.close()
    assert record.envelope.release == f"{release.number()}+{release.code()} {IMAGE}"
    assert record.envelope.log == log.log_id


def test_restow_version_says_which_release_it_is():
    said = CliRunner().invoke(cli, ["version", "-o", "json"]).output
    assert json.loads(said)["release"] == release.name()
    assert re.fullmatch(r"[0-9.]+\S*\+[0-9a-f]{12}", release.name())
