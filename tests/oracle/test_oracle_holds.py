"""Which hold a pod gets, of many that it may use: as the brute-force oracle says (RULES 004-3, and the issue's order)."""

import json
from collections import Counter

from domain.build import GIB, NOW, given, node, owner, pod, reservation, run, shape
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oracle.holds import AFFINITY, ORDER, Hold, Holds
from oracle.world import GPU, World
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import encode_event
from restow.contracts.values import DeviceShare, HostPort, Taint
from restow.domain import session

SIZES = (500, 1_000, 1_500, 2_000, 3_000, 4_000)
GPUS = (None, None, None, (1, 500), (1, 600), (1, 1_000), (2, 1_000))
WISHES = (
    *[{}] * 12, {AFFINITY: "{}"}, {AFFINITY: '{"name": "h1"}'}, {AFFINITY: '{"reservationSelector": {"tier": "x"}}'},
    {AFFINITY: '{"tolerations": [{"key": "t", "operator": "Exists"}]}'},
    {AFFINITY: '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}]}}'},
    {"scheduling.koordinator.sh/exact-match-reservation": '{"resourceNames": ["cpu"]}'},
)  # fmt: skip


def sized(cpu: int, memory: int, gpu: tuple[int, int] | None, port: bool) -> e.ShapeDeclared:
    name = f"{cpu}-{memory}-{gpu}-{port}"
    return shape(name, cpu, memory * GIB, gpu, host_ports=(HostPort(80),) if port else ())


@st.composite
def shapes(draw, gpus=GPUS, memory=(0,)) -> e.ShapeDeclared:
    return sized(draw(st.sampled_from(SIZES)), draw(st.sampled_from(memory)), draw(st.sampled_from(gpus)), draw(st.integers(0, 7)) == 7)


@st.composite
def reservations(draw, at: int, kind: str) -> e.ReservationObserved:
    task = ("reservation", 1, kind)
    spec = {
        "match_policy": "Owner",
        "allocate_once": draw(st.booleans()),
        "allocate_policy": draw(st.sampled_from(["Aligned", "Aligned", "Restricted", "Covering"])),
        "restricted": draw(st.sampled_from([(), (), ("cpu",), (GPU,)])),
        "unschedulable": draw(st.integers(0, 19)) == 19,
        "taints": draw(st.sampled_from([(), (), (), (), (), (), (Taint("t", "NoSchedule"),), (Taint("u", "PreferNoSchedule"),)])),
        "owners": (owner(app=draw(st.sampled_from([*["owner"] * 7, "other"]))),),
        "namespace": draw(st.sampled_from(["", "", "default", "default", "default", "elsewhere"])),
        "created": NOW + draw(st.integers(0, 2)),
    }
    labels = draw(st.sampled_from([{}, {}, {ORDER: "1"}, {ORDER: "2"}, {ORDER: "0"}, {"tier": "x"}, {"zone": "z1"}]))
    return replace(reservation(f"h{at}", task, **spec), labels=labels)


