"""A ranking refreshed row by row, in plain integers, is the ranking made anew by NumPy."""

import numpy as np
from domain.build import GIB, given, node, pod, shape
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from restow.domain.session.placer import MANY, Placer
from restow.domain.table import Kind

SHAPES = ("small", "large", "shared", "whole", "odd")
NODES = st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 4), st.booleans()), min_size=1, max_size=MANY + 8)
CHARGES = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(SHAPES), st.sampled_from([1, 1, 1, -1])), max_size=60)


def cluster(nodes, score):
    state = given(
        *(node(f"n{i:02}", cpu=cpu, gpus=gpus, unschedulable=closed) for i, (cpu, gpus, closed) in enumerate(nodes)),
        shape("small", cpu=300),
        shape("large", cpu=3_000, memory=9 * GIB),
        shape("shared", cpu=100, gpu=(1, 300)),
        shape("whole", cpu=100, gpu=(2, 1000)),
        shape("odd", requests={"example.com/other": 1}),
        pod("p", "small"),
    )
    state.session_config = replace(state.session_config, score=score)
    return state


@settings(max_examples=200, deadline=None)
@any_of(NODES, CHARGES, st.sampled_from(["leastAllocated", "binpack"]))
def test_row_by_row_is_all_at_once(nodes, charges, score):
    state = cluster(nodes, score)
    placer = Placer(state)
    for name in SHAPES:
        placer.best(name)
    for at, name, sign in charges:
        row = at % len(nodes)
        v = state.vectors[name]
        devices = state.table.choose_devices(row, v.devices) or ()
        state.table.charge(row, v, devices, sign, Kind.USED)
        placer.changed(row)
        best = placer.best(name)
        fresh = Placer(state)
        assert best == fresh.best(name)
    for name in SHAPES:
        placer.best(name)
        np.testing.assert_array_equal(placer._rankings[name].keys, Placer(state)._keys(name, None))
