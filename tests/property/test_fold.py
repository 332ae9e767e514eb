"""The fold: its vectorised form equals its single-event form, a draft leaves no trace, a snapshot is the state."""

from typing import Any

from domain.build import GIB, NOW, configured, given, node, pod, replica_of, reservation, shape, then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.fold_stories import Story

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.dynamic_resources import AllocatedDevice, PublishedDevice
from restow.contracts.ids import Millis
from restow.contracts.values import (
    ContainerTrouble,
    Cpu,
    DeviceShare,
    Expression,
    Gpu,
    LabelSelector,
    NodeTerm,
    NumaZone,
)
from restow.domain import config, fold, session
from restow.domain import gc as collector
from restow.domain import reservation as reservations
from restow.domain.decider import decide_all
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState, Touched
from restow.replay.diff import diff

NODES = ("n0", "n1", "n2")
SHAPES = {"small": None, "half": (1, 500), "third": (1, 330), "two": (2, 1000)}
PODS = tuple(f"p{i}" for i in range(12))
HOLDS = ("r0", "r1")

maybe_node = st.sampled_from([None, *NODES])
devices = st.sampled_from([(), (DeviceShare(0, 500),), (DeviceShare(1, 330),), (DeviceShare(0, 1000), DeviceShare(1, 1000))])


@st.composite
def objects(draw) -> Any:
    """Facts about what pods refer to: seen, changed, another one under the same name, gone."""
    name, uid, where = draw(st.sampled_from(["a", "b"])), draw(st.sampled_from(["u1", "u2"])), draw(st.sampled_from(NODES))
    amounts = draw(st.sampled_from([{}, {"cpu": 2_000}, {"cpu": 0, "restow.dev/gpu-milli": 500}]))
    term = NodeTerm((Expression("zone", "In", ("z",)),))
    phase, deleting = draw(st.sampled_from(["", "Pending", "Inqueue"])), draw(st.sampled_from([0, 0, NOW]))
    return draw(
        st.sampled_from(
            [
                e.PodGroupObserved("default", name, uid, NOW, "a", draw(st.integers(0, 3)), {"t": 1}, amounts, phase=phase, deleting=deleting),
                e.PodGroupObserved("default", name, uid, NOW, invalid="spec.minMember: -1; allowed: 0 or more"),
                e.PodGroupGone("default", name),
                e.QueueObserved(name, uid, NOW, draw(st.integers(1, 3)), capability=amounts, state=draw(st.sampled_from(["Open", "Closed"]))),
                e.QueueObserved(name, uid, NOW, guarantee=amounts, deserved=amounts, parent=draw(st.sampled_from(["", "a", "root"]))),
                e.QueueGone(name),
                e.PriorityClassObserved(name, draw(st.integers(-2, 2)), draw(st.booleans())),
                e.PriorityClassGone(name),
                e.NamespaceObserved(draw(st.sampled_from(["default", name])), draw(st.sampled_from([{}, {"team": "x"}]))),
                e.NamespaceGone("default"),
                e.ClaimObserved("default", name, uid, volume=draw(st.sampled_from(["", "v"])), bound=draw(st.booleans()), deleting=deleting),
                e.ClaimGone("default", name),
                e.VolumeObserved(name, uid, capacity=GIB, claim="default/a", affinity=draw(st.sampled_from([None, (), (term,)]))),
                e.VolumeGone(name),
                e.StorageClassObserved(name, "p", draw(st.sampled_from(["Immediate", "WaitForFirstConsumer"])), (term,)),
                e.StorageClassGone(name),
                e.CsiNodeObserved(where, draw(st.sampled_from([{}, {"driver": 1}]))),
                e.CsiNodeGone(where),
                e.NumaObserved(where, "single-numa-node", "pod", (NumaZone("node-0", amounts),)),
                e.NumaObserved(where, cpus=tuple(Cpu(i, i % 2, 0, 0) for i in range(4))),
                e.NumaGone(where),
                e.DeviceObserved(where, tuple(Gpu(i, healthy) for i, healthy in draw(st.dictionaries(st.integers(0, 4), st.booleans())).items())),
                e.DeviceGone(where),
                e.ResourceSliceObserved(name, "d", where, draw(st.integers(1, 2)), node=where, devices=(PublishedDevice("g"), PublishedDevice("h"))),
                e.ResourceSliceGone(name),
                e.ResourceClaimObserved("default", name, uid, allocated=draw(st.sampled_from([(), (AllocatedDevice("r", "d", where, "g"),)])), deleting=deleting),
                e.ResourceClaimGone("default", name),
                e.DeviceClassObserved(name, ("true",)),
                e.DeviceClassGone(name),
                e.BudgetObserved("default", name, uid, LabelSelector(), draw(st.integers(0, 2))),
                e.BudgetGone("default", name),
                e.PodTroubled(draw(st.sampled_from(PODS)), draw(st.sampled_from([(), (ContainerTrouble("a", restarts=1),)]))),
                pod(draw(st.sampled_from(PODS)), "small", annotations={"scheduling.k8s.io/group-name": name}, claims=(name,)),
            ]
        )
    )


