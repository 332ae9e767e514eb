"""Seed 000's own reservation, from its YAML to the bind: what each of its sentences about holds and hand-over promises."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from domain.build import GIB, NOW, given, node, pod, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import config, effects, session
from restow.domain import reservation as reservations
from restow.domain.records import SlotPhase
from restow.kube import decode as d
from restow.kube.describe import pod_fact
from restow.kube.groups import pod_group_fact
from restow.kube.reservations import reservation_fact

SEED = yaml.safe_load((Path(__file__).parents[1] / "e2e" / "data" / "complex-reservation.yaml").read_text())
MEMBERS = ("nginx-0", "nginx-1", "busybox-0")
OWNED = {"volcano.sh/reservation-job": "job-multi"}
CREATED = "2023-11-14T22:13:20Z"
"""NOW."""


def read(collection, kind_of_fact, body: dict[str, Any], **meta: Any):
    metadata = {"namespace": "default", "resourceVersion": "1", "creationTimestamp": CREATED, "generation": 1} | body["metadata"] | meta
    return kind_of_fact(collection.object(json.dumps(body | {"metadata": metadata}).encode()))


def the_reservation() -> list[e.Event]:
    """As the watcher logs it: its shapes, then the object."""
    shapes, fact = read(d.VOLCANO_RESERVATIONS, lambda one: reservation_fact(one, "volcano"), SEED, uid="r")
    return [*[e.ShapeDeclared(id, shape) for id, shape in shapes.items()], fact]


def the_group(need: int = 3, **annotations: str) -> list[e.Event]:
    body = {"metadata": {"name": "job-multi", "annotations": annotations}, "spec": {"minMember": need}, "status": {"phase": "Inqueue"}}
    return [read(d.POD_GROUPS, pod_group_fact, body, uid="g")]


def the_pods(*names: str, group: str = "job-multi") -> list[e.Event]:
    """The job's pods, as Volcano's job controller makes them of the same templates."""
    events: list[e.Event] = []
    for name in names or MEMBERS:
        task = name.partition("-")[0]
        template = next(t["template"] for t in SEED["spec"]["tasks"] if t["name"] == task)
        annotations = {"scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": task} if group else {}
        body = {
            "metadata": {"name": f"job-multi-{name}", "labels": OWNED, "annotations": annotations},
            "spec": {"schedulerName": "volcano", **template["spec"]},
        }
        shape, id, fact = read(d.PODS, pod_fact, body, uid=name)
        events += [e.ShapeDeclared(id, shape), fact]
    return events


def cluster(*facts: Any):
    """Volcano's name for our scheduler, and nodes."""
    conf = config.SessionConfig(scheduler_names=("restow", "volcano"))
    text = config.text_of(conf)
    return given(e.CONFIGURED["session"](text, config.digest_of(text)), *facts)


def review(state):
    return run(state, reservations.decider, c.Review(NOW))


def schedule(state):
    return run(state, session.decider, c.Schedule(NOW))


def reserved(*nodes: e.Event):
    """The example is held."""
    state = cluster(*(nodes or (node("a", cpu=2_000, memory=4 * GIB),)), *the_reservation())
    review(state)
    schedule(state)
    assert state.phases["r"].phase == "Available"
    return state


def held_on(state) -> dict[str, str]:
    return {name: slot.node for name, slot in sorted(state.slots["r"].items()) if slot.phase is SlotPhase.HELD}


def binds(state) -> dict[str, str]:
    """What the effector is to send to the API."""
    return {effect.pod: effect.node for effect in session.decider.pending(state, None) if isinstance(effect, effects.Bind)}


def free(state, name: str = "a") -> dict[str, int]:
    row, columns = state.table.rows[name], state.table.columns
    return {resource: int(state.table.free[row, columns[resource]]) for resource in ("cpu", "memory", "pods")}


# -- holding ---------------------------------------------------------------------------------------------------------


def test_the_reservation_is_scheduled_like_a_job_and_becomes_available_with_all_its_tasks():
    """"A Reservation is similar to a vcjob"; "the scheduler performs scheduling for each fake pod"."""
    state = reserved()
    assert held_on(state) == {"busybox-0": "a", "nginx-0": "a", "nginx-1": "a"}
    assert (state.tallies["r"].held, state.reservations["r"].min_available) == (3, 3)


def test_it_skips_the_bind_and_creates_no_pod():
    """"Modify the bind logic to only record the reservation info … without performing an actual bind"."""
    state = reserved()
    assert binds(state) == {}
    assert not state.pods


def test_what_is_held_is_deducted_from_its_node_for_everybody_else():
    """"It deducts the portion of resources reserved on the node"."""
    state = reserved()
    assert free(state) == {"cpu": 750, "memory": 4 * GIB - (1_256 << 20), "pods": 107}
    then(state, shape("s", cpu=751), pod("stranger"))
    schedule(state)
    assert "stranger" not in state.placed
    assert state.waiting[state.parked["stranger"][0]].reasons == {"Insufficient cpu": 1}


def test_below_min_available_nothing_is_held():
    state = cluster(node("a", cpu=1_000), *the_reservation())
    review(state)
    schedule(state)
    assert state.phases["r"].phase == "Pending"
    assert free(state)["cpu"] == 1_000


