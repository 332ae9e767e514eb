"""Device objects: GPUs that do not work, or are not there, are given to nobody."""

import pytest
from domain.build import changed, given, node, pod, shape, then

from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Gpu
from restow.domain import snapshot
from restow.domain.node_table import NO_DEVICE


def gpus(name: str, *healthy: bool | None) -> e.DeviceObserved:
    """One entry a number: whether it works, None where there is none."""
    return e.DeviceObserved(name, tuple(Gpu(i, h) for i, h in enumerate(healthy) if h is not None))


def free(state, name: str = "n0") -> dict[int, int]:
    """Thousandths that are free of each GPU that may be given to somebody."""
    shares = state.table.device_free[state.table.rows[name]].tolist()
    return {i: share for i, share in enumerate(shares) if share > NO_DEVICE // 2}


def test_without_a_device_object_the_nodes_count_counts():
    assert free(given(node("n0", gpus=2))) == {0: 1000, 1: 1000}


@pytest.mark.parametrize("first", [True, False])
def test_with_one_only_gpus_that_it_says_work(first):
    facts = [node("n0", gpus=4), gpus("n0", True, False, None, True)]
    assert free(given(*(facts if first else facts[::-1]))) == {0: 1000, 3: 1000}


def test_a_gpu_that_fails_is_gone_and_what_runs_on_it_takes_nothing_from_others():
    state = given(node("n0", gpus=2), shape("s", gpu=(1, 1000)), pod("a", "s", "n0", devices=(DeviceShare(0, 1000),)))
    assert free(state) == {0: 0, 1: 1000}
    then(state, gpus("n0", False, True))
    assert free(state) == {1: 1000}
    assert state.table.fits(state.vectors["s"])[0]
    then(state, pod("b", "s", "n0", devices=(DeviceShare(1, 1000),)))
    assert not state.table.fits(state.vectors["s"])[0]
    then(state, e.PodGone("a"), gpus("n0", True, True))
    assert free(state) == {0: 1000, 1: 0}


def test_of_a_pod_that_says_not_which_gpu_it_has_the_one_that_suits_it_best_counts_until_it_says():
    shapes = shape("third", gpu=(1, 300)), shape("half", gpu=(1, 500))
    state = given(node("n0", gpus=3), *shapes, pod("a", "third", "n0", devices=(DeviceShare(1, 300),)), pod("b", "half", "n0"))
    assert free(state) == {0: 1000, 1: 200, 2: 1000}
    then(state, changed("b", node="n0", phase="Running", ready=True))
    assert free(state) == {0: 1000, 1: 200, 2: 1000}
    then(state, changed("b", node="n0", phase="Running", ready=True, devices=(DeviceShare(2, 500),)))
    assert free(state) == {0: 1000, 1: 700, 2: 500}


BAD = "annotation: no JSON"


@pytest.mark.parametrize("gpus", [3, 2])
def test_who_is_resized_or_has_annotations_that_nobody_can_read_keeps_its_gpu(gpus):
    """It goes on with it. One that is chosen while its own is still taken is another one, or none."""
    shapes = shape("s", gpu=(1, 1000)), shape("larger", cpu=2_000, gpu=(1, 1000)), shape("bad", gpu=(1, 1000), unreadable=BAD), shape("none", unreadable=BAD)
    state = given(node("n0", gpus=gpus), *shapes, pod("b", node="n0", devices=(DeviceShare(0, 1000),)), pod("a", node="n0", devices=(DeviceShare(1, 1000),)))
    before = free(state)
    for said in ("larger", "bad", "s", "none"):
        then(state, pod("a", said, "n0"))
        assert state.charges["a"].devices == (DeviceShare(1, 1000),), said
        assert free(state) == before


def test_who_has_annotations_that_nobody_can_read_keeps_its_cpus_one_or_many():
    pods = [f"p{i}" for i in range(20)]
    state = given(node("n0", cpu=64_000), shape("s"), shape("bad", unreadable=BAD), *(pod(p, node="n0", cores=(i,)) for i, p in enumerate(pods)))
    then(state, *(pod(p, "bad", "n0") for p in pods))
    then(state, *(changed(p, node="n0", phase="Running") for p in pods))
    assert [state.charges[p].cores for p in pods] == [(i,) for i in range(20)]
    then(state, *(pod(p, "s", "n0") for p in pods))
    assert not any(state.charges[p].cores for p in pods)


def test_a_pod_whose_node_was_never_seen_takes_no_gpu_until_it_is():
    state = given(shape("half", gpu=(1, 500)), pod("b", "half", "n0"))
    assert free(then(state, node("n0", gpus=1))) == {0: 500}


def test_what_goes_leaves_the_nodes_own_count():
    state = given(node("n0", gpus=2), gpus("n0", False, False))
    assert free(state) == {}
    epoch = state.capacity_epoch
    then(state, e.DeviceGone("n0"))
    assert free(state) == {0: 1000, 1: 1000}
    assert state.capacity_epoch > epoch
    assert then(state, e.DeviceGone("n0")).void["cluster.device_gone"] == 1


def test_a_device_object_without_its_node_is_kept_for_it():
    state = given(gpus("n0", True, False))
    assert free(then(state, node("n0", gpus=2))) == {0: 1000}
    assert free(then(state, e.NodeGone("n0"), node("n0", gpus=2, uid="new"))) == {0: 1000}


def test_a_snapshot_has_them():
    state = given(node("n0", gpus=2), gpus("n0", False, True))
    again = snapshot.load(snapshot.dump(state))
    assert free(again) == {1: 1000}
    assert again.device_objects == state.device_objects
