"""Rows of nodes that went are kept in a snapshot: what is decided does not depend on where a state comes from."""

import pytest
from domain.build import NOW, given, node, pod, shape, then, when

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.snapshot import dump, load


@pytest.mark.parametrize("left", [(), ("b",), ("a",)])
def test_a_session_opens_on_a_snapshot_whose_nodes_went(left):
    state = given(shape("s"), node("a", cpu=4_000), node("b", cpu=4_000))
    then(state, *(e.NodeGone(name) for name in ("a", "b") if name not in left), pod("p", created=NOW))
    again = load(dump(state))
    assert [*again.table.names] == [*state.table.names]
    assert list(when(again, session.decider, c.Schedule(NOW))) == list(when(state, session.decider, c.Schedule(NOW)))
    for one in (state, again):
        then(one, node("c", cpu=4_000))
    events = list(when(state, session.decider, c.Schedule(NOW)))
    assert list(when(again, session.decider, c.Schedule(NOW))) == events
    assert any(isinstance(event, e.PodPlaced) for event in events)
