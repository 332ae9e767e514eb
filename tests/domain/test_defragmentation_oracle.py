"""The plan is what seed 000's pseudo code says, pod by pod and node by node in plain Python."""

from domain.build import GIB, GPU, NOW, given, node, owner, pod, replica_of, reservation, shape, then
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import Taint, Toleration
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, Namespaces

ZONE, KEY = "zone", "only"
SHAPES = {
    "c1": {"cpu": 1_000},
    "c2": {"cpu": 2_000, "memory": 3 * GIB, "node_selector": {ZONE: "x"}},
    "g2": {"cpu": 500, "gpu": (1, 200)},
    "g5": {"cpu": 500, "gpu": (1, 500), "tolerations": (Toleration(KEY, "Exists"),)},
    "w1": {"cpu": 1_000, "gpu": (1, 1000)},
    "w2": {"cpu": 1_000, "gpu": (2, 1000), "node_selector": {ZONE: "y"}},
}
PODS = st.tuples(st.sampled_from(sorted(SHAPES)), st.integers(0, 9), st.sampled_from(["rs", "rs", "rs", "ds", "", "kube"]))
NODES = st.tuples(st.integers(3_000, 9_000), st.integers(0, 4), st.sampled_from(["x", "y"]), st.booleans(), st.booleans())


def build(nodes, pods, holds):
    state = given(
        *(
            node(
                f"n{i}", cpu=cpu, gpus=gpus, memory=8 * GIB,
                labels={ZONE: zone} | ({"critical": "true"} if critical else {}),
                taints=(Taint(KEY, "NoSchedule"),) if tainted and i % 2 else (),
            )
            for i, (cpu, gpus, zone, critical, tainted) in enumerate(nodes)
        ),
        *(shape(name, **more) for name, more in SHAPES.items()),
    )  # fmt: skip
    for i, (name, at, kind) in enumerate(pods):
        on = f"n{at % len(nodes)}"
        row = state.table.rows[on]
        if not state.table.fits_row(row, state.vectors[name]):
            continue
        owner_ref = {"rs": replica_of("rs"), "ds": replica_of("ds", "DaemonSet"), "kube": replica_of("k")}.get(kind)
        devices = state.table.choose_devices(row, state.shapes[name].devices) or ()
        namespace = "kube-system" if kind == "kube" else "default"
        then(state, pod(f"p{i:02}", name, on, owner=owner_ref, devices=devices, namespace=namespace))
    for i, (name, at) in enumerate(holds):
        on = f"n{at % len(nodes)}"
        row = state.table.rows[on]
        if state.table.fits_row(row, state.vectors[name]):
            then(
                state,
                reservation(f"r{i}", ("t", 1, name), owners=(owner(a="b"),)),
                e.ReservationAccepted(f"r{i}", 1, 1),
                e.HoldPlaced(f"r{i}", "t-0", on, state.table.choose_devices(row, state.shapes[name].devices) or ()),
            )
    return state


def oracle(state, resource, low, defragment, protection, number, limit):
    """⟨pod, source, target, devices⟩ in order."""
    table = state.table
    free = {n: {r: int(table.free[table.rows[n], c]) for r, c in table.columns.items()} for n in state.nodes}
    total = {n: fact.allocatable.get(resource, 0) for n, fact in state.nodes.items()}
    devices = {n: table.device_free[table.rows[n], : fact.devices].tolist() for n, fact in state.nodes.items()}

    def usage(n):
        return total[n] - free[n].get(resource, 0)

    sources, targets = [], []
    for n, fact in state.nodes.items():
        if total[n] and usage(n) * 100 < low * total[n] and fact.labels.get("critical") != "true":
            sources.append(n)
        if total[n] and defragment * total[n] < usage(n) * 100 < protection * total[n]:
            targets.append(n)
    sources.sort(key=lambda n: (usage(n) * 10_000 // total[n], n))
    if len(sources) <= number:
        return []
    moves = []
    for source in sources:
        removable = [
            p.fact
            for p in state.pods.values()
            if p.fact.node == source and p.fact.owner is not None and p.fact.owner.kind != "DaemonSet" and p.fact.namespace != "kube-system"
        ]
        wants = lambda p: state.shapes[p.shape].requests  # noqa: E731
        removable.sort(key=lambda p: (-wants(p).get(resource, 0), -wants(p)["cpu"], -wants(p)["memory"], p.name))
        for p in removable:
            spec = state.shapes[p.shape]
            for n in sorted(targets, key=lambda n: (-(usage(n) * 10_000 // total[n]), n)):
                fact = state.nodes[n]
                if any(fact.labels.get(k) != v for k, v in spec.node_selector.items()):
                    continue
                if fact.taints and not spec.tolerations:
                    continue
                if any(free[n].get(r, 0) < amount for r, amount in spec.requests.items()):
                    continue
                able = sorted((d, i) for i, d in enumerate(devices[n]) if spec.devices and d >= spec.devices.milli)
                if spec.devices and len(able) < spec.devices.count:
                    continue
                if (usage(n) + spec.requests.get(resource, 0)) * 100 >= protection * total[n]:
                    continue
                break
            else:
                continue
            if len(moves) == limit:
                return moves
            for r, amount in spec.requests.items():
                free[n][r] -= amount
            chosen = sorted(i for _, i in able[: spec.devices.count]) if spec.devices else []
            for i in chosen:
                devices[n][i] -= spec.devices.milli
            moves.append((p.pod, source, n, chosen))
    return moves


@settings(max_examples=examples(300), deadline=None)
@any_of(
    st.lists(NODES, min_size=2, max_size=8),
    st.lists(PODS, max_size=40),
    st.lists(st.tuples(st.sampled_from(sorted(SHAPES)), st.integers(0, 9)), max_size=3),
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.one_of(
        st.sampled_from([(40, 50, 100), (50, 50, 100), (60, 60, 95), (30, 35, 90)]),
        st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)).map(sorted),
    ),
    st.integers(0, 2),
    st.sampled_from([3, 2_000]),
)
def test_the_plan_is_the_pseudo_codes(nodes, pods, holds, resource, thresholds, number, limit):
    state = build(nodes, pods, holds)
    low, defragment, protection = thresholds
    args = DefragmentationArgs(
        resourceType=resource,
        lowThresholds={resource: low},
        defragmentThresholds={resource: defragment},
        protectionThresholds={resource: protection},
        numberOfNodes=number,
        evictableNamespaces=Namespaces(exclude=("kube-system",)),
    )
    plan = defragmentation.plan(state, args, NOW, "x", limit)
    column = GPU if resource == "nvidia.com/gpu" else resource
    got = [(m.pod, m.source, m.target, [d.index for d in m.devices]) for m in plan.moves]
    assert got == oracle(state, column, low, defragment, protection, number, limit)
    explained = defragmentation.explain(state, args, NOW, limit)
    assert {(c.pod, c.target) for c in explained if c.verdict == "Planned"} == {(m.pod, m.target) for m in plan.moves}
    verdicts: dict[str, int] = {}
    for c in explained:
        if c.verdict != "Planned":
            verdicts[c.verdict] = verdicts.get(c.verdict, 0) + 1
    assert verdicts == plan.kept
    assert plan.after.idle == plan.before.idle, "moving pods neither makes nor uses devices"
