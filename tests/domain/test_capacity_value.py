"""What a node is worth: how often the capacity that is asked for fits there, by devices too. One node in plain integers and many in arrays say
the same, and both what a search over all ways says."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts.values import DeviceRequest
from restow.domain.defragmentation.optimizing.value import Value, fits, wholes_taken
from restow.domain.device_choice import copies, copies_many, fullest
from restow.domain.node_table import Vector

GPU = 1
"""The column of GPU share; cores are column 0."""
EIGHT = Vector(((0, 8_000), (GPU, 8_000)), DeviceRequest(8, 1_000))


def capacity(vector: Vector) -> Value:
    return Value("capacity", vector, GPU)


@pytest.mark.parametrize(("free", "times"), [(0, 0), (7, 0), (8, 1), (15, 1), (16, 2)])
def test_eight_free_gpus_are_capacity_for_one_job_of_eight(free, times):
    shares = [1_000] * free + [500] * (16 - free)
    assert capacity(EIGHT).worth(0, [64_000, 64_000], shares, 0) == times
    assert copies(shares, DeviceRequest(8, 1_000)) == times


def test_the_scarcest_of_what_is_asked_for_counts():
    assert capacity(EIGHT).worth(0, [15_999, 64_000], [1_000] * 16, 0) == 1
    assert capacity(EIGHT).worth(0, [7_999, 64_000], [1_000] * 16, 0) == 0
    assert capacity(EIGHT).worth(0, [-1, 64_000], [1_000] * 16, 0) == 0, "a node that has given more than it has"


def test_whole_devices_and_free_nodes_are_counted_as_what_they_are():
    assert Value("devices", None, GPU).worth(0, [0, 0], [1_000, 999, 1_000], 3) == 2
    assert [Value("nodes", None, GPU).worth(0, [0, 0], [], loads) for loads in (0, 1, 2)] == [1, 0, 0]
    assert Value("none", None, GPU).worth(0, [9, 9], [1_000], 0) == 0


def best(shares: tuple[int, ...], request: DeviceRequest) -> int:
    """Every way of giving one request after the other to different devices."""

    @cache
    def more(left: tuple[int, ...]) -> int:
        able = [i for i, share in enumerate(left) if share >= request.milli]
        found = 0
        for chosen in combinations(able, request.count):
            rest = tuple(sorted(share - request.milli * (i in chosen) for i, share in enumerate(left)))
            found = max(found, 1 + more(rest))
        return found

    return more(tuple(sorted(shares)))


shares = st.lists(st.sampled_from([0, 100, 249, 250, 251, 499, 500, 501, 750, 999, 1_000]), min_size=1, max_size=4)
requests = st.builds(DeviceRequest, st.integers(1, 3), st.sampled_from([250, 500, 1_000]))


@settings(max_examples=examples(200))
@for_all(shares, requests)
def test_as_many_copies_fit_as_a_search_over_all_ways_finds(have, request):
    assert copies(have, request) == best(tuple(have), request)
    assert copies_many(np.array([have, have[::-1]]), request).tolist() == [best(tuple(have), request)] * 2


@settings(max_examples=examples(200))
@for_all(shares, requests, requests, st.sampled_from(["capacity", "devices", "nodes", "none"]), st.integers(0, 3), st.integers(0, 9))
def test_what_a_pod_would_cost_a_node_is_the_same_for_one_and_for_many(have, asked, comes, objective, loads, cores):
    free = [cores * 1_000, sum(have)]
    pod = Vector(((0, 1_000), (GPU, comes.count * comes.milli)), comes)
    if not fits(free, have, pod):
        return
    of = Value(objective, Vector(((0, 2_000), (GPU, asked.count * asked.milli)), asked) if objective == "capacity" else None, GPU)
    one = of.lost_one(0, free, have, loads, pod)
    assert of.lost(np.array([0]), np.array([free]), np.array([have]), np.array([loads]), pod).tolist() == [one]
    if objective in ("capacity", "devices"):
        after, left = list(have), [free[0] - 1_000, free[1] - comes.count * comes.milli]
        for i in fullest(have, comes) or ():
            after[i] -= comes.milli
        assert one == of.worth(0, free, have, loads) - of.worth(0, left, after, loads + 1)


def test_a_request_fits_where_all_of_it_does():
    one = Vector(((0, 1_000), (GPU, 500)), DeviceRequest(1, 500))
    assert fits([1_000, 500], [500], one)
    assert not fits([999, 500], [500], one)
    assert not fits([1_000, 500], [499], one)
    assert not fits([1_000, 1_000], [500, 500], Vector(((0, 1_000), (GPU, 1_000)), DeviceRequest(1, 1_000)))


def test_whole_devices_are_taken_only_where_no_part_of_one_suffices():
    taken = wholes_taken(np.array([[1_000, 500], [1_000, 1_000], [499, 1_000], [500, 500]]), DeviceRequest(1, 500))
    assert taken.tolist() == [0, 1, 1, 0]
    assert wholes_taken(np.array([[1_000]]), None).tolist() == [0]