def test_it_waits_in_its_turn_like_any_job_and_takes_what_becomes_free():
    state = cluster(node("a", cpu=1_000), *the_reservation())
    review(state)
    schedule(state)
    then(state, node("b", cpu=1_000))
    schedule(state)
    assert state.phases["r"].phase == "Available"
    assert sorted(set(held_on(state).values())) == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("b", "a"), "b"), (("missing", "a"), "a"), (("small", "b"), "b"), (("cordoned", "a"), "a"), (("small", "missing"), "c"), ((), "c")],
)
def test_reservation_node_names_are_tried_in_order_and_are_soft(names, expected):
    """`bestNodeFn`: "modifies the NodeOrder" (RULES 000-3). `c` has the most capacity, so it is what scores choose."""
    small, cordoned = node("small", cpu=100), node("cordoned", unschedulable=True)
    state = given(node("a"), node("b"), node("c", cpu=64_000, memory=128 * GIB), small, cordoned, shape("s"))
    then(state, reservation("r", ("t", 1, "s"), preferred=names))
    review(state)
    schedule(state)
    assert held_on(state) == {"t-0": expected}


def test_a_preferred_node_takes_as_many_places_as_it_has_capacity_for_and_the_next_one_the_rest():
    state = given(node("a", cpu=2_000), node("b", cpu=8_000), node("c", cpu=64_000, memory=128 * GIB), shape("s"))
    then(state, reservation("r", ("t", 3, "s"), preferred=("a", "b")))
    review(state)
    schedule(state)
    assert held_on(state) == {"t-0": "a", "t-1": "a", "t-2": "b"}


# -- hand-over -------------------------------------------------------------------------------------------------------


def test_the_job_takes_its_places_and_is_bound_to_the_nodes_that_were_held():
    """"The pod is directly bound to the node reserved … the Reservation is updated accordingly"."""
    state = reserved(node("a", cpu=1_000), node("b", cpu=1_000))
    nodes = held_on(state)
    then(state, *the_group(), the_pods())
    handed = schedule(state)
    assert [type(event) for event in handed] == [e.HandedOver] * 3
    assert {event.pod: event.slot for event in handed if isinstance(event, e.HandedOver)} == {name: name for name in MEMBERS}
    assert binds(state) == {name: nodes[name] for name in MEMBERS}
    assert state.phases["r"].phase == "Succeeded"


def test_release_and_allocate_are_one_step_so_that_nobody_gets_in_between():
    """RULES G-5: the capacity of a hold is never free: what waits for it finds nothing before, in and after the hand-over."""
    state = reserved(node("a", cpu=1_250))
    then(state, shape("s", cpu=250), pod("stranger", created=NOW - 1), *the_group(), the_pods())
    before = free(state)
    schedule(state)
    assert free(state) == before
    assert before["cpu"] == 0
    assert sorted(state.placed) == sorted(MEMBERS)


def test_a_hand_over_that_facts_have_overtaken_changes_nothing_at_all():
    state = reserved()
    then(state, *the_group(), the_pods())
    decided = session.decider.decide(state, c.Schedule(NOW))
    then(state, e.PodGone("nginx-0"))
    before = free(state)["cpu"]
    then(state, decided)
    assert state.slots["r"]["nginx-0"].phase is SlotPhase.HELD
    assert (free(state)["cpu"], sorted(state.placed)) == (before, ["busybox-0", "nginx-1"])


def test_filter_and_score_are_skipped():
    """"Skipping the Filter and Score phases": the emptiest node would be another one, and a rule that came later forbids it."""
    state = reserved()
    then(state, node("big", cpu=64_000, memory=128 * GIB), *the_group(), the_pods())
    schedule(state)
    assert set(binds(state).values()) == {"a"}


def test_the_gang_takes_its_holds_together_or_not_at_all():
    """`stmt.Commit` only where the job is ready."""
    state = reserved()
    then(state, *the_group(), the_pods("nginx-0", "busybox-0"))
    assert [event for event in schedule(state) if isinstance(event, e.HandedOver)] == []
    assert len(held_on(state)) == 3
    then(state, the_pods("nginx-1"))
    assert [type(event) for event in schedule(state)] == [e.HandedOver] * 3


def test_a_job_that_names_the_reservation_takes_it_just_so():
    state = reserved()
    then(state, *the_group(**{"scheduling.volcano.sh/target-reservation": "complex-reservation"}), the_pods())
    assert [type(event) for event in schedule(state)] == [e.HandedOver] * 3


def test_without_a_match_the_job_follows_the_normal_logic():
    """"If no matching Reservation is found: the normal scheduling logic": here the task counts differ."""
    state = reserved(node("a", cpu=8_000))
    then(state, *the_group(need=2), the_pods("nginx-0", "nginx-1"))
    assert [type(event) for event in schedule(state)] == [e.PodPlaced] * 2
    assert len(held_on(state)) == 3


def test_pods_on_their_own_take_the_places_of_their_task():
    state = reserved()
    then(state, the_pods("nginx-1", "busybox-0", group=""))
    assert {event.pod: event.slot for event in schedule(state) if isinstance(event, e.HandedOver)} == {
        "nginx-1": "nginx-0", "busybox-0": "busybox-0",
    }  # fmt: skip


# -- the end ---------------------------------------------------------------------------------------------------------


def test_an_expired_one_gives_back_what_is_left_and_takes_nothing_from_pods():
    """"Resources that have been allocated to the associated pods will not be reclaimed"."""
    state = reserved()
    then(state, the_pods("busybox-0", group=""))
    schedule(state)
    assert state.reservations["r"].expires == NOW + 600_000
    then(state, e.Expired("r"))
    schedule(state)
    assert (state.phases["r"].phase, state.phases["r"].reason) == ("Failed", "Expired")
    assert free(state)["cpu"] == 1_750
    assert list(state.placed) == ["busybox-0"]


def test_a_deleted_one_leaves_no_trace_on_its_node():
    state = reserved()
    then(state, e.ReservationGone("r"))
    schedule(state)
    assert free(state)["cpu"] == 2_000
    assert "r" not in state.reservations
