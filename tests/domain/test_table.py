"""The node table against plain dicts: whatever is added, charged, taken back, grown and removed, both say the same."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.node_table import MAX_DEVICES, MOST, ChargedAs, NodeTable

RESOURCES = tuple(f"r{i}" for i in range(12))
NODES = tuple(f"n{i}" for i in range(40))

amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 1000), max_size=5)
shares = st.lists(st.builds(DeviceShare, st.integers(-1, 20), st.integers(1, 1000)), max_size=3, unique_by=lambda d: d.index).map(tuple)


class Against(RuleBasedStateMachine):
    """Fewer rows and columns than names at first: both grow on the way, and rows are used again."""

    def __init__(self):
        super().__init__()
        self.table = NodeTable()
        self.nodes: dict[str, tuple[dict[str, int], int]] = {}
        self.charges: list[tuple] = []

    @rule(name=st.sampled_from(NODES), allocatable=amounts, devices=st.integers(0, 12))
    def set_node(self, name, allocatable, devices):
        self.table.set_node(name, allocatable, devices)
        self.nodes[name] = (allocatable, devices)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def remove_node(self, data):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.table.remove_node(name)
        del self.nodes[name]
        self.charges = [charge for charge in self.charges if charge[0] != name]

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), requests=amounts, devices=shares, charged_as=st.sampled_from(list(ChargedAs)))
    def charge(self, data, requests, devices, charged_as):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.table.charge(self.table.rows[name], self.table.vector(requests, None), devices, 1, charged_as)
        self.charges.append((name, requests, devices, charged_as))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), wanted=st.lists(st.tuples(amounts, shares), min_size=1, max_size=6))
    def charge_many(self, data, wanted):
        names = [data.draw(st.sampled_from(sorted(self.nodes))) for _ in wanted]
        vectors = [self.table.vector(requests, None) for requests, _ in wanted]
        self.table.charge_many([self.table.rows[n] for n in names], vectors, [d for _, d in wanted], 1)
        self.charges += [(n, requests, devices, ChargedAs.USED) for n, (requests, devices) in zip(names, wanted, strict=True)]

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def take_back(self, data):
        name, requests, devices, charged_as = self.charges.pop(data.draw(st.integers(0, len(self.charges) - 1)))
        self.table.charge(self.table.rows[name], self.table.vector(requests, None), devices, -1, charged_as)

    @invariant()
    def both_say_the_same(self):
        table = self.table
        assert set(table.rows) == set(self.nodes)
        assert int(table.alive.sum()) == len(self.nodes)
        for name, (allocatable, devices) in self.nodes.items():
            row = table.rows[name]
            assert table.names[row] == name
            mine = [charge for charge in self.charges if charge[0] == name]
            for resource, column in table.columns.items():
                used = sum(r.get(resource, 0) for _, r, _, charged_as in mine if charged_as is not ChargedAs.HELD)
                held = sum(r.get(resource, 0) for _, r, _, charged_as in mine if charged_as is ChargedAs.HELD)
                leaving = sum(r.get(resource, 0) for _, r, _, charged_as in mine if charged_as is ChargedAs.RELEASING)
                whole = allocatable.get(resource, 0)
                said = [int(a[row, column]) for a in (table.allocatable, table.used, table.reserved, table.releasing, table.free)]
                assert said == [whole, used, held, leaving, whole - used - held]
            for index, free in enumerate(table.device_free[row].tolist()):
                taken = sum(d.milli for _, _, shares, _ in mine for d in shares if d.index == index)
                assert free == 1000 - taken if index < devices else free < -1000

    @invariant()
    def names_rank_as_they_sort(self):
        table = self.table
        ordered = [name for name in sorted(table.names) if name]
        rows = [table.rows[name] for name in ordered]
        assert list(np.argsort(table.rank[rows])) == list(range(len(rows)))


def test_table_and_dicts_agree_after_any_changes():
    run_state_machine_as_test(Against, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))


def test_rows_of_removed_nodes_are_used_again_and_remember_nothing():
    table = NodeTable()
    row = table.set_node("a", {"cpu": 5}, 2)
    table.charge(row, table.vector({"cpu": 3}, None), (DeviceShare(0, 400),), 1)
    table.remove_node("a")
    assert table.set_node("b", {"cpu": 7}, 1) == row
    assert table.free[row].tolist() == [7]
    assert table.device_free[row, :2].tolist() == [1000, table.device_free[row, 1]]
    assert len(table.names) == 1


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 4), st.integers(1, 1000))
def test_devices_are_those_with_the_least_free_share_that_suffices(free, count, milli):
    table = NodeTable()
    row = table.set_node("a", {}, len(free))
    for index, share in enumerate(free):
        table.charge(row, table.vector({}, None), (DeviceShare(index, 1000 - share),), 1)
    able = sorted((share, index) for index, share in enumerate(free) if share >= milli)
    expected = None if len(able) < count else tuple(DeviceShare(i, milli) for i in sorted(i for _, i in able[:count]))
    request = DeviceRequest(count, milli)
    assert table.choose_devices(row, request) == expected
    assert table.fits_row(row, table.vector({}, request)) is (expected is not None)
    assert bool(table.fits(table.vector({}, request))[row]) is (expected is not None)


def test_what_is_restored_counts_as_free_and_strange_devices_do_not():
    table = NodeTable()
    row = table.set_node("a", {}, 1)
    table.charge(row, table.vector({}, None), (DeviceShare(0, 800),), 1)
    assert table.choose_devices(row, DeviceRequest(1, 500)) is None
    assert table.choose_devices(row, DeviceRequest(1, 500), {0: 800, 5: 900, 5_000: 900, -1: 900}) == (DeviceShare(0, 500),)


def test_devices_beyond_the_limit_are_nobodys():
    table = NodeTable()
    row = table.set_node("a", {}, MAX_DEVICES + 50)
    table.charge(row, table.vector({}, None), (DeviceShare(MAX_DEVICES, 500), DeviceShare(MAX_DEVICES - 1, 500)), 1)
    assert table.device_free.shape[1] == MAX_DEVICES
    assert table.device_free[row, -1] == 500


def test_amounts_beyond_int64_are_as_much_as_there_can_be_and_never_an_error():
    """Two containers may ask for 2**63 - 1 bytes each: the API takes that."""
    table = NodeTable()
    row = table.set_node("a", {"memory": 1 << 70}, 0)
    assert table.free[row].tolist() == [MOST]
    assert not table.fits_row(row, table.vector({"memory": 1 << 64, "cpu": 1}, None))


def test_a_node_that_says_it_has_a_million_million_devices_costs_nobody_anything():
    """A kubelet may say so, and the fact would stand in the log for every reader: one that counted them would never get past it."""
    table = NodeTable()
    row = table.set_node("n", {"cpu": 1}, 10**12)
    assert (table.device_free[row] > 0).sum() == MAX_DEVICES
    other = table.set_node("m", {"cpu": 1}, -(10**12))
    assert (table.device_free[other] > 0).sum() == 0
