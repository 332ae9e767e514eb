"""The saga of a migration, as one table: at each stage the first fact that is so says what is decided. `make saga` prints it into
docs/saga.md.

planned → holding → held → evicting → evicted → landed, or rolled back. Three rules carry the promise that no pod is lost:

* Nothing is evicted before the session holds its slot, and a slot that is lost before the eviction ends the migration.
* Nor before its workload has agreed, where that is to be asked: silence is assent only where its hook says so.
* Once an eviction may have been sent (`evicting`), only `aborting` leads back, and only when the pod is marked, so that
  no late eviction can succeed. A pod that ends meanwhile counts as evicted: its successor takes the slot. Where the API
  does not take the mark for `abort_deadline`, it ends as `NotMarked`: that is longer than a request lives, so that
  only a process that was frozen in between could still evict the pod, and then its controller makes it again.

After the eviction the pod cannot be had back. Where its slot is lost then, it turns back: its successor gets the capacity at the old
node, as soon as that is known, also while the pod terminates, so that what it leaves goes to nobody else. A successor that fits
anywhere meanwhile goes there. `failed` then means that the successor did not come up on its slot in time, which counts from when the
pod has gone (RULES G-14); it runs, or waits, like any other pod. A successor that is on its slot keeps the capacity, so nothing leaks.
"""

from enum import StrEnum

from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId
from restow.domain.migration import consents, victim
from restow.domain.migration import facts as f
from restow.domain.migration.case import Answer, Case, Stage
from restow.domain.migration.facts import Fact, Said
from restow.domain.migration.limits import Limits
from restow.domain.migration.other_pods import OtherPods
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import WORKLOAD_REFUSED

Events = tuple[e.Event, ...]


class Then(StrEnum):
    """The event that is decided. `evicted` is `removed` where nothing was held."""

    WAITS = "(waits)"
    WAITS_FOR_MOVES = "(waits for other moves)"
    WAITS_FIRST = "(waits, and no later move begins before it)"
    HOLDING = "holding"
    HELD = "held"
    ASKED = "consent_asked"
    AGREED = "consent_given"
    EVICTING = "evicting"
    EVICTED = "evicted"
    LANDED = "landed"
    ABORTING = "aborting"
    TURNING_BACK = "turning_back"
    FAILED = "failed"
    NOT_RECREATED = "not_recreated"


_WAITING = (Then.WAITS, Then.WAITS_FOR_MOVES, Then.WAITS_FIRST)


def _events(case: Case, then: Then, said: Said) -> Events:
    id, config, now = case.id, case.state.migration_config, case.now
    reason, message = said if isinstance(said, tuple) else ("", "")
    match then:
        case Then.HOLDING:
            return (e.Holding(id, Millis(now + config.hold_deadline)),)
        case Then.HELD:
            return (e.Held(id),)
        case Then.ASKED:
            return (consents.asked(case.state, case.migration, now),)
        case Then.AGREED:
            return (e.ConsentGiven(id, *case.silence),)
        case Then.EVICTING:
            first = (e.Held(id),) if case.migration.step is Step.HOLDING else ()
            return (*first, e.Evicting(id, Millis(now + config.evicts_for)))
        case Then.EVICTED:
            return (e.Removed(id) if victim.is_only_evicted(case.migration) else e.Evicted(id, Millis(now + config.land_deadline)),)
        case Then.LANDED:
            return (*consents.on_landing(case.state, case.migration, now), e.Landed(id, case.migration.successor, case.move.target))
        case Then.ABORTING:
            return (e.Aborting(id, reason, message),)
        case Then.TURNING_BACK:
            return (e.TurningBack(id, Millis(now + config.land_deadline), reason, message),)
        case Then.FAILED:
            refusal = case.refusal if reason == WORKLOAD_REFUSED else ()
            return (*refusal, *consents.on_failure(case.state, case.migration, reason, now), e.MigrationFailed(id, reason, message))
        case Then.NOT_RECREATED:
            return (e.NotRecreated(id),)
    return ()


# -- the table -----------------------------------------------------------------------------------------------------------

Rows = tuple[tuple[Fact, Then], ...]

NEVER: Rows = (
    (f.POD_TAKEN, Then.FAILED),
    (f.PLAN_CANCELLED, Then.FAILED),
    (f.FIRST_FAILED, Then.FAILED),
    (f.ANOTHER_STAYS, Then.FAILED),
)
"""Why it never begins, whatever the cluster does."""
STOPPED: Rows = (
    (f.SUCCESSOR_CAME, Then.EVICTED),
    (f.PLAN_CANCELLED, Then.FAILED),
    (f.POD_UNFIT, Then.FAILED),
    (f.HOLD_FAILS, Then.FAILED),
    (f.ANOTHER_STAYS, Then.FAILED),
    (f.OVER_EVICTION_BUDGET, Then.FAILED),
)
LOST: Rows = (
    (f.SLOT_VOID, Then.FAILED),
    (f.SLOT_REGAINED, Then.TURNING_BACK),
    (f.SUCCESSOR_TO_COME, Then.WAITS),
)

