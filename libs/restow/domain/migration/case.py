"""A migration as one decision looks at it: at which stage of the saga it is, and what its facts (`facts.py`) ask of the state, the clock and the
answer that has come."""

from collections.abc import Container
from enum import StrEnum
from functools import cached_property

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, PodUid
from restow.contracts.times import bounded
from restow.domain import hooks
from restow.domain.beside import guards, is_beside
from restow.domain.migration import consents, demand_slots, holds, plan_order, successor, victim
from restow.domain.migration.deadlines import deadline, lands_until
from restow.domain.migration.eviction import may_evict
from restow.domain.migration.holds import Reason
from restow.domain.migration.limits import BEFORE_EVICTION, Limits
from restow.domain.migration.other_pods import OtherPods
from restow.domain.pod_controllers import is_last
from restow.domain.promised_slots import fits
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import JOB_ENDED, NOT_NEEDED, ended

Answer = c.ReportHold | c.ReportEviction | c.ReportConsent
"""What the API, or a workload, has said to what was asked of it."""



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
        parked = self.migration.step is Step.HELD and self.is_parked
        if self.now < (self.limits.until(self.migration) if parked else deadline(self.state, self.migration)):
            return False
        return not (self.migration.step in BEFORE_EVICTION and self.may_go and self.limits.waits_for_landing(self.migration, self.blocked))

    @property
    def may_come(self) -> bool:
        """Whether it waits for no other move, and no capacity. One whose node is emptied as a whole waits for the holds of others."""
        state, migration, whole = self.state, self.migration, self.limits.whole
        if (whole.binds(migration) and not whole.all_hold(migration)) or self.limits.meets_guard(migration):
            return False
        return bool(self.move.pod) and plan_order.is_turn(state, migration, self.now) and demand_slots.ready(state, migration)

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
        return holds.cause(self.state, self.migration) or ("HoldLost", f"the hold on {self.move.target} was lost before the pod was evicted")

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
        if not (self.late or successor.no_other_comes(self.state, self.migration)):
            return None
        if (uid := successor.elsewhere(self.state, self.migration)) is None:
            return None
        if not self.late and successor.follows_earlier(self.state, self.migration):
            return NOT_NEEDED, f"{self.name_of(uid)} runs on {self.state.node_of(uid)}, for another pod of its controller that was evicted before it, and no more are wanted"
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
