"""Whether another scheduler honours nominations by us is a fact of the log. Before it has spoken nobody of its pods moves; where it ignores them, a slot
is handed over by preemption."""

import pytest
from domain.build import NOW, changed, given, node, pod, run, shape, then
from domain.test_beside import STOCK, evicted, placeholder, session_owes, successor, world

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import nomination_checks as checks
from restow.domain import session
from restow.domain.beside import GUARD, another_scheduler, placeholder_of
from restow.domain.effects import DeletePlaceholder, Land
from restow.domain.other_schedulers import LOG
from restow.domain.verdicts import NOT_CHECKED
from restow.kube.placeholder import of_slot


def said(state, word: str, why: str = "", leader: str = "", at: int = NOW) -> None:
    """As the session logs it."""
    run(state, session.decider, c.ReportNominations(at, STOCK, word, why, leader))


def unasked():
    state = world()
    state.nominations_checked.clear()
    return state


def test_pods_of_a_scheduler_that_nobody_has_asked_stay():
    state = unasked()
    assert another_scheduler(state, "s") == NOT_CHECKED
    then(state, e.NamespaceObserved("restow-holds", {}))
    said(state, "unknown", "something else keeps pods away")
    assert another_scheduler(state, "s") == NOT_CHECKED
    assert "something else keeps pods away" in checks.sentence(state, STOCK)
    for word in ("honoured", "ignored"):
        said(state, word)
        assert another_scheduler(state, "s") == ""


def test_what_is_known_stays_known_where_a_later_check_comes_to_nothing():
    state = unasked()
    said(state, "honoured", leader="one")
    said(state, "unknown", "503", leader="two")
    assert checks.verdict(state, STOCK) == checks.HONOURED
    assert checks.sentence(state, STOCK) == ""
    assert state.nominations_checked[STOCK].leader == "one", "so that the new leader is asked again"


def test_it_is_asked_at_first_of_a_new_leader_and_again_after_a_failure_later_each_time():
    state = unasked()
    assert checks.due(state, STOCK, "") == 0
    said(state, "honoured", leader="one")
    at = state.nominations_checked[STOCK].at
    assert checks.due(state, STOCK, "one") > at + checks.DAILY
    assert checks.due(state, STOCK, "two") == 0
    assert checks.due(state, STOCK, "") == at + checks.DAILY
    waits = []
    for _ in range(12):
        said(state, "unknown", leader="two")
        waits.append(checks.due(state, STOCK, "two") - state.nominations_checked[STOCK].at)
    assert waits == [min(10_000 << i, checks.LONGEST) for i in range(12)]


@pytest.mark.parametrize("more", [{"ready": False}, {"unschedulable": True}, {"cpu": 0}])
def test_it_is_tried_where_a_pod_fits(more):
    state = given(node("a", **({"cpu": 1_000} | more)), node("b", cpu=1_000), node("c", cpu=1_000))
    assert [checks.node(state, turn) for turn in range(3)] == ["b", "c", "b"]
    assert checks.node(given(node("a", **({"cpu": 1_000} | more))), 0) is None


def ignoring():
    """Its scheduler ignores nominations; pods have priority 5."""
    return world(shape("s", cpu=3_000, scheduler=STOCK, priority=5), e.NominationsChecked(STOCK, "ignored"))


def test_where_nominations_are_ignored_a_placeholder_has_a_priority_one_below():
    state = evicted(ignoring())
    key = next(key for key in state.stand_ins if key[0] != GUARD)
    state.log = "log"
    made = of_slot(state, key, NOW)
    assert made.spec.priority_class_name == "restow-hold-4"
    assert checks.hold_priority(state, "s") == 4
    said(state, "honoured")
    assert of_slot(state, key, NOW).spec.priority_class_name == "restow-hold-5"
    assert made.metadata.labels[LOG] == "log"


def test_where_nominations_are_ignored_the_successor_preempts_its_placeholder_which_stays_until_then():
    state = ignoring()
    then(state, shape("h", cpu=3_000, scheduler=STOCK, priority=4))
    state = evicted(state)
    then(state, *[e.PodObserved(**{f: getattr(placeholder(state), f) for f in placeholder(state).__struct_fields__} | {"shape": "h"})])
    then(state, changed("h", node="b", phase="Running", ready=True))
    successor(state)
    assert session_owes(state) == [Land("p2", "b")]
    assert placeholder_of(state, "p2") is None, "the effect deletes nobody"
    then(state, pod("p2", "s"))
    assert DeletePlaceholder("h") not in session_owes(state), "its gate is gone, and it is not bound: the scheduler looks for whom to preempt"
    then(state, changed("p2", node="b"))
    assert session_owes(state) == [DeletePlaceholder("h")], "elsewhere, or there: it is of no use any more"