SAGA: dict[Stage, Rows] = {
    Stage.PLANNED: (
        *NEVER,
        (f.NO_TURN, Then.WAITS),
        (f.OVER_EVICTION_BUDGET, Then.FAILED),
        (f.POD_UNFIT, Then.FAILED),
        (f.TARGET_LOST, Then.FAILED),
        (f.OTHERS_FIRST, Then.WAITS_FOR_MOVES),
        (f.LIMITS_REACHED, Then.WAITS),
        (f.LIMITS_REFUSE, Then.FAILED),
        (f.TARGET_FULL, Then.FAILED),
        (f.OTHERWISE, Then.HOLDING),
    ),
    Stage.PLANNED_WHOLE: (
        *NEVER,
        (f.SLOTS_NOT_HELD, Then.WAITS),
        (f.OVER_EVICTION_BUDGET, Then.FAILED),
        (f.NODE_HAS_NO_TURN, Then.WAITS_FIRST),
        (f.POD_UNFIT, Then.FAILED),
        (f.TARGET_LOST, Then.FAILED),
        (f.LIMITS_REFUSE_FOR_GOOD, Then.FAILED),
        (f.TARGET_FULL, Then.FAILED),
        (f.OTHERWISE, Then.HOLDING),
    ),
    Stage.PLANNED_ALONE: (
        *NEVER,
        (f.NO_TURN, Then.WAITS),
        (f.OVER_EVICTION_BUDGET, Then.FAILED),
        (f.POD_UNFIT_TO_EVICT, Then.FAILED),
        (f.LIMITS_REACHED, Then.WAITS),
        (f.LIMITS_REFUSE, Then.FAILED),
        (f.OTHERWISE, Then.EVICTING),
    ),
    Stage.HOLDING: (
        *STOPPED,
        (f.SLOT_WAITS_FOR_NODE, Then.HELD),
        (f.MAY_GO, Then.EVICTING),
        (f.HOLD_LATE, Then.FAILED),
        (f.SLOT_HELD, Then.HELD),
    ),
    Stage.HELD: (
        *STOPPED,
        (f.SLOT_USELESS, Then.FAILED),
        (f.TO_BE_ASKED, Then.ASKED),
        (f.NODE_WAITS, Then.WAITS),
        (f.MAY_GO, Then.EVICTING),
        (f.TURN_LATE, Then.FAILED),
    ),
    Stage.ASKED: (
        *STOPPED,
        (f.SLOT_USELESS, Then.FAILED),
        (f.WORD_REFUSES, Then.FAILED),
        (f.WORD_AGREES, Then.AGREED),
        (f.SILENCE_AGREES, Then.AGREED),
        (f.NO_WORD_CAME, Then.FAILED),
    ),
    Stage.EVICTING: (
        (f.POD_LEFT, Then.EVICTED),
        (f.POD_FINISHED, Then.ABORTING),
        (f.PLAN_CANCELLED, Then.ABORTING),
        (f.POD_CHANGED, Then.ABORTING),
        (f.ANOTHER_STAYS, Then.ABORTING),
        (f.GANG_BROKEN, Then.ABORTING),
        (f.SLOT_LOST, Then.ABORTING),
        (f.HOLD_FAILS, Then.ABORTING),
        (f.EVICTION_LATE, Then.ABORTING),
    ),
    Stage.EVICTING_ALONE: (
        (f.POD_LEFT, Then.EVICTED),
        (f.PLAN_CANCELLED, Then.ABORTING),
        (f.POD_UNFIT_TO_EVICT, Then.ABORTING),
        (f.GANG_BROKEN, Then.ABORTING),
        (f.EVICTION_LATE, Then.ABORTING),
    ),
    Stage.ABORTING: (
        (f.POD_LEFT, Then.EVICTED),
        (f.MARK_LATE, Then.FAILED),
    ),
    Stage.EVICTED: (
        (f.JOB_IS_DONE, Then.FAILED),
        (f.NO_MORE_WANTED, Then.FAILED),
        *LOST,
        (f.SUCCESSOR_WENT, Then.FAILED),
        (f.SUCCESSOR_GATED, Then.FAILED),
        (f.SUCCESSOR_KEPT_OUT, Then.FAILED),
        (f.SUCCESSOR_TURNED_AWAY, Then.FAILED),
        (f.SUCCESSOR_WAITS, Then.FAILED),
        (f.NOBODY_CAME, Then.NOT_RECREATED),
    ),
    Stage.TURNED_BACK: (
        (f.JOB_IS_DONE, Then.FAILED),
        (f.NO_MORE_WANTED, Then.FAILED),
        (f.OLD_NODE_LOST, Then.FAILED),
        (f.OLD_SLOT_LOST, Then.FAILED),
        (f.OLD_NODE_GIVEN_UP, Then.FAILED),
        (f.NO_SLOT_NEEDED, Then.FAILED),
        (f.RETURN_LATE, Then.FAILED),
    ),
    Stage.LANDING: (
        (f.SUCCESSOR_BACK, Then.FAILED),
        (f.SUCCESSOR_READY, Then.LANDED),
        (f.SUCCESSOR_NOT_WANTED, Then.FAILED),
        *LOST,
        (f.SUCCESSOR_GONE, Then.FAILED),
        (f.SUCCESSOR_ELSEWHERE, Then.FAILED),
        (f.SUCCESSOR_FINISHED, Then.FAILED),
        (f.SUCCESSOR_LATE, Then.FAILED),
    ),
}
"""What is decided whenever something has happened, or a deadline has passed."""

