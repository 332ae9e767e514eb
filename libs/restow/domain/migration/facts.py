"""What may be so of a migration, for the table of the saga: facts that follow from the state, the clock and what the API has answered."""

from collections.abc import Callable
from typing import NamedTuple

from restow.contracts import commands as c
from restow.domain.migration import consents, demand_slots, gating, holds, plan_order, successor, victim
from restow.domain.migration.case import Case
from restow.domain.migration.deadlines import aborts_until
from restow.domain.migration.eviction import cancelled, has_slot, not_held, waits_for_budget
from restow.domain.migration.holds import Reason
from restow.domain.migration.other_pods import COMPANY
from restow.domain.records import Migration
from restow.domain.session.successor_refusals import turned_away
from restow.domain.verdicts import NOT_ADMITTED, NOT_GATED, NOT_NEEDED, ended

NOT_MARKED = "NotMarked"

Said = Reason | str | bool | None
"""Whether it is so, and, where that ends something, the reason."""


class Fact(NamedTuple):
    """`text` says it of the migration."""

    text: str
    holds: Callable[[Case], Said]


# -- facts: before it begins ---------------------------------------------------------------------------------------------

POD_TAKEN = Fact("an earlier plan moves its pod", lambda case: case.said() if case.migration.reason else None)
PLAN_CANCELLED = Fact("its plan is cancelled", lambda case: cancelled(case.state, case.migration))
FIRST_FAILED = Fact("a move that had to land before it has ended otherwise", lambda case: plan_order.broken(case.state, case.migration))
ANOTHER_STAYS = Fact("with `wholeNodes`, another pod of its node stays; or another pod of the gang that is moved as one", lambda case: case.limits.whole.broken(case.migration))
NO_TURN = Fact("the limit of migrations under way is reached, or a node with many pods waits for its turn", lambda case: case.limits.free <= 0 or case.is_full)
NODE_HAS_NO_TURN = Fact("all moves of its node, or of its gang, begin together, and there are more of them than may begin now",
                        lambda case: not case.limits.may_begin_node(case.migration, case.is_full))
POD_UNFIT = Fact("its pod has ended, is elsewhere, or may no longer be moved",
                 lambda case: victim.unfit(case.state, case.migration) if case.move.pod else None)
POD_UNFIT_TO_EVICT = Fact("its pod is gone, is elsewhere, or has a controller now", lambda case: victim.unfit_to_evict(case.state, case.migration))
OVER_EVICTION_BUDGET = Fact("an eviction budget of the policy has too little left for it", lambda case: case.limits.over_eviction_budget(case.migration, case.now))
TARGET_LOST = Fact("its target no longer accepts such a pod", lambda case: holds.lost(case.state, case.migration))
SLOTS_NOT_HELD = Fact("the capacity that its plan frees for a waiting pod is not held yet", lambda case: not demand_slots.ready(case.state, case.migration))
OTHERS_FIRST = Fact("other moves must land first, hold their slots first, or leave what it takes", lambda case: not case.may_come)
LIMITS_REACHED = Fact("the moves under way have reached a limit", lambda case: case.limits.must_wait(case.migration, case.now))
LIMITS_REFUSE = Fact("its workload, its gang or a disruption budget cannot spare its pod", lambda case: case.limits.refuses(case.migration))
LIMITS_REFUSE_FOR_GOOD = Fact("its workload, its gang or a disruption budget cannot spare its pod, whatever else is under way",
                              lambda case: case.limits.refuses_for_good(case.migration))
TARGET_FULL = Fact("its target has no capacity for it next to the moves planned before it", lambda case: case.target_full)
OTHERWISE = Fact("(otherwise)", lambda case: True)

# -- facts: before the eviction, and during it ---------------------------------------------------------------------------

SUCCESSOR_CAME = Fact("a successor has taken the slot: the pod left by itself", lambda case: victim.is_followed(case.migration))
POD_LEFT = Fact("its pod terminates, is gone or has failed, or a successor has taken the slot", lambda case: victim.has_ended(case.state, case.migration) or victim.is_followed(case.migration))
HOLD_FAILS = Fact("its slot cannot be held, is not what was promised, or its target no longer accepts such a pod",
                  lambda case: holds.failure(case.state, case.migration))
SLOT_WAITS_FOR_NODE = Fact("its slot is held, and the pods of its node, or of its gang, wait for each other", lambda case: case.may_go and case.is_parked)
NODE_WAITS = Fact("some pods of its node, or of its gang, have no slot yet, or another one of its node goes first",
                  lambda case: case.is_parked and case.limits.waits_for_node(case.migration, case.now))
MAY_GO = Fact("its slot is held, its workload has agreed, if it is to be asked, and limits, disruption budgets and rules about other pods allow the eviction (of a gang, of all its pods at once)",
              lambda case: case.may_leave and case.blocked is None)
