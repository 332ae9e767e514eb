"""Every attribute of a state is declared once (`restow.domain.state_maps`), and nothing else can be one. What becomes of each in a snapshot, in a
draft and where states are compared follows from that."""

from collections import Counter
from itertools import chain

from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.fold_stories import Story

from restow.contracts.codec import name_of
from restow.domain import fold
from restow.domain.accounts import Accounts
from restow.domain.history import History
from restow.domain.records import Needs
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.domain.state_attributes import Role, attributes
from restow.replay.diff import diff

NEVER_BETWEEN_EVENTS = {"unsettled"}
"""What is empty whenever an event is folded."""


def folded(seed: int) -> ClusterState:
    state = ClusterState()
    state.log, state.seq, state.shapes_kept, state.last["gc"] = "log", 7, 3, 5
    state.history, state.broken = History(7, b"of the 7 records"), seed % 2
    state.reader = Needs(seed % 3, 7, "9.0.0")
    for events in Story(seed, state).chapters(6):
        state.time += 1_000
        state.overtaken.clear()  # as at the beginning of each commit
        fold.apply(state, events)
    return state


def test_nothing_is_an_attribute_that_is_not_declared():
    state = ClusterState()
    slots = set(chain.from_iterable(getattr(cls, "__slots__", ()) for cls in ClusterState.__mro__))
    assert not hasattr(state, "__dict__")
    assert {name for name in slots if not name.startswith("_")} == {attribute.name for attribute in attributes(ClusterState)}


def test_the_snapshots_of_some_stories_have_every_attribute():
    """These stories leave no attribute as it was at first, so what the snapshot forgets is missing in one of them."""
    new, changed = ClusterState(), set()
    kept = [a.name for a in attributes(ClusterState) if a.role is not Role.PASSING]
    for seed in range(300):
        state = folded(seed)
        changed |= {name for name in kept if not _equal(getattr(state, name), getattr(new, name))}
        assert diff(state, load(dump(state))) == [], seed
    assert {*kept} - changed == NEVER_BETWEEN_EVENTS


def _equal(a, b) -> bool:
    return a == b if isinstance(a, dict | Counter | Accounts | History | int | str | tuple) or hasattr(a, "__struct_fields__") else not a.rows


def _orders(known: dict) -> list:
    return [(key, list(inner) if isinstance(inner, dict) else None) for key, inner in known.items()]


@settings(max_examples=examples(60), deadline=None)
@for_all(st.integers(0, 2**32))
def test_a_snapshot_has_all_of_a_state_in_its_order(seed):
    state = folded(seed)
    again = load(dump(state))
    assert diff(state, again) == []
    assert dump(again) == dump(state)
    for one in attributes(ClusterState):
        if one.role is Role.DERIVED and isinstance(known := getattr(state, one.name), dict):
            assert _orders(known) == _orders(getattr(again, one.name)), one.name


@settings(max_examples=examples(60), deadline=None)
@for_all(st.integers(0, 2**32))
def test_a_draft_leaves_all_of_a_state_as_it_was(seed):
    state = folded(seed)
    before, copy = dump(state), load(dump(state))
    story = Story(seed + 1, state)
    with state.draft():
        for _ in range(30):
            fold.apply(state, [event for event in story.other() if not name_of(event).startswith("cluster.")])
    assert dump(state) == before
    assert diff(state, copy) == []
