"""Whoever nests the template of an object absurdly gets its status all the same: what is not ours is not read."""

import pytest
from domain.build import given, node, reservation, shape

from restow.contracts import events as e
from restow.kube.effects import Done
from restow.kube.group_moves import GroupMoveEffects
from restow.kube.reservation_objects import Created, CrRef, Reservations
from restow.reservation_cache.drift import differs

DEEP = b'{"a":' * 3_000 + b"1" + b"}" * 3_000


class Api:
    """Answers every GET with this, and keeps what is patched."""

    def __init__(self, body: bytes) -> None:
        self.body, self.patched = body, []

    async def get(self, path, query=()):
        return self.body

    async def create(self, path, manifest):
        return self.body

    async def patch(self, path, patch):
        self.patched.append(patch)
        return self.body


@pytest.mark.parametrize("where", ["spec", "status", "metadata"])
async def test_the_status_of_a_reservation_that_is_nested_absurdly_is_written(where):
    parts = {"metadata": b'{"uid":"u"}', "spec": b"{}", "status": b"{}"} | {where: b'{"uid":"u","x":' + DEEP + b"}"}
    api = Api(b"{" + b",".join(f'"{name}":'.encode() + body for name, body in parts.items()) + b"}")
    writer = Reservations(api)
    assert await writer.write_status(CrRef("volcano", "default", "r", "u"), {"phase": "Available"}) == Done()
    assert api.patched[0]["status"]["phase"] == "Available"
    assert await writer.create("volcano", {"metadata": {"name": "r"}}) == Created("u")


async def test_a_podgroup_that_is_nested_absurdly_is_told_of_its_moves():
    api = Api(b'{"metadata":{"uid":"u"},"spec":{"x":' + DEEP + b"}}")
    await GroupMoveEffects(api).write("default", "g", "u", [{"name": "m"}], lambda phase: [])
    assert api.patched[0]["spec"]["migrationInfo"] == [{"name": "m"}]


def test_a_status_that_somebody_has_nested_absurdly_is_not_what_it_should_be():
    state = given(node("n"), shape("s"), reservation("r", ("t", 1, "s")), e.ReservationAccepted("r", 1, 0, 0))
    assert differs(state, "r", b'{"x":' + DEEP + b"}")
