"""The session's answer beside the oracle's: the same nodes, the same devices and volumes, the same pods left over, the
same counts of reasons."""

from collections.abc import Iterable

from oracle.filters import reason_counts
from oracle.schedule import Placement, Result, Rules, run
from oracle.world import World
from restow.contracts import events as e


def placements(events: Iterable[e.Event]) -> dict[str, Placement]:
    return {x.pod: Placement(x.node, x.devices, x.volumes) for x in events if isinstance(x, e.PodPlaced)}


def left_over(events: Iterable[e.Event]) -> set[str]:
    """Pods that the session says are waiting."""
    return {pod for x in events if isinstance(x, e.Unfit | e.Withheld) for pod in x.pods}


def differences(facts: Iterable[e.Event], events: list[e.Event], rules: Rules, moment: str = "first") -> list[str]:
    """What is not equal, in words; nothing where the session is right.

    `facts` are the whole world before the session, `events` what it decided. `moment`: whose counts an Unfit carries, those
    of the `first` pod of its list as the oracle tried it, or those at the `end` of the session."""
    world = World.of(facts)
    nodes = len(world.nodes)
    expected = run(world, rules)
    return [
        *different_placements(expected, placements(events)),
        *different_waiting({*expected.unfit, *expected.withheld}, left_over(events)),
        *different_reasons(world, expected, events, rules, moment, nodes),
    ]


def different_placements(expected: Result, got: dict[str, Placement]) -> list[str]:
    found = []
    for uid in sorted({*expected.placed, *got}):
        mine, theirs = expected.placed.get(uid), got.get(uid)
        if mine is None or theirs is None or (mine.node, mine.devices) != (theirs.node, theirs.devices):
            found.append(f"{uid}: oracle {mine}, session {theirs}")
        elif sorted(c.claim for c in mine.volumes) != sorted(c.claim for c in theirs.volumes) or set(mine.volumes) != set(theirs.volumes):
            found.append(f"{uid}: oracle's volumes {mine.volumes}, session's {theirs.volumes}")
    return found


def different_waiting(expected: set[str], got: set[str]) -> list[str]:
    return [
        *(f"{uid}: waits, and the session does not say so" for uid in sorted(expected - got)),
        *(f"{uid}: the session says that it waits, and it does not" for uid in sorted(got - expected)),
    ]


def different_reasons(
    world: World, expected: Result, events: list[e.Event], rules: Rules, moment: str, nodes: int
) -> list[str]:
    """Only for pods that the oracle tried in vain; what else a pod waits for is not about nodes."""
    found = []
    for told in events:
        if not isinstance(told, e.Unfit):
            continue
        if told.nodes != nodes:
            found.append(f"{told.pods}: the session counted {told.nodes} nodes of {nodes}")
        tried = [uid for uid in told.pods if uid in expected.unfit]
        if not tried:
            found.append(f"{told.pods}: unfit says the session; the oracle says {[expected.withheld.get(p) for p in told.pods]}")
            continue
        counts = expected.unfit[tried[0]] if moment == "first" else reason_counts(world, world.pods[tried[0]], rules.filters)
        if counts != told.reasons:
            found.append(f"{told.pods}: oracle {counts}, session {told.reasons}")
    return found
