"""Helpers for tests that need the real broker. Fixtures are made of these in a conftest:

    @pytest.fixture(scope="session")
    def nats_server():
        with running_server() as server:
            yield server

    @pytest.fixture
    def cluster():
        return unique_cluster()
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from restow.contracts.envelope import Envelope
from restow.eventlog.server import NatsServer, temporary_server


@contextmanager
def running_server(**options: Any) -> Iterator[NatsServer]:
    """A started nats-server in a temporary folder, which is removed at the end. options: as NatsServer takes."""
    server = temporary_server(**options)
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def unique_cluster() -> str:
    """A cluster name that no other test uses."""
    return "t-" + secrets.token_hex(6)


def envelope(ce_id: str = "", *, read: int = 0, family: str = "session", logic: str = "test@1") -> Envelope:
    """A valid envelope; a random id unless one is given."""
    return Envelope(
        id=ce_id or secrets.token_hex(8),
        source=f"/restow/test/{family}",
        time="2026-01-01T00:00:00.000Z",
        read=read,
        logic=logic,
    )