def facts() -> Any:
    """Any event, sensible or not: the fold is total."""
    return st.one_of(core_facts(), objects())


@st.composite
def core_facts(draw) -> Any:
    """What moves the table, and the families' own events."""
    name, where = draw(st.sampled_from(PODS)), draw(maybe_node)
    phase = draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]))
    deleting = draw(st.sampled_from([0, 0, 0, NOW]))
    hold, slot = draw(st.sampled_from(HOLDS)), draw(st.sampled_from(["t-0", "t-1"]))
    return draw(
        st.sampled_from(
            [
                pod(name, draw(st.sampled_from(list(SHAPES))), owner=replica_of("web"), labels={"app": "owner"}),
                pod(name, draw(st.sampled_from(list(SHAPES))), where or "n0", deleting=deleting, phase=phase),
                e.PodChanged(name, where, phase, phase == "Running", deleting, devices=draw(devices)),
                e.PodChanged(name, where, phase, deleting=deleting, unready=NOW, waiting=draw(st.sampled_from(["", "PodInitializing"]))),
                e.PodGone(name),
                node(draw(st.sampled_from(NODES)), gpus=draw(st.integers(0, 3)), uid=draw(st.sampled_from(["u1", "u2"]))),
                e.NodeGone(draw(st.sampled_from(NODES))),
                e.PodPlaced(name, where or "n1", draw(devices)),
                e.PodReleased(name, "test"),
                e.Unfit(draw(st.sampled_from(list(SHAPES))), 3, {"Insufficient cpu": 3}, (name,)),
                reservation(hold, ("t", 2, "half"), generation=draw(st.integers(1, 2)), deleting=deleting),
                e.ReservationGone(hold),
                e.ReservationAccepted(hold, draw(st.integers(1, 2)), 1, NOW + 5),
                e.ReservationRefused(hold, 1, "InvalidSpec", "no"),
                e.HoldPlaced(hold, slot, where or "n2", draw(devices)),
                e.HandedOver(hold, slot, name, where or "n2", draw(devices)),
                e.HoldReleased(hold, slot, "Deleted"),
                e.HoldUnfit(hold, slot, 3, {"Insufficient gpu": 3}),
                e.Expired(hold),
                e.Collected(hold, "Retention"),
                configured("session", config.SessionConfig(scheduler_names=("restow", "volcano"))),
                configured("session", config.SessionConfig(scheduler_names=("somebody",))),
            ]
        )
    )


def begin() -> ClusterState:
    """Nodes, a pod of every shape waiting, two Reservations asked for: most random events then mean something."""
    declared = [shape(name, cpu=500, gpu=gpu) for name, gpu in SHAPES.items()]
    waiting = [pod(p, list(SHAPES)[i % 4], labels={"app": "owner"}) for i, p in enumerate(PODS)]
    asked = [reservation(r, ("t", 2, "half"), match_policy="Owner") for r in HOLDS]
    accepted = [e.ReservationAccepted(r, 1, 1, NOW + 5) for r in HOLDS]
    return given([node(n, cpu=4_000, memory=8 * GIB, gpus=2) for n in NODES], declared, waiting, asked, accepted)


