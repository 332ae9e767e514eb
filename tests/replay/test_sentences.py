"""What is said of a pod's status."""

import pytest

from restow.contracts import events as e
from restow.contracts.values import ContainerTrouble, PodCondition
from restow.replay.sentences import sentence

AT = 1_767_225_600_000
SAID = {
    "starts": (e.PodChanged("p", "a", "Pending", unready=AT, waiting="ContainerCreating"), "p is Pending, on a, starts: ContainerCreating"),
    "not initialized": (
        e.PodChanged("p", "a", "Pending", unready=AT, initialized=AT, waiting="PodInitializing"),
        "p is Pending, on a, not initialized: PodInitializing",
    ),
    "initialized": (e.PodChanged("p", "a", "Pending", unready=AT, waiting="PodInitializing"), "p is Pending, on a, starts: PodInitializing"),
    "not ready": (e.PodChanged("p", "a", "Running", unready=AT), "p is Running, not ready, on a"),
    "ready": (e.PodChanged("p", "a", "Running", ready=True), "p is Running, ready, on a"),
    "succeeded": (e.PodChanged("p", "a", "Succeeded", unready=AT, initialized=AT), "p is Succeeded, on a"),
    "trouble": (
        e.PodTroubled("p", (ContainerTrouble("c", restarts=2, waiting="CrashLoopBackOff"),), (PodCondition("Ready", "False"),)),
        "p: container c waits: CrashLoopBackOff, 2 restarts; Ready is False",
    ),
    "no more trouble": (e.PodTroubled("p"), "p: nothing out of the ordinary"),
}


@pytest.mark.parametrize(("event", "text"), SAID.values(), ids=SAID)
def test_a_pod_says_how_it_fares(event, text):
    assert sentence(event, {}) == text