TO_BE_ASKED = Fact("its workload is to be asked, and nothing else is in the way", lambda case: case.is_to_be_asked)
WORD_REFUSES = Fact("its workload has refused, on its pod", lambda case: case.word and not case.word.agrees and consents.refusal(case.word.message))
WORD_AGREES = Fact("its workload has agreed, on its pod", lambda case: case.word and case.word.agrees)
SILENCE_AGREES = Fact("its workload was asked on its pod and has not answered in time, and that is assent",
                      lambda case: case.word_late and case.evicts_on_silence and consents.is_requested(case.state, case.migration))
NO_WORD_CAME = Fact("its workload has not answered in time", lambda case: case.word_late and case.silent())
HOLD_LATE = Fact("its time to get a slot, or to be allowed to go, is up",
                 lambda case: case.late and ((case.may_go and case.blocked) or not_held(case.state, case.migration)))
SLOT_HELD = Fact("its slot is held", lambda case: case.may_go)
SLOT_USELESS = Fact("its slot is no longer held, or its target no longer accepts such a pod", lambda case: not has_slot(case.state, case.migration) and case.hold_lost)
SLOT_LOST = Fact("its slot is no longer held", lambda case: not holds.held(case.state, case.migration) and case.hold_lost)
TURN_LATE = Fact("its time to be allowed to go is up", lambda case: case.late and (case.blocked or (None if case.may_go else ended(NOT_GATED))))
POD_FINISHED = Fact("its pod has finished",
                    lambda case: case.phase(case.move.pod) == "Succeeded" and ended("PodFinished"))
POD_CHANGED = Fact("its pod may no longer be moved, or has another controller", lambda case: victim.changed(case.state, case.migration))
GANG_BROKEN = Fact("its gang has lost other pods, or the scheduler evicts some, so that the gang can no longer spare its pod",
                   lambda case: case.limits.breaks_gang(case.migration))
EVICTION_LATE = Fact("its time to be evicted is up", lambda case: case.late and ended("EvictTimeout"))
MARK_LATE = Fact("its time to be marked is up, and the API has not answered", lambda case: case.late and not_marked(case.migration, "nobody has answered"))

# -- facts: after the eviction -------------------------------------------------------------------------------------------

JOB_IS_DONE = Fact("its Job makes no other pod, for it counts this one as done, or has ended; or its owner was deleted", lambda case: case.nobody_makes_another)
NO_MORE_WANTED = Fact("its controller was scaled down or rolled out since, and makes no other pod for it",
                      lambda case: (why := successor.no_more(case.state, case.migration)) and (NOT_NEEDED, why))
SLOT_VOID = Fact("its slot is lost, and a successor has a node, comes too late, or could not run on the old node",
                 lambda case: case.slot_void and not case.may_return and case.slot_void)
SLOT_REGAINED = Fact("its slot is lost, and Restow knows what to hold on the old node",
                     lambda case: case.slot_void if case.may_return and successor.pattern(case.state, case.migration) is not None else None)
SUCCESSOR_TO_COME = Fact("its slot is lost, and its controller has created no successor yet", lambda case: case.slot_void)
SUCCESSOR_WENT = Fact("a successor has another node, and none waits for one; its time to land is up, or no other pod can come",
                      lambda case: case.went_elsewhere)
SUCCESSOR_GATED = Fact("its time to land is up, and a scheduling gate of somebody else keeps a successor that waits",
                       lambda case: case.late_successor and (gates := successor.gates_of_others(case.state, case.late_successor)) and (
                           NOT_ADMITTED, f"{case.name_of(case.late_successor)} is kept by the scheduling gate {gates}"))
SUCCESSOR_KEPT_OUT = Fact("its time to land is up, and rules about other pods keep a successor that waits from the slot",
                          lambda case: case.late_successor and case.others.keep_out(case.migration) and (
                              COMPANY, f"rules about other pods keep {case.name_of(case.late_successor)} from the slot that is held on {case.move.target}"))
SUCCESSOR_TURNED_AWAY = Fact("its time to land is up, and the scheduler does not look at a successor that waits",
                             lambda case: case.late_successor and (why := turned_away(case.state, case.late_successor)) and (
                                 NOT_ADMITTED, f"{case.name_of(case.late_successor)} is not looked at: {why}"))
SUCCESSOR_WAITS = Fact("its time to land is up, and a successor waits",
                       lambda case: case.late_successor and ("NotReady", f"{case.name_of(case.late_successor)} waits, and has not taken its slot on {case.move.target}"))
NOBODY_CAME = Fact("its time to land is up", lambda case: case.late)
OLD_NODE_LOST = Fact("its old node no longer accepts such a pod",
                     lambda case: (why := case.old_node_lost) and case.said(f", and {why[1]}"))
OLD_SLOT_LOST = Fact("the Reservation on its old node has failed, or is gone", lambda case: (
    (case.migration.reservation and not holds.is_open(case.state, case.migration) and not holds.is_new(case.state, case.migration)
    and case.said(f", and its capacity on {case.move.source} was lost")) or None))
