"""Whether another scheduler keeps the capacity of a node for a pod that *we* have nominated to it. The API lets us, and promises nothing. So two
canary pods ask it (`restow.kube.canary`), and what they found is a fact of the log (`session.nominations_checked`): replay knows which promise
held. Before it has spoken for the first time, pods of that scheduler do not move.

Where nominations are ignored, a placeholder has a priority one below its pod's, and the successor gets its slot by preempting it: pods of
equal priority may do so, too, and where the successor fits elsewhere it may go there.
"""

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.contracts.times import doubled
from restow.domain.records import NominationsChecked
from restow.domain.state_maps import Maps

HONOURED, IGNORED, UNKNOWN = "honoured", "ignored", "unknown"
HOLDS = "restow-holds"
"""Where placeholders and canaries are."""
FIRST, LONGEST = 10_000, 3_600_000
"""Milliseconds until a check that came to nothing is made again: at first, doubled each time, and at most."""
DAILY = 86_400_000
"""Milliseconds after which one is made again where nobody says when the scheduler was replaced."""
CANARY = {"cpu": 1, "memory": 1 << 20, "pods": 1}
"""What a canary asks for, in canonical units."""


def schedulers(state: Maps) -> list[str]:
    """Those to be asked: whose pods may be moved, and are not ours."""
    return [name for name in state.migration_config.beside if name not in state.session_config.scheduler_names]


def verdict(state: Maps, scheduler: str) -> str:
    known = state.nominations_checked.get(scheduler)
    return UNKNOWN if known is None else known.said


def due(state: Maps, scheduler: str, leader: str) -> Millis:
    """When it is to be asked again. `leader`: who holds its Lease, empty where nobody says; another one may be of another version."""
    known = state.nominations_checked.get(scheduler)
    if known is None:
        return Millis(0)
    if known.failed:
        return Millis(known.at + doubled(FIRST, known.failed, LONGEST))
    if leader and leader != known.leader:
        return Millis(0)
    return Millis(known.at + DAILY) if not leader else Millis(known.at + 365 * DAILY)


def node(state: Maps, turn: int) -> NodeName | None:
    """Where the canaries try it: a node that takes pods and has room for one more. `turn`: another one where there is one."""
    table, wanted = state.table, {state.table.columns[name]: amount for name, amount in CANARY.items() if name in state.table.columns}
    fit = [
        name
        for name, fact in state.nodes.items()
        if fact.ready and not fact.unschedulable and name in table.rows
        and all(table.free[table.rows[name], column] >= amount for column, amount in wanted.items())
    ]  # fmt: skip
    return sorted(fit)[turn % len(fit)] if fit else None


def obstacle(state: Maps) -> str:
    """Why nobody can be asked yet: empty where it can be tried."""
    if HOLDS not in state.namespaces:
        return f"namespace {HOLDS} is not there (is deploy/beside applied?)"
    return "" if node(state, 0) is not None else "no node takes another pod"


def decide(said: c.ReportNominations) -> tuple[e.Event, ...]:
    return (e.NominationsChecked(said.scheduler, said.said, said.why, said.leader),)


def checked(state: Maps, event: e.NominationsChecked) -> None:
    """What is known stays known where a later check came to nothing."""
    before = state.nominations_checked.get(event.scheduler)
    failed = 0
    said, leader = event.said, event.leader
    if event.said not in (HONOURED, IGNORED):
        failed = 1 if before is None else before.failed + 1
        said, leader = (UNKNOWN, event.leader) if before is None else (before.said, before.leader)
    state.put(state.nominations_checked, event.scheduler, NominationsChecked(said, event.why, leader, Millis(state.time), failed))


# -- the weaker promise --------------------------------------------------------------------------------------------------


def hold_priority(state: Maps, shape: ShapeId) -> int:
    """Of a placeholder for pods of this shape."""
    known = state.shapes[shape]
    return known.priority - (verdict(state, known.scheduler) == IGNORED)


def gives_way(state: Maps, placeholder: PodUid, successor: PodUid) -> bool:
    """Whether the successor gets the slot by preempting its placeholder, which is therefore left there."""
    held, taker = state.shapes[state.pods[placeholder].fact.shape], state.shapes[state.pods[successor].fact.shape]
    return held.priority < taker.priority and taker.preemption != "Never"


def sentence(state: Maps, scheduler: str) -> str:
    """What is to be said of it; empty where nominations are honoured."""
    known, said = state.nominations_checked.get(scheduler), verdict(state, scheduler)
    if said == IGNORED:
        return f"{scheduler} ignores nominations: the successor takes a slot by preempting its placeholder, pods of equal priority may take it first, and the successor may land elsewhere"
    if said == UNKNOWN:
        why = obstacle(state) or ("" if known is None else known.why)
        why = f": {why}" if why else ""
        return f"whether {scheduler} honours nominations is not known{why}; until it is, its pods do not move"
    return ""