ON_ANSWER: dict[Stage, Rows] = {
    Stage.HOLDING: ((f.HOLD_REFUSED, Then.FAILED),),
    Stage.TURNED_BACK: ((f.RETURN_REFUSED, Then.FAILED),),
    Stage.ASKED: (
        (f.SAYS_NO, Then.FAILED),
        (f.SAYS_YES, Then.AGREED),
        (f.SAYS_NOTHING, Then.AGREED),
        (f.SAID_NOTHING, Then.FAILED),
    ),
    Stage.EVICTING: (
        (f.EVICTED_BEFORE, Then.EVICTED),
        (f.NOT_MARKED_BEFORE, Then.WAITS),
        (f.BUDGET_WAITS, Then.WAITS),
        (f.GATE_WAITS, Then.WAITS),
        (f.MARKED_BEFORE, Then.ABORTING),
        (f.EVICTION_REFUSED, Then.ABORTING),
    ),
    Stage.ABORTING: (
        (f.EVICTED_BEFORE, Then.EVICTED),
        (f.MARK_REFUSED, Then.FAILED),
        (f.MARKED, Then.FAILED),
    ),
}
"""What is decided on an answer of the API, or of the workload."""
ON_ANSWER[Stage.EVICTING_ALONE] = ON_ANSWER[Stage.EVICTING]


def first(case: Case, rows: Rows) -> tuple[Then, Events]:
    """What the first fact leads to that is so."""
    for fact, then in rows:
        if said := fact.holds(case):
            return then, () if then in _WAITING else _events(case, then, said)
    return Then.WAITS, ()


def step(case: Case) -> Events:
    """What happens next to an active migration; nothing where it waits."""
    return first(case, SAGA.get(case.stage, ()))[1]


def answered(state: ClusterState, migration: Migration, answer: Answer) -> Events:
    with OtherPods(state, answer.time) as others:
        case = Case(state, migration, answer.time, Limits(state, answer.time), others)
        case.answer = answer
        return first(case, ON_ANSWER.get(case.stage, ()))[1]


def may_end(state: ClusterState, migration: Migration) -> bool:
    """Whether any fact of `NEVER` can be so of it. Asked first: there may be thousands of planned moves, and all are looked at after every fold."""
    move, known = migration.move, state.plans.get(PlanId(migration.plan))
    if migration.reason or migration.plan in state.cancelled or move.after or move.follows or move.gang:
        return True
    return known is not None and (known.planned.whole or bool(known.planned.gang))


def never(case: Case) -> bool:
    return any(fact.holds(case) for fact, _ in NEVER)


def page() -> str:
    """The table in Markdown."""
    parts = [_PREFACE]
    for title, table in (("When something has happened, or a deadline has passed", SAGA), ("When the API, or the workload, has answered", ON_ANSWER)):
        parts.append(f"## {title}\n")
        for stage, rows in table.items():
            lines = [f"| {fact.text} | {then if then[0] == '(' else f'`{then}`'} |" for fact, then in rows]
            parts.append("\n".join([f"### {stage[0].upper()}{stage[1:]}\n", "| first true fact | decision |", "|---|---|", *lines]) + "\n")
    return "\n".join(parts)


_PREFACE = """<!-- Generated by `make saga` from libs/restow/domain/migration/saga.py; do not edit. -->

# The saga of a migration

What the descheduler decides about a migration at each stage. Facts are checked from the top, and the first true one decides. If none is true,
the migration waits. A pod evicted without a hold ends as `removed`, not as `evicted`. [Migrations](migrations.md) explains the stages; [troubleshooting](troubleshooting.md) explains the reasons.
"""