def recount(state: ClusterState) -> list[str]:
    """What the table must say, added up anew from records: an oracle for the incremental table."""
    used: dict[tuple[str, str], int] = {}
    taken: dict[str, int] = {}
    said = state.device_objects
    there = {n: [g.index for g in said[n].gpus if g.healthy] if n in said else range(fact.devices) for n, fact in state.nodes.items()}
    free_devices: dict[tuple[str, int], int] = {(n, d): 1000 for n, devices in there.items() for d in devices}
    charged = [(c.node, state.shapes[c.shape].requests, c.devices) for c in state.charges.values()]
    for uid, slots in state.slots.items():
        held = [s for name, s in slots.items() if (uid, name) in state.held_on.get(s.node, ())]
        charged += [(s.node, {state.table.resources[c]: a for c, a in s.capacity.held}, s.capacity.held_devices) for s in held]
    for where, amounts, shares in charged:
        for resource, amount in amounts.items():
            used[where, resource] = used.get((where, resource), 0) + amount
        for share in shares:
            if (where, share.index) in free_devices:  # a device that the node does not have is nobody's
                free_devices[where, share.index] -= share.milli
    # Who says not which devices he has takes those that are free otherwise, the first ones.
    for charge in state.charges.values():
        request = state.shapes[charge.shape].devices
        if request is not None and not charge.devices:
            taken[charge.node] = taken.get(charge.node, 0) + request.count
    for where, count in taken.items():
        for index in [d for d in there[where] if free_devices[where, d] == 1000][:count]:
            free_devices[where, index] = 0
    wrong = []
    for name, fact in state.nodes.items():
        row = state.table.rows[name]
        for resource, column in state.table.columns.items():
            expected = fact.allocatable.get(resource, 0) - used.get((name, resource), 0)
            if state.table.free[row, column] != expected:
                wrong.append(f"{name} {resource}: {state.table.free[row, column]} free, expected {expected}")
        for index in there[name]:
            if state.table.device_free[row, index] != free_devices[name, index]:
                wrong.append(f"{name} device {index}: {state.table.device_free[row, index]}, expected {free_devices[name, index]}")
    return wrong


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(facts(), min_size=5, max_size=40))
def test_the_table_is_what_its_records_add_up_to(events):
    state = begin()
    for event in events:
        then(state, event)
        assert not recount(state)


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(facts(), min_size=5, max_size=40))
def test_a_snapshot_is_the_state(events):
    state = then(begin(), *events)
    again = load(dump(state))
    assert diff(state, again) == []
    follow = [node("n0"), pod("p0", "small"), e.PodGone("p1"), e.Expired("r0"), e.PodGroupGone("default", "a"), e.QueueGone("a")]
    assert diff(then(state, *follow), then(again, *follow)) == []


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(facts(), min_size=5, max_size=40))
def test_deciding_leaves_the_state_as_it_was(events):
    state = then(begin(), *events)
    before = load(dump(state))
    for decider, command in (
        (session.decider, c.Schedule(NOW)),
        (reservations.decider, c.Review(NOW)),
        (collector.decider, c.Collect(NOW + 10)),
    ):
        decide_all(state, decider, [command, command])
        assert diff(state, before) == []
        assert not recount(state)


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(facts(), min_size=8, max_size=25), st.lists(facts(), min_size=20, max_size=60), st.data())
def test_the_vectorised_fold_equals_the_single_event_fold(first, second, data):
    placements = [
        e.PodPlaced(p, data.draw(st.sampled_from(NODES)), data.draw(devices)) for p in data.draw(st.permutations(PODS * 2))
    ]
    at = data.draw(st.integers(0, len(second)))
    events = [*second[:at], *placements, *second[at:]]
    together, singly = then(begin(), *first), then(begin(), *first)
    together.seq = singly.seq = together.seq + 1
    fold.apply(together, events)
    for event in events:
        fold.evolve_one(singly, event)
    assert diff(together, singly) == []


@settings(max_examples=examples(50), deadline=None)
@for_all(st.integers(0, 2**32))
def test_runs_that_are_folded_together_are_the_same_as_one_by_one(seed):
    together, singly = ClusterState(), ClusterState()
    for events in Story(seed, singly).chapters(8):
        for state in (together, singly):
            state.time, state.touched = Millis(state.time + 1_000), Touched()
        fold.apply(together, events)
        for event in events:
            fold.evolve_one(singly, event)
        assert dump(together) == dump(singly), diff(together, singly)
        for noted in Touched.__slots__:
            assert getattr(together.touched, noted).keys() == getattr(singly.touched, noted).keys(), noted
        for followed in ("moved", "parkings", "reviewed", "changed_rows"):
            assert getattr(together, followed).since(0) == getattr(singly, followed).since(0), followed
        assert set(together.table.dirty.since(0)) >= set(singly.table.dirty.since(0))
    assert diff(together, singly) == []


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(facts(), min_size=5, max_size=40))
def test_the_session_never_overcommits_a_node(events):
    state = then(begin(), *events)
    before = {name: state.table.free[row].copy() for name, row in state.table.rows.items()}
    for _ in range(3):
        for decision in decide_all(state, reservations.decider, [c.Review(NOW)]):
            then(state, decision.events)
        for decision in decide_all(state, session.decider, [c.Schedule(NOW)]):
            then(state, decision.events)
    for name, row in state.table.rows.items():
        free = state.table.free[row]
        assert ((free >= 0) | (free >= before[name])).all(), (name, list(state.table.columns), free, before[name])
