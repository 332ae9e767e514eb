"""A status cannot drift: after any history it is what a second, slow reading of the same events says."""

from collections import Counter
from random import Random
from typing import Any

from domain.build import GIB, NOW, node, shape, then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.reservation_history import (
    NODES,
    PODS,
    RESERVATIONS,
    SHAPES,
    TASKS,
    History,
    asked,
    begin,
    fresh,
)
from property.slow_status import Reader

from restow.contracts.times import seconds
from restow.domain import resources as r
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import status
from restow.reservation_cache.gauges import Gauges

COUNTS = {"pending": "Pending", "available": "Available", "waiting": "Waiting", "succeeded": "Succeeded", "failed": "Failed"}
OPENING = [
    *(node(n, cpu=1_000_000, memory=640 * GIB) for n in NODES),
    *(shape(name, cpu=amount) for name, amount in SHAPES.items()),
    *(fresh(p) for p in PODS),
    *(asked(uid) for uid in RESERVATIONS),
]


def compare(uid: str, written: dict[str, Any], said: dict[str, Any]) -> None:
    """What the status has, beside what the events say."""
    owners = [(o["namespace"], o["name"], o["uid"]) for o in written["currentOwners"]]
    assert (written["phase"], owners) == (said["phase"], said["owners"])
    for name in ("allocatable", "allocated"):
        assert written.get(name, {}) == r.quantities(said[name]), name
    if uid == TASKS:
        assert {"phase": written["state"]["phase"], "reason": written["state"].get("reason", "")} == {
            "phase": said["phase"], "reason": said["reason"],
        }  # fmt: skip
        assert {key: written[key] for key in COUNTS} == {key: said["counts"][phase] for key, phase in COUNTS.items()}
        per = Counter({phase: n for task in written["taskStatusCount"].values() for phase, n in task["phase"].items()})
        assert per == said["counts"]
        assert sorted((c["status"], c["lastTransitionTime"]) for c in written["conditions"]) == [
            (phase, seconds(at)) for phase, at in said["history"]
        ]
        assert sorted(p["nodeName"] for p in written["slots"] if "nodeName" in p) == said["nodes"]
        return
    assert ([written["nodeName"]] if "nodeName" in written else []) == said["nodes"]
    conditions = {c["type"]: c for c in written["conditions"]}
    assert len(conditions) == len(written["conditions"]) <= 2
    ready = conditions.get("Ready")
    assert (ready is not None and ready["status"] == "True") == (said["phase"] == "Available")
    if said["phase"] in ("Available", "Waiting", "Succeeded"):
        assert (conditions["Scheduled"]["status"], conditions["Scheduled"]["reason"]) == ("True", "Scheduled")
    if ready is not None and said["phase"] != "Pending":
        words = {"Available": "Available", "Succeeded": "Succeeded"}
        assert ready["reason"] == words.get(said["phase"], said["reason"])


@settings(max_examples=examples(40))
@for_all(st.integers(0, 1 << 32))
def test_gauges_that_follow_the_fold_are_what_looking_at_everything_says(seed):
    history, state = History(Random(seed), spacious=False), begin()
    following = Gauges(lambda: state)
    for number in range(80):
        then(state, history.next(state))
        if number % 3 == 0:
            counted = {one.name: dict(one.samples) for one in following.read()}
            anew = {one.name: dict(one.samples) for one in Gauges(lambda: state).read()}
            for name, samples in counted.items():
                assert {k: v for k, v in samples.items() if v} == {k: v for k, v in anew[name].items() if v}


@settings(max_examples=examples(150))
@for_all(st.integers(0, 1 << 32))
def test_the_status_is_what_a_slow_reading_of_the_events_says(seed):
    history, state, reader = History(Random(seed), spacious=True), ClusterState(), Reader()
    for number in range(len(OPENING) + 80):
        event = OPENING[number] if number < len(OPENING) else history.next(state)
        time = NOW + 1_000 * number
        then(state, event, time=time)
        reader.read(event, time)
        assert set(reader.all) == set(state.reservations)
        for uid in state.reservations:
            compare(uid, status(state, uid), reader.said(uid))
