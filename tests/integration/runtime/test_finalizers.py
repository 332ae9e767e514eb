"""A finalizer of the user keeps a Reservation's object, never its capacity; Restow has none of its own. Real processes."""

import pytest

from restow.contracts import events as e

from . import test_kill as base
from .test_paused_ends import RESERVATIONS, _are, _machine, _reservation, _settled

MINE = "example.com/mine"


async def _patched(made, name, finalizers):
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"metadata": {"finalizers": finalizers}}
    async with made.session.patch(f"{made.kube.url}{RESERVATIONS}/{name}", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


async def _terminating(made):
    return any("deletionTimestamp" in r["metadata"] for r in await made.items(RESERVATIONS))


async def _forgotten(made):
    return all(not state["reservations"] and not state["holds"] for state in (await made.states()).values())


async def _runs(made, name):
    return name in await made.running()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["user", "collector"])
async def test_a_finalizer_keeps_the_object_but_not_the_capacity_and_nobody_deletes_it_again_and_again(tmp_path, by):
    (tmp_path / "gc.yaml").write_text("retention: 0\n")
    async with base.stack(tmp_path) as made:
        await _machine(made)
        counted = made.kube.cluster.faults.add("delay", verb="delete", resource="reservations", count=-1)
        whole = {"name": "t", "replicas": 1, "template": {"spec": base._pod_spec("10")}}
        body = _reservation("r", tasks=[whole], **({"ttl": "6s"} if by == "collector" else {}))
        body["metadata"]["finalizers"] = [MINE]
        await made.create(RESERVATIONS, body)
        await made.until("it is held", lambda: _are(made, "Available", "r"))
        if by == "user":
            async with made.session.delete(f"{made.kube.url}{RESERVATIONS}/r") as answer:
                assert answer.status == 200
        await made.until("it is terminating", lambda: _terminating(made))
        await made.create("/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": base._pod_spec("10"),
        })
        await made.until("its room is another's", lambda: _runs(made, "stranger"))
        await made.until("nothing more happens", lambda: _settled(made))
        (kept,) = await made.items(RESERVATIONS)
        assert kept["metadata"]["finalizers"] == [MINE]
        assert kept["status"]["phase"] == "Failed"
        assert counted.hits == 1
        await _patched(made, "r", [])
        await made.until("it is gone", lambda: _are(made, ""))
        await made.until("nobody knows it any more", lambda: _forgotten(made))
        assert counted.hits == 1
        events = await base._events(made)
        assert [x.reason for x in events if isinstance(x, e.HoldReleased)] == ["Deleted" if by == "user" else "Expired"]
        assert len([x for x in events if isinstance(x, e.Collected)]) == (by == "collector")
