"""RemovePodsHavingTooManyRestarts: the sum over containers, and on each node the worst first."""

import pytest
from domain.build import given, node, pod, shape
from domain.descheduling.plugin_words import Plugin, kept
from domain.descheduling_words import WEB

from restow.contracts import events as e
from restow.contracts.values import ContainerTrouble

restarts = Plugin("RemovePodsHavingTooManyRestarts")
WORLD = (node("n1"), node("n2"), shape("s"))


def one(name, *counts, at="n1", init=0, waiting="", **more):
    troubles = [ContainerTrouble(f"c{i}", restarts=n, waiting=waiting) for i, n in enumerate(counts)]
    if init:
        troubles.append(ContainerTrouble("i", "init", init, waiting))
    return pod(name, node=at, owner=WEB, **more), e.PodTroubled(name, tuple(troubles))


def test_restarts_are_added_up():
    state = given(*WORLD, *one("a", 3, 2), *one("b", 4), *one("c", 5), pod("d", node="n1", owner=WEB))
    outcome = restarts(state, podRestartThreshold=5)
    assert [x.pod for x in outcome.evictions] == ["a", "c"]
    assert outcome.evictions[0].reason == "5 restarts; 5 are too many"
    assert kept(outcome) == {"b": "Restarts: 4; 5 are too many"}, "of one that never restarted nothing is said"


def test_init_containers_count_where_they_are_included():
    state = given(*WORLD, *one("a", 3, init=2))
    assert restarts.gone(state, podRestartThreshold=5) == []
    assert restarts.gone(state, podRestartThreshold=5, includingInitContainers=True) == ["a"]


def test_on_each_node_the_worst_go_first():
    state = given(*WORLD, *one("a", 5), *one("b", 9), *one("c", 7), *one("d", 6, at="n2"))
    assert restarts.gone(state, podRestartThreshold=5) == ["b", "c", "a", "d"]
    outcome = restarts(state, limits={"maxNoOfPodsToEvictPerNode": 1}, podRestartThreshold=5)
    assert [x.pod for x in outcome.evictions] == ["b", "d"]
    assert set(kept(outcome)) == {"a", "c"}


PENDING = pod("p", node="n1", owner=WEB, phase="Pending")
LOOPS = e.PodTroubled("p", (ContainerTrouble("c", restarts=9), ContainerTrouble("i", "init", 1, "CrashLoopBackOff")))
STATES = {
    "phase": (one("p", 9), ["Running"], {}, True),
    "waiting": (one("p", 9, waiting="CrashLoopBackOff", phase="Pending"), ["CrashLoopBackOff"], {}, True),
    "either": (one("p", 9, phase="Pending"), ["Running", "CrashLoopBackOff"], {}, False),
    "an init container's": ((PENDING, LOOPS), ["CrashLoopBackOff"], {}, False),
    "an init container's, included": ((PENDING, LOOPS), ["CrashLoopBackOff"], {"includingInitContainers": True}, True),
}


@pytest.mark.parametrize(("facts", "states", "more", "goes"), STATES.values(), ids=STATES)
def test_states(facts, states, more, goes):
    assert restarts.gone(given(*WORLD, *facts), podRestartThreshold=5, states=states, **more) == (["p"] if goes else [])


def test_arguments_that_make_no_sense():
    assert restarts.refused() == "podRestartThreshold: 0; allowed: 1 and more"
    assert restarts.refused(podRestartThreshold=1, states=["Pending"]) == "states[0]: 'Pending'; allowed: Running, CrashLoopBackOff"
