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
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def running_brokers(count: int = 3, *, config: Callable[[int], str] = lambda number: "", **options: Any) -> Iterator[list[NatsServer]]:
    """That many started nats-servers in one cluster, n0 to n<count-1>. config: more lines of each one's configuration. options: as NatsServer takes."""
    ports = free_ports(count)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        temporary_server(
            extra=f"server_name: n{number}\ncluster {{ name: test, listen: 127.0.0.1:{port}, no_advertise: true, routes: [{routes}] }}\n{config(number)}",
            **options,
        )
        for number, port in enumerate(ports)
    ]
    try:
        yield [server.start() for server in servers]
    finally:
        for server in servers:
            server.kill()
            shutil.rmtree(server.folder, ignore_errors=True)


LOWEST, PORTS = 16_000, 16_000
"""Of the ports of `free_ports`. The kernel gives others to connections, and to servers that ask for any: one of these was a broker's port for clients before it was its port for routes."""


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listened on just now."""
    found = list[int]()
    while len(found) < count:
        port = LOWEST + secrets.randbelow(PORTS)
        with suppress(OSError), socket.create_server(("", port)):
            found += [port] if port not in found else []
    return found


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