class Cluster:
    """The events that make it, and the same for the oracle. Everything that is held and drawn fits."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []
        self.world, self.holds = World(), Holds(World(), [])
        self.holds.world = self.world

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.events))

    def add(self, *events: e.Event) -> None:
        self.events += events
        for event in events:
            self.world.observe(event)

    def devices(self, name: str, declared: e.ShapeDeclared) -> tuple[DeviceShare, ...] | None:
        """The first ones that have so much, None where there are none; () where none are asked for."""
        ask = declared.spec.devices
        if ask is None:
            return ()
        able = [i for i, share in enumerate(self.holds.device_free(name)) if share >= ask.milli]
        return tuple(DeviceShare(i, ask.milli) for i in able[: ask.count]) if len(able) >= ask.count else None

    def fits(self, name: str, declared: e.ShapeDeclared) -> bool:
        requests = declared.spec.requests.items()
        return all(amount <= self.holds.free(name, r) for r, amount in requests) and self.devices(name, declared) is not None

    def hold(self, fact: e.ReservationObserved, name: str, declared: e.ShapeDeclared) -> Hold:
        uid, shares = fact.reservation, self.devices(name, declared)
        self.add(fact, e.ReservationAccepted(uid, 1, 1), e.HoldPlaced(uid, "reservation-0", name, shares, declared.shape))
        plain = json.loads(encode_event(fact))
        hold = Hold(plain, "reservation-0", name, declared.shape, {d.index: d.milli for d in shares}, len(self.holds.holds))
        self.holds.holds.append(hold)
        return hold

    def draw(self, hold: Hold, uid: str, declared: e.ShapeDeclared) -> None:
        """An owner takes of it, where that and the node have enough."""
        left, free = self.holds.left(hold), self.holds.free
        requests = declared.spec.requests
        if declared.spec.devices or any(a > left[r] + free(hold.node, r) for r, a in requests.items()):
            return
        taken = Counter({r: min(a, left[r]) for r, a in requests.items()})
        plain = pod(uid, declared.shape, labels={"app": "owner"})
        self.add(plain)
        self.events += [e.HandedOver(hold.fact["reservation"], hold.slot, uid, hold.node), e.PodChanged(uid, hold.node, "Running", True)]
        self.world.place(uid, hold.node)
        hold.drawn.append((taken, Counter()))


@st.composite
def clusters(draw, gpus=GPUS, memory=(0,)) -> tuple[Cluster, e.PodObserved]:
    cluster = Cluster()
    for i in range(draw(st.integers(1, 3))):
        more = {"ready": draw(st.integers(0, 19)) < 19, "unschedulable": draw(st.integers(0, 19)) == 19, "labels": {"zone": f"z{i}"}}
        cluster.add(node(f"n{i}", draw(st.sampled_from([6_000, 12_000, 24_000])), gpus=draw(st.integers(0, 2)), **more))
    names = list(cluster.world.nodes)
    kinds = draw(st.lists(shapes(gpus, memory), min_size=2, max_size=5, unique_by=lambda s: s.shape))
    cluster.add(*kinds)
    for i in range(draw(st.integers(2, 7))):
        kind, name = draw(st.sampled_from(kinds)), draw(st.sampled_from(names))
        if kind.spec.host_ports and any(h.node == name for h in cluster.holds.holds):
            continue
        if not cluster.fits(name, kind):
            continue
        hold = cluster.hold(draw(reservations(i, kind.shape)), name, kind)
        if not hold.spec.get("allocate_once"):
            for j in range(draw(st.integers(0, 2))):
                drawn = draw(shapes((None,), (0,)))
                cluster.add(replace(drawn, spec=replace(drawn.spec, host_ports=())))
                cluster.draw(hold, f"d{i}-{j}", drawn)
    for i in range(draw(st.integers(0, 3))):
        kind, name = draw(st.sampled_from(kinds)), draw(st.sampled_from(names))
        if cluster.fits(name, kind) and not kind.spec.host_ports:
            cluster.add(pod(f"x{i}", kind.shape, name, devices=cluster.devices(name, kind)))
    mine = draw(shapes(gpus, memory))
    cluster.add(mine)
    asks = pod("p", mine.shape, labels={"app": "owner"}, annotations=draw(st.sampled_from(WISHES)))
    cluster.add(asks)
    return cluster, asks


def decided(cluster: Cluster) -> e.Event | None:
    """What the session says of the pod."""
    state = given(*cluster.events)
    said = run(state, session.decider, c.Schedule(NOW))
    return next((event for event in said if isinstance(event, e.HandedOver | e.PodPlaced) and event.pod == "p"), None)


def agree(cluster: Cluster, asks: e.PodObserved) -> None:
    plain = json.loads(encode_event(asks))
    right, found = cluster.holds.choose(asks, plain), decided(cluster)
    if right is not None:
        assert isinstance(found, e.HandedOver), f"{found} instead of {right}"
        assert (found.reservation, found.slot, found.node, found.devices) == (right.reservation, right.slot, right.node, right.devices)
        return
    nodes = cluster.holds.fits_beside(asks, plain)
    assert not isinstance(found, e.HandedOver), f"{found}, but it may use none"
    assert (found is not None) == bool(nodes), f"{found}, but it fits on {nodes}"
    assert found is None or found.node in nodes


@settings(max_examples=examples(300), deadline=None)
@for_all(clusters(memory=(0, 0, 1, 2)))
def test_a_pod_gets_the_hold_that_the_oracle_chooses(found):
    agree(*found)