OLD_NODE_GIVEN_UP = Fact("of a pod of another scheduler that has gone: others have what it left on the old node, that has not enough any more, or its guard there is gone, as after a kubelet's rejection",
                         lambda case: (why := holds.source_given_up(case.state, case.migration)) and case.said(f", and {why}"))
NO_SLOT_NEEDED = Fact("a successor has found a node, and none waits for one",
                      lambda case: successor.needs_no_slot(case.state, case.migration) and case.said("; its successor found a node, or is gone"))
RETURN_LATE = Fact("its time to get the capacity on the old node is up",
                   lambda case: case.late and case.said(f", and its capacity on {case.move.source} did not come free"))
SUCCESSOR_BACK = Fact("its successor is ready on the old node", lambda case: (
    (case.migration.arrived and case.migration.back and case.said(f"; its successor is back on {case.move.source}")) or None))
SUCCESSOR_READY = Fact("its successor has been ready on the target", lambda case: case.migration.arrived)
SUCCESSOR_NOT_WANTED = Fact("its successor was deleted before it was ready, and its controller makes no other pod",
                            lambda case: case.successor_gone and (
                                case.nobody_makes_another or ((why := successor.no_more(case.state, case.migration)) and (NOT_NEEDED, why))))
SUCCESSOR_GONE = Fact("its successor was deleted before it was ready",
                      lambda case: case.successor_gone and ended("SuccessorGone"))
SUCCESSOR_ELSEWHERE = Fact("its successor runs on another node", lambda case: (
    (node := case.state.pods[case.migration.successor].live.node) is not None and node != case.move.target
    and ("Elsewhere", f"the successor runs on {node}, not on {case.move.target}")))
SUCCESSOR_FINISHED = Fact("its successor finished before it was seen ready", lambda case: (
    case.phase(case.migration.successor) == "Succeeded" and ended("SuccessorFinished")))
SUCCESSOR_LATE = Fact("its successor was not ready in time",
                      lambda case: case.late and ("NotReady", case.unbound(case.migration.successor) or f"the successor is on {case.move.target}, but was not ready in time"))

# -- facts: what the API, or the workload, has answered ------------------------------------------------------------------

HOLD_REFUSED = Fact("the API refuses its Reservation, or to gate its successor", lambda case: case.hold_refused and ("HoldFailed", case.message))
RETURN_REFUSED = Fact("the API refuses its Reservation on the old node",
                      lambda case: case.hold_refused and case.said(f", and its capacity could not be held again: {case.message}"))
SAYS_NO = Fact("its workload refuses", lambda case: consents.refusal(case.message) if case.says("refused") else None)
SAYS_YES = Fact("its workload agrees", lambda case: case.says("agreed") is not None)
SAYS_NOTHING = Fact("its workload has not answered in time, and that is assent", lambda case: case.says("silent") is not None and case.evicts_on_silence and case.asked_in_time)
SAID_NOTHING = Fact("its workload has not answered in time",
                    lambda case: case.silent(case.message) if case.says("silent") and case.asked_in_time else None)
EVICTED_BEFORE = Fact("its pod is gone or terminates (watches are ordered, so its successor is seen after this)",
                      lambda case: case.answered("Gone") or victim.has_ended(case.state, case.migration))
NOT_MARKED_BEFORE = Fact("on an earlier way back, its pod could not be marked", lambda case: case.answered(NOT_MARKED))
BUDGET_WAITS = Fact("a disruption budget does not allow it yet, within `budgetPatience`, or others of its gang, or of ours that it is about, have left", lambda case: (
    case.answered("Budget") and waits_for_budget(case.state, case.migration, case.now)))
GATE_WAITS = Fact("the API does not gate its successor yet, as one that has just started", lambda case: (
    case.answered(NOT_GATED) and case.now < gating.waits_until(case.migration)))
MARKED_BEFORE = Fact("its pod has the mark of an earlier way back, so no eviction can succeed",
                     lambda case: case.answered("Aborted") and ("Refused", case.message or "the pod is marked as aborted"))
EVICTION_REFUSED = Fact("the API refuses the eviction",
                        lambda case: (case.answer.reason, case.message) if isinstance(case.answer, c.ReportEviction) else None)
MARK_REFUSED = Fact("the API has refused the mark for `abortDeadline`", lambda case: (
    case.answered(NOT_MARKED) and case.now >= aborts_until(case.state, case.migration) and not_marked(case.migration, case.message)))
MARKED = Fact("its pod is marked: no late eviction can succeed", lambda case: case.answered("Aborted") and case.said())


def not_marked(migration: Migration, why: str) -> Reason:
    said = f"{migration.reason}: {migration.message}".rstrip(": ")
    return NOT_MARKED, f"{said}; the pod could not be marked, so that a late eviction is not ruled out: {why}"
