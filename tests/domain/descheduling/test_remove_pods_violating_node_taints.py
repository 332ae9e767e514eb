"""RemovePodsViolatingNodeTaints: taints of a node that its pods do not tolerate."""

import pytest
from domain.build import given, node, pod, shape
from domain.descheduling.plugin_words import Plugin, reasons
from domain.descheduling_words import WEB

from restow.contracts.values import Taint, Toleration

taints = Plugin("RemovePodsViolatingNodeTaints")
HARD, VALUED, SOFT, NOW_OUT = Taint("a", "NoSchedule"), Taint("a", "NoSchedule", "x"), Taint("a", "PreferNoSchedule"), Taint("a", "NoExecute")
CASES = {
    "not tolerated": ((HARD,), (), {}, True),
    "tolerated": ((HARD,), (Toleration("a", "Exists"),), {}, False),
    "tolerated for one effect, and it is another": ((HARD,), (Toleration("a", "Exists", effect="PreferNoSchedule"),), {}, True),
    "all is tolerated": ((HARD, VALUED), (Toleration(operator="Exists"),), {}, False),
    "one of two": ((HARD, Taint("b", "NoSchedule")), (Toleration("a", "Exists"),), {}, True),
    "another value": ((VALUED,), (Toleration("a", "Equal", "y"),), {}, True),
    "a preference": ((SOFT,), (), {}, False),
    "a preference, included": ((SOFT,), (), {"includePreferNoSchedule": True}, True),
    "NoExecute is not its business": ((NOW_OUT,), (), {"includePreferNoSchedule": True}, False),
    "excluded by key": ((VALUED,), (), {"excludedTaints": ["a"]}, False),
    "excluded by key and value": ((VALUED,), (), {"excludedTaints": ["a=x"]}, False),
    "another value is excluded": ((VALUED,), (), {"excludedTaints": ["a=y"]}, True),
    "a part of a key is none": ((VALUED,), (), {"excludedTaints": ["a="]}, True),
    "included by key": ((VALUED,), (), {"includedTaints": ["a"]}, True),
    "included by key and value": ((VALUED,), (), {"includedTaints": ["a=x"]}, True),
    "another is included": ((VALUED,), (), {"includedTaints": ["b", "a=y"]}, False),
    "included and a preference": ((SOFT,), (), {"includedTaints": ["a"]}, False),
}


@pytest.mark.parametrize(("there", "tolerated", "args", "goes"), CASES.values(), ids=CASES)
def test_which_go(there, tolerated, args, goes):
    state = given(node("n1", taints=there), node("n2"), shape("s", tolerations=tolerated), pod("p", node="n1", owner=WEB))
    assert taints.gone(state, **args) == (["p"] if goes else [])


def test_it_says_which_taint():
    state = given(node("n1", taints=(VALUED,)), node("n2"), shape("s"), pod("p", node="n1", owner=WEB))
    assert reasons(taints(state)) == {"p": "does not tolerate the node's taint a=x:NoSchedule"}


def test_with_node_fit_only_where_another_node_lets_it_in():
    state = given(node("n1", taints=(HARD,)), node("n2", unschedulable=True), shape("s"), pod("p", node="n1", owner=WEB))
    assert taints.gone(state) == ["p"]
    assert taints.gone(state, evictor={"nodeFit": True}) == []


def test_arguments_that_make_no_sense():
    assert taints.refused(excludedTaints=["a"], includedTaints=["b"]) == "includedTaints: excludedTaints is set, too; allowed: one of them"
