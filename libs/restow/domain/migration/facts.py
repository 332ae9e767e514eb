"""What may be so of a migration, for the table of the saga: facts that follow from the state, the clock and what the API has answered."""

from collections.abc import Callable, Container
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, PodUid
from restow.contracts.times import bounded
from restow.domain import hooks
from restow.domain.beside import guards, is_beside
from restow.domain.migration import consents, demand_slots, gating, holds, plan_order, successor, victim
from restow.domain.migration.deadlines import aborts_until, deadline, lands_until
from restow.domain.migration.holds import Reason
from restow.domain.migration.limits import Limits
from restow.domain.migration.other_pods import COMPANY, OtherPods
from restow.domain.migration.whole_nodes import Source, Whole, is_of_gang
from restow.domain.pod_controllers import is_last
from restow.domain.promised_slots import fits
from restow.domain.records import Migration, Step
from restow.domain.session.successor_refusals import turned_away
from restow.domain.state import ClusterState
from restow.domain.verdicts import JOB_ENDED, NOT_ADMITTED, NOT_GATED, NOT_NEEDED, ended

Answer = c.ReportHold | c.ReportEviction | c.ReportConsent
"""What the API, or a workload, has said to what was asked of it."""

CANCELLED = "Cancelled"
NOT_MARKED = "NotMarked"


class Stage(StrEnum):
    """A step of the saga, as far as other facts count there."""

    PLANNED = "planned"
    PLANNED_WHOLE = "planned, with `wholeNodes` or of a gang that is moved as one, and waiting for no other move"
    PLANNED_ALONE = "planned, to be evicted without a hold"
    HOLDING = "holding"
    HELD = "held"
    ASKED = "held, and its workload is asked"
    EVICTING = "evicting"
    EVICTING_ALONE = "evicting, without a hold"
    ABORTING = "aborting"
    EVICTED = "evicted"
    TURNED_BACK = "evicted, and turned back to the old node"
    LANDING = "evicted, and a successor has taken the slot"
    OVER = "over"


_OF_STEP = {Step(stage): stage for stage in (Stage.HOLDING, Stage.HELD, Stage.EVICTING, Stage.ABORTING, Stage.EVICTED)}


