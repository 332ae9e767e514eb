"""What a stack's services are told is of the stack alone."""

import os

from restow.cli.embedded.child import Child
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
