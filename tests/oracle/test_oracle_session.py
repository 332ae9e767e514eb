"""The oracle's session is right: order, gangs, queues, scores, by hand; and it is a comparison that can fail."""

from domain.build import GIB, GPU, NOW, node, pod, shape
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from oracle.compare import differences
from oracle.schedule import Placement, Result, Rules, group_of, run
from oracle.scores import binpack, least_allocated
from oracle.strategies import FEATURES, OPTIONAL, worlds
from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import DeviceShare

GANG = {"scheduling.k8s.io/group-name": "g"}


def result(*facts: e.Event, **rules) -> Result:
    return run(World.of(facts), Rules(**rules))


def homes(found: Result) -> dict[str, str]:
    return {uid: placement.node for uid, placement in found.placed.items()}


def group(least: int, **more) -> e.PodGroupObserved:
    return e.PodGroupObserved("default", "g", "uid-g", NOW, min_member=least, **more)


def member(name: str, task: str = "", kind: str = "s", home: str | None = None) -> e.PodObserved:
    return pod(name, kind, home, annotations=GANG | {"volcano.sh/task-spec": task})


def test_priority_comes_first_and_then_who_came_first():
    facts = node("n", cpu=1000), shape("s"), shape("t", priority=5)
    assert homes(result(*facts, pod("b"), pod("a"))) == {"b": "n"}
    assert homes(result(*facts, pod("b"), pod("a", "t"))) == {"a": "n"}


def test_the_emptiest_or_the_fullest_node_and_then_the_first_name():
    facts = node("n2", cpu=4000), node("n1", cpu=4000), shape("s"), pod("p")
    assert homes(result(*facts)) == {"p": "n1"}
    assert homes(result(*facts, pod("q", node="n1"))) == {"p": "n2"}
    assert homes(result(*facts, pod("q", node="n2"), score=binpack)) == {"p": "n2"}


def test_scores_are_what_the_configuration_says():
    facts = node("n", cpu=4000, memory=4 * GIB, gpus=1), shape("s", cpu=1000, memory=2 * GIB, gpu=(1, 500)), pod("p")
    world = World.of(facts)
    assert least_allocated(world, world.pods["p"], world.nodes["n"]) == (7500 + 5000 + 2 * 5000) // 4
    assert binpack(world, world.pods["p"], world.nodes["n"]) == (2500 + 5000 + 2 * 5000) // 4
    assert GPU in world.nodes["n"].allocatable


def test_devices_are_taken_one_pod_after_another():
    facts = node("n", gpus=2), shape("s", gpu=(1, 600)), pod("p1"), pod("p2"), pod("p3")
    found = result(*facts)
    assert found.placed == {"p1": Placement("n", (DeviceShare(0, 600),)), "p2": Placement("n", (DeviceShare(1, 600),))}
    assert found.unfit == {"p3": {"Insufficient gpu": 1}}


def test_a_gang_is_placed_as_a_whole_or_not_at_all():
    facts = node("n", cpu=2000), shape("s"), group(3), *(member(f"p{i}") for i in range(3))
    found = result(*facts, pod("single"))
    assert homes(found) == {"single": "n"}
    assert found.unfit == {"p2": {"Insufficient cpu": 1}}
    assert found.withheld == {"p0": "group", "p1": "group"}
    assert homes(result(*facts, node("m", cpu=1000))).keys() == {"p0", "p1", "p2"}


def test_a_gang_that_is_ready_goes_on_one_by_one():
    facts = node("n", cpu=3000), shape("s"), group(2), *(member(f"p{i}") for i in range(4))
    found = result(*facts)
    assert list(found.placed) == ["p0", "p1", "p2"]
    assert found.unfit == {"p3": {"Insufficient cpu": 1}}


def test_every_task_of_a_gang_has_its_own_least_and_others_take_nothing_of_its_capacity():
    facts = shape("s"), group(2, min_task_member={"x": 1, "y": 1}), member("p0", "x"), member("p1", "x"), member("p2", "y")
    assert homes(result(node("n", cpu=1000), *facts)) == {}
    assert homes(result(node("n", cpu=2000), *facts)).keys() == {"p0", "p2"}
    assert homes(result(node("n", cpu=3000), *facts)).keys() == {"p0", "p1", "p2"}


def test_members_that_run_count_and_members_that_are_missing_are_waited_for():
    facts = node("n"), shape("s"), group(2), member("p1")
    assert result(*facts).withheld == {"p1": "group"}
    assert homes(result(*facts, member("p0", home="n"))) == {"p1": "n"}
    assert result(node("n"), shape("s"), member("p1")).withheld == {"p1": "group"}


def test_a_queue_ends_at_its_capability():
    queue = e.QueueObserved("default", "q", NOW, capability={"cpu": 2000})
    found = result(queue, node("n"), shape("s"), pod("p0", node="n"), pod("p1"), pod("p2"))
    assert homes(found) == {"p1": "n"}
    assert found.withheld == {"p2": "queue"}


def test_best_effort_pods_come_after_all_others():
    facts = node("n", cpu=1000, pods=1), shape("s"), shape("none", cpu=0, memory=0, priority=9), pod("p1", "none"), pod("p2")
    assert homes(result(*facts)) == {"p2": "n"}
    assert homes(result(*facts, backfill=False)) == {"p1": "n"}


def test_pods_of_others_gated_and_terminating_pods_are_left_alone():
    facts = node("n"), shape("s"), shape("o", scheduler="other"), pod("p1", "o"), pod("p2", gated=True), pod("p3", deleting=NOW)
    assert result(*facts) == Result()


# -- the comparison --------------------------------------------------------------------------------------------------


def answer(found: Result, world: World) -> list[e.Event]:
    """The events of a session that decides as the oracle does."""
    placed = [e.PodPlaced(uid, p.node, p.devices, p.volumes) for uid, p in found.placed.items()]
    unfit = [e.Unfit(world.pods[uid].shape, len(world.nodes), counts, (uid,)) for uid, counts in found.unfit.items()]
    return [*placed, *unfit, e.Withheld("Waits", "", tuple(set(found.withheld) - set(found.unfit)))]


@settings(max_examples=examples(100))
@for_all(worlds(FEATURES + OPTIONAL), st.sampled_from([least_allocated, binpack]))
def test_who_decides_as_the_oracle_does_differs_in_nothing_and_who_does_not_is_told(facts, score):
    rules = Rules(score)
    world = World.of(facts)
    found = run(world, rules)
    events = answer(found, world)
    assert differences(facts, events, rules) == []
    for i, event in enumerate(events[:-1]):
        assert differences(facts, events[:i] + events[i + 1 :], rules), f"nobody misses {event}"


@settings(max_examples=examples(100))
@for_all(worlds(FEATURES + OPTIONAL))
def test_nothing_is_over_allocated_and_no_gang_is_half_placed(facts):
    before, world = World.of(facts), World.of(facts)
    found = run(world, Rules())
    for uid, placement in found.placed.items():
        node_fact = world.nodes[placement.node]
        for resource, amount in world.shape(world.pods[uid]).requests.items():
            assert not amount or world.used(node_fact.name, resource) <= node_fact.allocatable.get(resource, 0)
        assert min(world.device_free(node_fact.name), default=0) >= 0
    for key, fact in world.groups.items():
        placed = [uid for uid in found.placed if group_of(world.pods[uid]) == key]
        there = [uid for uid in before.where if group_of(world.pods[uid]) == key]
        assert not placed or len(placed) + len(there) >= fact.min_member
