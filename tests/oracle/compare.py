"""The session's answer beside the oracle's: the same nodes, the same devices and volumes, the same pods left over, the
same counts of reasons."""

import copy
from collections.abc import Iterable

from oracle.schedule import Placement, Result, Rules, run
from oracle.world import World
from restow.contracts import events as e
from restow.domain.state import ClusterState


def placements(events: Iterable[e.Event]) -> dict[str, Placement]:
    return {x.pod: Placement(x.node, x.devices, x.volumes) for x in events if isinstance(x, e.PodPlaced)}


def left_over(events: Iterable[e.Event]) -> set[str]:
    """Pods that the session says are waiting."""
    return {pod for x in events if isinstance(x, e.Unfit | e.Withheld) for pod in x.pods}


def differences(facts: Iterable[e.Event], events: list[e.Event], rules: Rules) -> list[str]:
    """What is not equal, in words; nothing where the session is right.

    `facts` are the whole world before the session, `events` what it decided. An Unfit carries the counts of the first pod of
    its list, as the oracle tried it."""
    return differences_from(World.of(facts), events, rules)


def differences_from(world: World, events: list[e.Event], rules: Rules) -> list[str]:
    after = copy.copy(world)
    after.back_to(world.mark())
    expected = run(after, rules)
    return [
        *different_placements(expected, placements(events)),
        *different_waiting({*expected.unfit, *expected.withheld}, left_over(events)),
        *different_reasons(after, expected, events),
    ]


def compare(state: ClusterState, events: list[e.Event], world: World, rules: Rules) -> None:
    """Fails with all that differs. `world` is as before the session, `events` what it decided, `state` as folded from
    both: its node table must say of every node what the oracle counts."""
    found = differences_from(world, events, rules)
    for event in events:
        world.observe(event)
    found += different_table(state, world)
    assert not found, "\n".join(found)


def different_table(state: ClusterState, world: World) -> list[str]:
    """Free capacity and devices of every node, by the table and by going through all pods."""
    found = []
    for name, node in world.nodes.items():
        row = state.table.rows[name]
        for resource in sorted(node.allocatable):
            theirs, mine = int(state.table.free[row, state.table.columns[resource]]), world.free(name, resource)
            if theirs != mine:
                found.append(f"{name}: {resource} free {mine}, the table says {theirs}")
        devices = [int(milli) for milli in state.table.device_free[row][: node.devices]]
        if devices != world.device_free(name):
            found.append(f"{name}: devices {world.device_free(name)}, the table says {devices}")
    return found


def different_placements(expected: Result, got: dict[str, Placement]) -> list[str]:
    found = []
    for uid in sorted({*expected.placed, *got}):
        mine, theirs = expected.placed.get(uid), got.get(uid)
        if mine is None or theirs is None or (mine.node, mine.devices) != (theirs.node, theirs.devices):
            found.append(f"{uid}: oracle {mine}, session {theirs}")
        elif set(mine.volumes) != set(theirs.volumes):
            found.append(f"{uid}: oracle's volumes {mine.volumes}, session's {theirs.volumes}")
    return found


def different_waiting(expected: set[str], got: set[str]) -> list[str]:
    return [
        *(f"{uid}: waits, and the session does not say so" for uid in sorted(expected - got)),
        *(f"{uid}: the session says that it waits, and it does not" for uid in sorted(got - expected)),
    ]


def different_reasons(world: World, expected: Result, events: list[e.Event]) -> list[str]:
    """Only for pods that the oracle tried in vain; what else a pod waits for is not about nodes."""
    found = []
    for told in events:
        if not isinstance(told, e.Unfit):
            continue
        if told.nodes != len(world.nodes):
            found.append(f"{told.pods}: the session counted {told.nodes} nodes of {len(world.nodes)}")
        tried = [uid for uid in told.pods if uid in expected.unfit]
        if not tried:
            found.append(f"{told.pods}: unfit says the session; the oracle says {[expected.withheld.get(p) for p in told.pods]}")
            continue
        counts = expected.unfit[tried[0]]
        if counts != told.reasons:
            found.append(f"{told.pods}: oracle {counts}, session {told.reasons}")
    return found
