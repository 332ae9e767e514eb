"""Packing: what idle GPU share typical pods cannot use (FGD, ATC 2023), against the formula in plain Python."""

from domain.build import GPU, given, node, owner, pod, replica_of, reservation, shape, then
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import DeviceShare
from restow.domain.fragmentation import FreeCapacity, Typical, packing, typical_shapes


def share(*pairs: tuple[int, int]) -> tuple[DeviceShare, ...]:
    return tuple(DeviceShare(i, m) for i, m in pairs)


def test_the_most_popular_shapes_that_cover_95_percent_are_typical():
    pods = [pod(f"a{i}", "a") for i in range(90)] + [pod(f"b{i}", "b") for i in range(6)] + [pod(f"c{i}", "c") for i in range(4)]
    state = given(shape("a"), shape("b", cpu=2_000), shape("c", cpu=3_000), *pods)
    assert typical_shapes(state) == (Typical("a", 90), Typical("b", 6))


def test_shapes_that_ask_for_the_same_are_one():
    state = given(shape("y", priority=5), shape("x"), pod("1", "x"), pod("2", "y"), pod("3", "y"))
    assert typical_shapes(state) == (Typical("x", 3),)


def test_finished_and_daemon_set_and_static_pods_are_not_typical():
    state = given(
        shape("s"),
        pod("done", phase="Succeeded"),
        pod("daemon", owner=replica_of("ds", "DaemonSet")),
        pod("static", static=True),
        pod("p"),
    )
    assert typical_shapes(state) == (Typical("s", 1),)


def test_a_device_with_less_than_the_pod_asks_for_is_fragmented():
    state = given(
        node("a", gpus=2),
        shape("half", gpu=(1, 500)),
        shape("most", gpu=(1, 700)),
        pod("p", "most", "a", devices=share((0, 700))),
        pod("q", "half"),
    )
    # One pod of each shape: 300 on the first device is too little for both, the second device serves both.
    assert packing(state).fragmented == 300
    assert packing(state).idle == 1_300


def test_for_a_pod_without_gpu_and_for_one_that_cannot_run_all_idle_share_is_unusable():
    state = given(node("a", gpus=1, cpu=1_000), shape("cpu", cpu=500), shape("big", cpu=2_000, gpu=(1, 100)), pod("p", "cpu"), pod("q", "big"))
    assert packing(state).fragmented == packing(state).idle == 1_000


def test_a_node_is_free_without_load_and_without_holds():
    state = given(
        node("a"), node("b"), node("c"), node("d"), shape("s"),
        pod("daemon", node="a", owner=replica_of("ds", "DaemonSet")),
        pod("static", node="b", static=True),
        pod("p", node="c"),
        reservation("r", ("t", 1, "s"), owners=(owner(a="b"),)),
        e.ReservationAccepted("r", 1, 1),
    )  # fmt: skip
    assert packing(state).free_nodes == 3
    then(state, e.HoldPlaced("r", "t-0", "d"))
    assert packing(state).free_nodes == 2
    assert packing(state, loads={"c": -1, "a": 1}).free_nodes == 2


def test_a_cluster_without_gpus_has_nothing_fragmented():
    got = packing(given(node("a"), shape("s"), pod("p", node="a")))
    assert (got.total, got.idle, got.fragmented, got.free_devices, got.free_nodes) == (0, 0, 0, 0, 0)
    assert packing(given()).nodes == 0


def test_it_can_be_asked_about_capacity_that_is_only_planned():
    state = given(node("a", gpus=1), node("b", gpus=1), shape("s", gpu=(1, 500)), pod("p", node="a", devices=share((0, 500))))
    capacity = FreeCapacity(state.table)
    capacity.take(state.table.rows["a"], state.vectors["s"], share((0, 500)), -1)
    capacity.take(state.table.rows["b"], state.vectors["s"], share((0, 500)))
    assert packing(state, capacity).free_devices == packing(state).free_devices == 1
    capacity.take(state.table.rows["b"], state.vectors["s"], share((0, 500)))
    assert packing(state, capacity).idle == 1_000
    assert packing(state).idle == 1_500


SHAPES = {
    "c": {"cpu": 1_000},
    "g3": {"cpu": 500, "gpu": (1, 300)},
    "g5": {"cpu": 3_000, "gpu": (1, 500)},
    "w1": {"cpu": 1_000, "gpu": (1, 1000)},
    "w2": {"cpu": 2_000, "gpu": (2, 1000), "node_selector": {"m": "a"}},
}


def formula(state) -> int:
    """Slow and obvious: the paper's definition over devices, one at a time."""
    counts: dict[str, int] = {}
    for p in state.pods.values():
        counts[p.fact.shape] = counts.get(p.fact.shape, 0) + 1
    chosen, covered = [], 0
    for name in sorted(counts, key=lambda s: (-counts[s], s)):
        if covered * 100 >= len(state.pods) * 95:
            break
        chosen.append(name)
        covered += counts[name]
    weighted = 0
    for name in chosen:
        spec = state.shapes[name]
        for fact in state.nodes.values():
            row = state.table.rows[fact.name]
            devices = state.table.device_free[row, : fact.devices].tolist()
            runs = spec.devices is not None and all(fact.labels.get(k) == v for k, v in spec.node_selector.items())
            for resource, amount in spec.requests.items():
                if resource != GPU:
                    runs = runs and int(state.table.free[row, state.table.columns[resource]]) >= amount
            if runs:
                runs = sum(d >= spec.devices.milli for d in devices) >= spec.devices.count
            unusable = [d for d in devices if not runs or d < spec.devices.milli]
            weighted += counts[name] * sum(unusable)
    return weighted // covered if covered else 0


@settings(max_examples=examples(150), deadline=None)
@any_of(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1_000, 6_000), st.sampled_from(["a", "b"])), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from(sorted(SHAPES)), st.integers(0, 5)), max_size=25),
)
def test_it_is_the_papers_formula(nodes, pods):
    state = given(
        *(node(f"n{i}", cpu=cpu, gpus=gpus, labels={"m": m}) for i, (gpus, cpu, m) in enumerate(nodes)),
        *(shape(name, **more) for name, more in SHAPES.items()),
    )
    for i, (name, at) in enumerate(pods):
        row = at % len(nodes)
        fits = state.table.fits_row(state.table.rows[f"n{row}"], state.vectors[name])
        devices = state.table.choose_devices(state.table.rows[f"n{row}"], state.shapes[name].devices) or ()
        then(state, pod(f"p{i}", name, f"n{row}" if fits else None, owner=replica_of("r"), devices=devices if fits else ()))
    got = packing(state)
    assert got.fragmented == formula(state)
    assert got.idle == sum(max(0, d) for row in state.table.device_free.tolist() for d in row)
    assert got.total == sum(gpus for gpus, _, _ in nodes) * 1_000
