"""The services that accept Reservations and end them, paused (SIGSTOP) while another instance takes over: whoever wakes up exits,
has decided nothing more, and what it had sent before does no harm. Real processes, as in `test_paused`."""

import asyncio

import pytest

from restow.contracts import events as e

from . import test_kill as base
from .test_paused import FAMILY, paused, second, wake, without_leases  # noqa: F401

RESERVATIONS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"


def _reservation(name, **spec):
    template = {"spec": base._pod_spec("100m")}
    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    spec = {"owners": owners, "tasks": [{"name": "t", "replicas": 1, "template": template}], **spec}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}


async def _machine(made):
    amounts = {"cpu": "10", "memory": "64Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    await made.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": status})


async def _are(made, phase, *names):
    """Exactly these Reservations are there, all in this phase."""
    found = {r["metadata"]["name"]: r.get("status", {}).get("phase") for r in await made.items(RESERVATIONS)}
    return found == dict.fromkeys(names, phase)


async def _objects(made):
    """What the API says of them: status and all, and that nobody has written since."""
    return {r["metadata"]["uid"]: r for r in await made.items(RESERVATIONS)}


async def _settled(made):
    """All have folded the whole log: nothing more follows from what has happened."""
    return len({state["seq"] for state in (await made.states()).values()}) == 1


def nothing_by_the_old(log, name):
    """Of commits: two leaders, and none of the first after the second has come."""
    leaders = [(seq, source) for seq, _, source, events in log for x in events if isinstance(x, e.LED[FAMILY[name]])]
    (_, old), (since, new) = leaders
    assert old != new
    assert not [seq for seq, _, source, _ in log if source == old and seq > since]


@pytest.mark.slow
async def test_a_paused_reservation_cache_that_wakes_up_exits_and_has_accepted_and_written_nothing(tmp_path):
    name = "reservation_cache"
    async with base.stack(tmp_path) as made:
        await _machine(made)
        await made.create(RESERVATIONS, _reservation("before"))
        await made.until("it is held", lambda: _are(made, "Available", "before"))
        async with paused(made, name) as first:
            await made.create(RESERVATIONS, _reservation("meanwhile"))
            await second(made, name)
            await made.create(RESERVATIONS, _reservation("after"))
            await made.until("all are held", lambda: _are(made, "Available", "before", "meanwhile", "after"))
            await made.until("nothing more happens", lambda: _settled(made))
            objects, log = await _objects(made), await base._commits(made)
            await wake(first)
        assert await _objects(made) == objects
        again = await base._commits(made)
        assert len(again) == len(log)
        nothing_by_the_old(again, name)
        accepted = [x.reservation for *_, events in again for x in events if isinstance(x, e.ReservationAccepted)]
        assert sorted(accepted) == sorted(objects)


@pytest.mark.slow
async def test_a_paused_collector_that_wakes_up_exits_and_has_ended_and_deleted_nothing(tmp_path):
    """While it stands still one Reservation expires and another is past its retention; the next leader does what is due.
    Somebody makes one of the same name: the woken one, whose timers are all overdue, leaves it alone."""
    name = "garbage_collector"
    (tmp_path / "gc.yaml").write_text("retention: 0\n")
    async with base.stack(tmp_path) as made:
        await _machine(made)
        await made.create(RESERVATIONS, _reservation("short", ttl="6s"))
        await made.create(RESERVATIONS, _reservation("long"))
        await made.until("both are held", lambda: _are(made, "Available", "short", "long"))
        async with paused(made, name) as first:
            await asyncio.sleep(6.5)
            assert await _are(made, "Available", "short", "long")
            await second(made, name)
            await made.until("the short one is deleted", lambda: _are(made, "Available", "long"))
            await made.create(RESERVATIONS, _reservation("short"))
            await made.until("both are held", lambda: _are(made, "Available", "short", "long"))
            await made.until("nothing more happens", lambda: _settled(made))
            objects, log = await _objects(made), await base._commits(made)
            await wake(first)
        assert await _objects(made) == objects
        again = await base._commits(made)
        assert len(again) == len(log)
        nothing_by_the_old(again, name)
        ends = [x for *_, events in again for x in events if isinstance(x, e.Expired | e.Collected | e.HoldReleased)]
        assert sorted(type(x).__name__ for x in ends) == ["Collected", "Expired", "HoldReleased"]
        assert len({x.reservation for x in ends}) == 1


@pytest.mark.slow
async def test_a_deletion_that_a_paused_collector_had_sent_spares_the_next_object_of_the_name(tmp_path):
    """The request is on the way when the next leader deletes the object and a user makes it anew; then it arrives."""
    name = "garbage_collector"
    (tmp_path / "gc.yaml").write_text("retention: 0\n")
    async with base.stack(tmp_path) as made:
        faults = made.kube.cluster.faults
        late = faults.add("delay", verb="delete", resource="reservations", seconds=600.0, count=1)
        await _machine(made)
        await made.create(RESERVATIONS, _reservation("r", ttl="1s"))
        await made.until("its deletion is on the way", lambda: _reached(lambda: late.hits))
        async with paused(made, name) as first:
            await second(made, name)
            await made.until("it is deleted by the next", lambda: _are(made, ""))
            await made.create(RESERVATIONS, _reservation("r"))
            await made.until("the next one is held", lambda: _are(made, "Available", "r"))
            await made.until("nothing more happens", lambda: _settled(made))
            objects = await _objects(made)
            faults.clear()
            await made.until("the late deletion was answered", lambda: _reached(lambda: late.done))
            await wake(first)
        assert await _objects(made) == objects
        nothing_by_the_old(await base._commits(made), name)


async def _reached(count):
    return count() >= 1
