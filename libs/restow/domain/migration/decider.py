"""Plans and the migration saga: triggers, steps, outcomes reported by the effects.

When a timed trigger is due follows from the state alone: the next firing after the last plan, or after the configuration
where there was none since (`ClusterState.timed_from`). For that every plan is logged, also one without moves: it says why
nothing moved, and it is the memory of the attempt. Without it, `due` would ask for a plan again after every fold (or, if
it looked at the clock only, miss a firing whenever a fold came in between).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis, PlanId
from restow.domain import defragmentation, eviction_budgets, hooks, windows
from restow.domain.config import LONGEST, MigrationConfig
from restow.domain.decider import Rejected, part
from restow.domain.duration import format_milliseconds
from restow.domain.effects import Effect
from restow.domain.evolve.demands import job_name
from restow.domain.fragmentation import packing
from restow.domain.migration import (
    consents,
    demand_slots,
    effects,
    gating,
    modes,
    open_hours,
    pause,
    proposals,
    saga,
    search,
)
from restow.domain.migration.advance import active, advance, is_due, overdue
from restow.domain.migration.demand import next_demand
from restow.domain.migration.deschedule import (
    by_fault,
    defragment,
    deschedule,
    plans_by_itself,
    wants_samples,
    whole_policy,
)
from restow.domain.migration.deschedule import check as check_policy
from restow.domain.migration.move import move_pod
from restow.domain.migration.move_gang import move_gang
from restow.domain.pod_controllers import check_owners
from restow.domain.state import ClusterState, Touched

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
TIMED = ("interval", "cron", "demand")
"""Triggers of plans that the state asks for by itself: nobody waits for an answer."""
OWN_REASONS = ("ModeChanged: ", "NotApproved: ", "Closed: ")
"""How the reasons begin for which the state cancels plans by itself (`modes`, `proposals`, `open_hours`)."""
CANCELLED_BY_HAND = "cancelled by hand"


class MigrationDecider:
    family: Family = "migration"
    logic = "migration@8"

    heeds_pause = True

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        if self.heeds_pause and isinstance(command, c.Defragment | c.Deschedule | c.MovePod | c.MoveGang):
            pause.heed(state)
            if not open_hours.is_open(state.migration_config, command.time):
                if getattr(command, "trigger", "") in TIMED:
                    return ()  # Its time came while they were open, and nobody was there; it comes again.
                open_hours.heed(state, command.time)
            if isinstance(command, c.MovePod | c.MoveGang):
                modes.heed(state)
        match command:
            case c.Defragment(trigger=trigger, demand=demand):
                return modes.stamped(state, [replace(_plan(state, command), trigger=trigger, demand=demand)])
            case c.Deschedule():
                return modes.stamped(state, deschedule(state, command))
            case c.MovePod(time=now, plan=plan, pod=pod, target=target):
                return (_in_budget(state, now, move_pod(state, now, plan, pod, target)),)
            case c.MoveGang(time=now, plan=plan, group=group):
                return (_in_budget(state, now, move_gang(state, now, plan, group)),)
            case c.LookBack():
                return modes.look_back(state, command)
            case c.CancelPlan(plan=plan, reason=reason):
                return _cancel(state, plan, reason)
            case c.Approve():
                return proposals.approve(state, command)
            case c.Reject():
                return proposals.reject(state, command)
            case c.SetMode():
                return modes.set_mode(state, command)
            case c.Pause():
                return pause.pause(state, command, under_way(state))
            case c.Resume():
                return pause.resume(state, command)
            case c.Advance(time=now):
                return advance(state, now)
            case c.ReportHold(migration=id) | c.ReportEviction(migration=id) | c.ReportConsent(migration=id):
                migration = active(state, id)
                return () if migration is None else saga.answered(state, migration, command)
            case c.ReportTold():
                return consents.reported(state, command)
            case c.ReportLanding():
                return gating.reported(state, command)
            case c.ReportSlot(plan=plan, message=message):
                if plan not in state.plans or plan in state.cancelled:
                    return ()
                return (e.PlanCancelled(plan, f"SlotFailed: {message}"),)
            case c.BeginSearch() | c.EndSearch():
                return search.decide(state, command)
        raise TypeError(f"{self.family} does not decide {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        if (unended := search.due(state, now)) is not None:
            return unended
        if (stop := pause.due(state, now)) is not None:
            return stop
        if (ended := modes.stops(state, now, under_way) or open_hours.stops(state, now, under_way) or proposals.due(state, now)) is not None:
            return ended
        if is_due(state, now):
            return c.Advance(now)
        trigger = _own_trigger(state)
        if trigger is not None and trigger[0] <= now:
            if whole_policy(state):
                return c.Deschedule(now, trigger[1], plan_id(now))
            return c.Defragment(now, trigger[1], plan_id(now))
        asked = _demanded(state)
        if asked is not None and asked[0] <= now:
            return c.Defragment(now, "demand", plan_id(now), asked[1])
        look = modes.next_look(state)
        if look is not None and look[0] <= now:
            return c.LookBack(now, look[1])
        return None

    def deadline(self, state: ClusterState) -> Millis | None:
        triggers = (_own_trigger(state), _demanded(state), modes.next_look(state))
        times = [at for at in (overdue(state), proposals.deadline(state), open_hours.deadline(state, under_way), *(t[0] for t in triggers if t is not None)) if at is not None]
        return min(times, default=None)

    def pending(self, state: ClusterState, touched: Touched | None) -> list[Effect]:
        return effects.pending(state, touched)

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        return effects.owed(state, effect)


class DryRunDecider(MigrationDecider):
    """Says what would be planned, also while moves are paused."""

    heeds_pause = False


def check(config: MigrationConfig) -> None:
    """What the types do not say. Raises ValueError with path, value and what is allowed."""
    if config.defragmentation is not None:
        defragmentation.check(config.defragmentation)
    check_policy(config)
    windows.zone(config.time_zone)
    if config.cron:
        windows.parse(config.cron)
    for name in ("interval", "budget_patience", "hold_deadline", "evict_deadline", "land_deadline", "abort_deadline", "emptied_for", "approve_deadline"):
        least = 0 if name in ("interval", "budget_patience") else 1
        if not least <= getattr(config, name) <= LONGEST:
            raise ValueError(f"{name}: {getattr(config, name)}; allowed: {least} to {LONGEST} (milliseconds; {format_milliseconds(LONGEST)})")
    for name in ("concurrent", "per_node", "max_moves"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}: {getattr(config, name)}; allowed: 1 or more")
    check_owners(config.movable_owners)
    check_share(config.max_unavailable)
    if config.emptied != "none" and (config.defragmentation is None or not config.defragmentation.wholeNodes):
        raise ValueError(f"emptied: {config.emptied}; allowed: with Defragmentation and its wholeNodes: true, or none")
    if not all(config.beside) or len(set(config.beside)) < len(config.beside):
        raise ValueError(f"beside: {list(config.beside)}; allowed: names of schedulers, as in spec.schedulerName, each once")
    if not all(config.claim_namespaces) or len(set(config.claim_namespaces)) < len(config.claim_namespaces):
        raise ValueError(f"claim_namespaces: {list(config.claim_namespaces)}; allowed: names of namespaces, each once")
    hooks.check(config.hooks)
    pause.check(config)
    open_hours.check(config)
    eviction_budgets.check(config)
    for name in ("per_namespace", "evictions_per_minute"):
        if getattr(config, name) < 0:
            raise ValueError(f"{name}: {getattr(config, name)}; allowed: 0 (for no bound) or more")


def check_in(config: MigrationConfig, state: ClusterState) -> None:
    """What is wrong with it in this cluster only. Raises ValueError."""
    for name in config.beside:
        if name in state.session_config.scheduler_names:
            raise ValueError(f"beside: {name!r} is Restow's own scheduler, whose pods move without a placeholder; allowed: names of other schedulers")


def check_share(said: int | str) -> None:
    """Raises ValueError."""
    share = said.removesuffix("%") if isinstance(said, str) else ""
    good = 1 <= int(share) <= 100 if share.isascii() and share.isdigit() and f"{share}%" == said else isinstance(said, int) and said >= 0
    if not good:
        raise ValueError(f"max_unavailable: {said!r}; allowed: a number of pods, 0 (for no bound), or a share of the workload from 1% to 100%")


def plan_id(now: Millis) -> PlanId:
    """The time in base 36: short, ordered, and fit for the name of an object."""
    digits = ""
    rest = int(now)
    while rest:
        rest, digit = divmod(rest, 36)
        digits = _DIGITS[digit] + digits
    return PlanId(digits or "0")


def _plan(state: ClusterState, command: c.Defragment) -> e.Planned:
    config, now, plan, demand, steps = state.migration_config, command.time, command.plan, command.demand, command.steps
    if config.defragmentation is None:
        raise Rejected("defragment: the policy does not enable Defragmentation; allowed: with a policy that does (plugins.balance.enabled of a profile)")
    if plan in state.plans:
        raise Rejected(f"defragment: plan {plan!r} exists already; allowed: a fresh id")
    try:
        defragmentation.check(config.defragmentation)
    except defragmentation.ArgsError as error:
        raise Rejected(f"defragment: {error}") from error
    if plan in command.failed:
        now_packed = packing(state)
        return e.Planned(plan, defragmentation.PLUGIN, (), now_packed, now_packed, planner=config.defragmentation.planner, reason=by_fault(command.failed[plan]), fault=True)
    with part(plan):
        planned = defragment(state, now, plan, demand, steps)
    # Once: names of a gang's pods may begin with the gang's.
    return replace(planned, reason=planned.reason.replace(demand, job_name(state, demand), 1)) if demand else planned


def _in_budget(state: ClusterState, now: Millis, planned: e.Planned) -> e.Planned:
    """What somebody has asked for by name. Raises Rejected where an eviction budget has not enough left for all of it."""
    if why := eviction_budgets.objection(state, now, (eviction_budgets.keys_of(state, move) for move in planned.moves)):
        raise Rejected(f"move: {why}; allowed: later, or with other budgets in the policy")
    return planned


def _own_trigger(state: ClusterState) -> tuple[Millis, str] | None:
    """The next timed trigger, where it needs nothing but the state; a policy that wants metrics is triggered by who reads them."""
    return None if wants_samples(state) else next_trigger(state)


def next_trigger(state: ClusterState) -> tuple[Millis, str] | None:
    """When the next timed plan is due and what asks for it; None while one is under way, or waits for a person. An unreadable cron or zone
    never fires: `check` has refused it before it was logged, and a crash loop would help nobody."""
    config = state.migration_config
    if state.pause.since or not plans_by_itself(config) or state.active or state.backlog or state.proposals:
        return None
    since = state.timed_from
    if not since:
        return None
    times: list[tuple[Millis, str]] = []
    if modes.is_new_here(state):
        times.append((since, "interval"))
    if (interval := windows.next_interval(config.interval, since)) is not None:
        times.append((interval, "interval"))
    if config.cron:
        try:
            times.append((windows.next_firing(config.cron, config.time_zone, since), "cron"))
        except windows.WindowError:
            pass
    return _when_open(state, min(times, default=None))


def _demanded(state: ClusterState) -> tuple[Millis, str] | None:
    """When the next plan on demand is due, and for which job."""
    asked = None if state.pause.since or state.proposals else next_demand(state)
    return _when_open(state, asked)


def _when_open(state: ClusterState, asked: tuple[Millis, str] | None) -> tuple[Millis, str] | None:
    """A trigger, once a search may begin and pods may move again."""
    if asked is None:
        return None
    at = open_hours.not_before(state, Millis(max(asked[0], search.not_before(state))))
    return None if at is None else (at, asked[1])


def _cancel(state: ClusterState, plan: PlanId, reason: str) -> list[e.Event]:
    """Of all plans where none is named. Raises Rejected where there is nothing to cancel."""
    if plan and plan not in state.plans:
        raise Rejected(f"cancel: there is no plan {plan!r}; allowed: {_names(under_way(state))}")
    if plan and plan in state.cancelled:
        raise Rejected(f"cancel: plan {plan!r} is cancelled already: {state.cancelled[plan]}")
    open_plans = [*under_way(state), *state.proposals]
    wanted = [one for one in open_plans if not plan or one == plan]
    if not wanted:
        raise Rejected(f"cancel: plan {plan!r} is over; allowed: {_names(under_way(state))}" if plan else "cancel: no plan is under way")
    return [e.PlanCancelled(one, reason or CANCELLED_BY_HAND) for one in wanted]


def under_way(state: ClusterState) -> list[PlanId]:
    """Plans of which something is still to be done, in their order."""
    plans = {PlanId(state.migrations[id].plan) for id in (*state.backlog, *state.active)}
    plans.update(demand_slot.plan for demand_slot in state.demand_slots.values() if not demand_slots.is_used(state, demand_slot) and not demand_slot.gone)
    known = [plan for plan in plans if plan in state.plans and plan not in state.cancelled]
    return sorted(known, key=lambda plan: (state.plans[plan].at, plan))


def _names(names: list[PlanId]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"one of {', '.join(names[:5])}{more}" if names else "none, for no plan is under way"