class Case:
    """A migration as one decision looks at it. Of one that is to begin `before` are those that were planned before it, and
    `is_full` says that none of them leaves it a turn."""

    answer: Answer | None = None

    def __init__(
        self,
        state: ClusterState,
        migration: Migration,
        now: Millis,
        limits: Limits,
        others: OtherPods,
        before: Container[MigrationId] = (),
        is_full: bool = False,
    ) -> None:
        self.state, self.migration, self.now, self.limits, self.others = state, migration, now, limits, others
        self.move, self.id = migration.move, migration.id
        self.before, self.is_full = before, is_full

    @property
    def stage(self) -> Stage:
        migration = self.migration
        if migration.step is Step.PLANNED:
            if self.limits.whole.holds_first(migration):
                return Stage.PLANNED_WHOLE
            return Stage.PLANNED_ALONE if victim.is_only_evicted(migration) else Stage.PLANNED
        if consents.is_waited_for(self.state, migration):
            return Stage.ASKED
        if migration.step is Step.EVICTING and victim.is_only_evicted(migration):
            return Stage.EVICTING_ALONE
        if migration.step is Step.EVICTED and migration.successor:
            return Stage.LANDING
        if migration.step is Step.EVICTED and migration.back:
            return Stage.TURNED_BACK
        return _OF_STEP.get(migration.step, Stage.OVER)

    # -- what facts ask --------------------------------------------------------------------------------------------------

    @property
    def is_parked(self) -> bool:
        return self.limits.is_parked(self.id)

    @property
    def late(self) -> bool:
        """Whether its deadline has passed."""
        if self.migration.step is Step.HELD and self.is_parked:
            return self.now >= self.limits.until(self.migration)
        return self.now >= deadline(self.state, self.migration)

    @property
    def target_full(self) -> Reason | None:
        return None if fits(self.state, self.migration, self.before) else ("NoCapacity", f"node {self.move.target} has no capacity for the pod any more")

    @cached_property
    def may_go(self) -> bool:
        return may_evict(self.state, self.migration)

    @property
    def is_to_be_asked(self) -> bool:
        """Whether it is time to ask its workload: nothing else is in the way, be it that its node waits for its workloads."""
        if consents.has_word(self.state, self.migration) or not self.may_go:
            return False
        return self.limits.whole.all_hold(self.migration) if self.is_parked else self.blocked is None

    @property
    def may_leave(self) -> bool:
        """Whether it may go, and its workload lets it."""
        return self.may_go and consents.has_word(self.state, self.migration)

    @property
    def word(self) -> hooks.Word | None:
        """What its workload has answered on its pod."""
        return consents.annotated(self.state, self.migration)

    @property
    def word_late(self) -> bool:
        return self.now >= deadline(self.state, self.migration)

    @property
    def asked_in_time(self) -> bool:
        """Whether its workload has had its time."""
        return self.now >= self.state.consents[self.id].deadline

    @property
    def evicts_on_silence(self) -> bool:
        return self.state.consents[self.id].evicts_on_silence

    @property
    def silence(self) -> tuple[bool, str]:
        """Whether its workload is taken to agree because it says nothing, and what was answered instead."""
        return self.word is None and self.says("agreed") is None, self.message

    @property
    def refusal(self) -> tuple[e.ConsentRefused, ...]:
        """What its workload says, where it fails because of that."""
        if said := self.says("refused"):
            return (consents.refused(self.migration, said.message, said.again),)
        word = self.word if self.answer is None else None
        if word is None or word.agrees:
            return ()
        return (consents.refused(self.migration, word.message, bounded(self.now + word.again) if word.again else Millis(0)),)

    def silent(self, message: str = "") -> Reason:
        return consents.silence(self.state, self.migration, message)

    @cached_property
    def blocked(self) -> Reason | None:
        """Why it must not be evicted now, although its slot is held."""
        whole = self.limits.whole
        if not whole.is_gang(self.migration):
            return self.limits.before_eviction(self.migration, self.now) or self.others.refuse(self.migration, self.limits.going)
        return self.limits.before_eviction(self.migration, self.now) or whole.asked_once(self.migration, self._company)

    def _company(self) -> Reason | None:
        """Whether rules about other pods would keep anybody of its gang from its slot when all of them have gone."""
        gang = self.limits.whole.first(self.migration)
        going = [one for one in self.limits.going if one.plan != self.migration.plan]
        refused = (self.others.refuse(one, [*going, *(other for other in gang if other is not one)]) for one in gang)
        return next((why for why in refused if why is not None), None)

    @property
    def hold_lost(self) -> Reason:
        return holds.disembodied(self.state, self.migration) or ("HoldLost", f"the hold on {self.move.target} was lost before the pod was evicted")

    @cached_property
    def slot_void(self) -> Reason | None:
        """Why no successor can land on the target any more: also where who has taken the slot went with its node."""
        if not self.migration.successor:
            return holds.void(self.state, self.migration)
        return holds.lost(self.state, self.migration) if not self.migration.back and self.successor_gone else None

    @property
    def old_node_lost(self) -> Reason | None:
        return holds.source_lost(self.state, self.migration)

    @property
    def may_return(self) -> bool:
        """Whether its old node is of any use to a successor."""
        late = self.now >= lands_until(self.state, self.migration)
        if is_beside(self.state, self.migration.shape) and not guards(self.state, self.migration):
            # Without its guard the old node is its scheduler's again, at once.
            return False
        return not (late or successor.needs_no_slot(self.state, self.migration) or self.old_node_lost)

    @property
    def nobody_makes_another(self) -> Reason | None:
        """Why its Job makes no other pod, or its owner, which was deleted. Who came before that was known lands, or does not, as any other."""
        migration, job = self.migration, self.state.workloads.get(self.migration.job)
        is_over = job is not None and job.busy in ("over", "deleting") and is_last(job)
        done = migration.done or (JOB_ENDED if is_over else "")
        if not done or next(successor.followers(self.state, migration), None) is not None:
            return None
        return ended(done)

    @property
    def went_elsewhere(self) -> Reason | None:
        uid = successor.elsewhere(self.state, self.migration) if self.late or "/" in self.migration.lineage else None
        if uid is None or not (self.late or (self.state.pods[uid].live.node is not None and successor.has_its_name(self.state, uid))):
            return None
        node = self.state.node_of(uid)
        how = "but has not taken its slot" if node == self.move.target else f"not on {self.move.target}"
        return "Elsewhere", f"{self.name_of(uid)} runs on {node}, {how}"

    @cached_property
    def late_successor(self) -> PodUid:
        """A pod that may follow it and still waits when its time to land is up; empty where there is none."""
        return (successor.waiting(self.state, self.migration) if self.late else None) or PodUid("")

    def name_of(self, pod: PodUid) -> str:
        return f"its successor {self.state.pods[pod].fact.name}"

    def unbound(self, pod: PodUid) -> str:
        """Of one that another scheduler is to bind, and has not."""
        if pod not in self.state.to_land:
            return ""
        return f"{self.name_of(pod)} was not bound to {self.move.target} by {self.state.shapes[self.state.pods[pod].fact.shape].scheduler} in time"

    @property
    def successor_gone(self) -> bool:
        live = self.state.live_of(self.migration.successor)
        return live is None or live.deleting > 0

    def phase(self, pod: PodUid) -> str:
        live = self.state.live_of(pod)
        return "" if live is None else live.phase

    @property
    def message(self) -> str:
        return "" if self.answer is None else self.answer.message

    @property
    def hold_refused(self) -> bool:
        return isinstance(self.answer, c.ReportHold) and (self.answer.landing or not self.migration.reservation)

    def says(self, word: str) -> c.ReportConsent | None:
        """Its workload's answer, where that is this."""
        return self.answer if isinstance(self.answer, c.ReportConsent) and self.answer.word == word else None

    def answered(self, reason: str) -> bool:
        return isinstance(self.answer, c.ReportEviction) and self.answer.reason == reason

    def said(self, more: str = "") -> Reason:
        """Why it is on its way back, or turned back, and what came of that."""
        return self.migration.reason, self.migration.message + more


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
OTHERS_FIRST = Fact("other moves must land first, hold their slots first, or leave what it takes", lambda case: not may_come(case))
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
BUDGET_WAITS = Fact("a disruption budget does not allow it yet, within `budgetPatience`, or others of its gang have left", lambda case: (
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


# -- what is asked elsewhere, too ----------------------------------------------------------------------------------------


def cancelled(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether somebody has cancelled its plan."""
    said = state.cancelled.get(migration.plan)  # type: ignore[call-overload]
    return None if said is None else (CANCELLED, said)


def may_evict(state: ClusterState, migration: Migration) -> bool:
    """Whether the pod has its slot, if it needs one, on a node that takes its successor. Asked in the decision, and before
    every attempt: a hold stays on a node that is cordoned or not ready, and is of no use there."""
    if victim.is_only_evicted(migration):
        return True
    return has_slot(state, migration) and gating.is_gated(state, migration)


def not_held(state: ClusterState, migration: Migration) -> Reason:
    """Of one whose time to get a slot is up: what was not there."""
    if has_slot(state, migration) and not gating.is_gated(state, migration):
        return ended(NOT_GATED)
    return "HoldTimeout", f"node {migration.move.target} was not held in time"


def has_slot(state: ClusterState, migration: Migration) -> bool:
    return holds.held(state, migration) and holds.lost(state, migration) is None


class _Ready:
    """At one place of the log: a gang may have hundreds of pods, and it is asked about each of them."""

    at: tuple[int, Millis] | None = None

    def __init__(self) -> None:
        self.known: dict[Source, bool] = {}


def may_be_tried(state: ClusterState, migration: Migration) -> bool:
    """Whether an eviction that was decided may be sent, now and each time anew: nothing has come in between for which it will be given
    up as soon as that is decided. Before anybody of a gang that is moved as one has left, that is so of all of it, or of nobody."""
    if not is_of_gang(state, migration):
        return not _is_given_up(Whole(state), migration) and _may_be_tried(state, migration)
    ready, at = state.memo.make(_Ready), (state.seq, state.time)
    if ready.at != at or state.drafting:
        ready.at, ready.known = at, {}
    whole = Whole(state)
    key = whole.key(migration)
    if key not in ready.known:
        is_ready = is_torn(state, migration) or all(_may_be_tried(state, one) for one in whole.members(migration) if one.step is Step.EVICTING)
        ready.known[key] = is_ready and not _is_given_up(whole, migration)
    return ready.known[key] and _may_be_tried(state, migration)


def _is_given_up(whole: Whole, migration: Migration) -> bool:
    """Whether the next decision takes it back: another pod of its node, or of its gang, has been given up (`ANOTHER_STAYS`)."""
    return not victim.is_only_evicted(migration) and whole.broken(migration) is not None


def has_left(state: ClusterState, migration: Migration) -> bool:
    """Whether its pod's end is certain: it terminates, is gone, or has failed."""
    return migration.armed > 0 or victim.has_ended(state, migration)


def is_torn(state: ClusterState, migration: Migration) -> bool:
    """Whether some of its gang, which is moved as one, have left: then the others are to follow."""
    return is_of_gang(state, migration) and any(has_left(state, one) for one in Whole(state).members(migration))


def waits_for_budget(state: ClusterState, migration: Migration, now: Millis) -> bool:
    """Whether an eviction that a disruption budget has refused is tried again: for `budgetPatience`, and, where others of its gang have left, as long as may be."""
    return now < migration.evicting + state.migration_config.budget_patience or (now < migration.deadline and is_torn(state, migration))


def _may_be_tried(state: ClusterState, migration: Migration) -> bool:
    if cancelled(state, migration) is not None or (not is_of_gang(state, migration) and Limits(state).breaks_gang(migration) is not None):
        return False
    if victim.is_only_evicted(migration):
        return victim.unfit_to_evict(state, migration) is None
    if is_beside(state, migration.shape) and not guards(state, migration):
        return False
    return may_evict(state, migration) and victim.unfit(state, migration) is None and holds.failure(state, migration) is None


def may_come(case: Case) -> bool:
    """Whether it waits for no other move, and no capacity. One whose node is emptied as a whole waits for the holds of others."""
    state, migration, whole = case.state, case.migration, case.limits.whole
    if (whole.binds(migration) and not whole.all_hold(migration)) or case.limits.meets_guard(migration):
        return False
    return bool(case.move.pod) and plan_order.is_turn(state, migration, case.now) and demand_slots.ready(state, migration)


def not_marked(migration: Migration, why: str) -> Reason:
    said = f"{migration.reason}: {migration.message}".rstrip(": ")
    return NOT_MARKED, f"{said}; the pod could not be marked, so that a late eviction is not ruled out: {why}"
