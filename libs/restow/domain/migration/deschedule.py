"""A whole policy, hold first: every profile's plugins in upstream's order, Defragmentation among them with its planner, each on the
state that includes what the earlier ones have planned. One plan a plugin's run, also where it moves nothing: it says why."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from restow.contracts.commands import Deschedule
from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move, Packing
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.decider import Rejected, part
from restow.domain.defragmentation import PLANNED, Candidate
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.scope import EVERYTHING, Quota, Scope
from restow.domain.descheduling.framework import Eviction, Turn
from restow.domain.descheduling.interpreter import TOTAL, Run
from restow.domain.descheduling.model import DEFRAGMENTATION, EVICTOR, Policy
from restow.domain.descheduling.policy import PolicyError, load, read
from restow.domain.descheduling.utilization.usage import NOTHING
from restow.domain.eviction_budgets import Left
from restow.domain.fold import apply
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.migration.as_one import Gangs
from restow.domain.migration.targets import Landings
from restow.domain.movable import starts_again
from restow.domain.state import ClusterState

PLANNER = "policy"


def policy_of(state: ClusterState) -> Policy | None:
    """The policy that is configured, without Defragmentation; None where there is none. (What cannot be read was refused before it was
    logged, and a crash loop would help nobody.)"""
    return _kept(state)[1]


def whole_policy(state: ClusterState) -> bool:
    """Whether a trigger carries out more than Defragmentation."""
    policy = policy_of(state)
    return policy is not None and policy.runs_others


def defragment(state: ClusterState, now: Millis, plan: PlanId, demand: str = "", steps: int = 0) -> Planned:
    """A plan of Defragmentation alone, within the policy and `steps` (0: as configured). Raises ArgsError."""
    _, args, _, _, most, scope, _ = task_of(state, now, plan, steps)
    if demand:
        return defragmentation.plan_demand(state, args, now, plan, demand, most, scope)
    return defragmentation.plan(state, args, now, plan, most, scope)


def within(config: MigrationConfig, steps: int) -> DefragmentationArgs | None:
    """The arguments with at most so many steps of search (0 for no other bound)."""
    args = config.defragmentation
    return replace(args, searchSteps=steps) if args is not None and 0 < steps < args.searchSteps else args


def by_fault(why: str) -> str:
    """The reason of a plan that a fault of ours has ended."""
    return f"could not be made by a fault of Restow's own, which is worth a report: {why}"


def task_of(state: ClusterState, now: Millis, plan: PlanId, steps: int = 0) -> Task:
    """What the planner is asked for such a plan."""
    args = within(state.migration_config, steps)
    assert args is not None, "whoever asks has looked"
    scope, most = _alone(state, policy_of(state), now)
    return Task(state, args, now, plan, most, scope)


def explain_alone(state: ClusterState, now: Millis) -> tuple[Candidate, ...]:
    """What such a plan thinks of each pod."""
    args = state.migration_config.defragmentation
    if args is None:
        return ()
    scope, bound = _alone(state, policy_of(state), now)
    return defragmentation.explain(state, args, now, bound, scope)


def _alone(state: ClusterState, policy: Policy | None, now: Millis) -> tuple[Scope, int]:
    """What the policy lets a plan of its own do, and how many moves it may have."""
    config = state.migration_config
    if policy is None:
        return Scope(quota=Quota(None, None, budgets=Left(state, now))) if config.budgets else EVERYTHING, config.max_moves
    return Run(state, policy, now).scope(config.profile), policy.bound(config.max_moves)


class _Kept(NamedTuple):
    config: MigrationConfig
    policy: Policy | None
    measured: bool


def _kept(state: ClusterState) -> _Kept:
    """The configuration, its policy, and whether that wants metrics: read once, for it is asked after every fold."""
    config = state.migration_config
    kept = state.memo.find(_Kept)
    if kept is None or kept.config is not config:
        try:
            # Whether it can be run was asked before it was logged, by the rules of that day.
            policy = read(config.policy) if config.policy else None
        except PolicyError:
            policy = None
        kept = state.memo.keep(_Kept(config, policy, policy is not None and policy.measured))
    return kept


def plans_by_itself(config: MigrationConfig) -> bool:
    """Whether anything is configured that makes plans. A policy without profiles says whom the queries of `auto_pause` are asked of, and nothing else."""
    return config.defragmentation is not None or bool(config.policy.get("profiles"))


def check(config: MigrationConfig) -> None:
    """Raises ValueError with path, value and what is allowed."""
    if config.grace is not None and config.grace < 0:
        raise ValueError(f"grace: {config.grace}; allowed: 0 or more (seconds)")
    if config.defragment_at < 0:
        raise ValueError(f"defragment_at: {config.defragment_at}; allowed: 0 or more")
    if not config.policy:
        return
    policy = load(config.policy) if plans_by_itself(config) else read(config.policy)
    if config.defragmentation is None:
        return
    if all(profile.name != config.profile for profile in policy.profiles):
        names = ", ".join(repr(profile.name) for profile in policy.profiles)
        raise ValueError(f"profile: {config.profile!r}; allowed with Defragmentation: {names}")


def plan_name(plan: PlanId, number: int) -> PlanId:
    return PlanId(f"{plan}-p{number}")


def cycle_of(plan: PlanId) -> str:
    """The command's name of a plan that `plan_name` has named; empty for another plan."""
    cycle, dash, number = plan.rpartition("-p")
    return cycle if dash and number.isdigit() else ""


def deschedule(state: ClusterState, command: Deschedule) -> list[Planned]:
    """Raises Rejected; Faulty by a fault of ours in one of the plans, without which the others can be made (`command.failed`)."""
    policy = _configured(state, command.steps)
    if not policy.profiles:
        raise Rejected("deschedule: no plugin is enabled; allowed: after enabling one in the policy")
    if plan_name(command.plan, 1) in state.plans:
        raise Rejected(f"deschedule: plan {command.plan!r} exists already; allowed: a fresh id")
    events: list[Planned] = []
    with state.draft():
        # What one plugin plans is planned now, for the next one (cooldown).
        state.time = Millis(max(state.time, command.time))
        port = HoldFirst(state, policy, command)
        for turn in policy.turns():
            plan = plan_name(command.plan, len(events) + 1)
            if plan in command.failed:
                planned = port.fail(turn, plan, command.failed[plan])
            else:
                with part(plan):
                    planned = port.carry(turn, plan)
            events.append(replace(planned, trigger=command.trigger, profile=turn.profile))
            apply(state, (events[-1],))
    return events


def _configured(state: ClusterState, steps: int = 0) -> Policy:
    """The whole policy, with Defragmentation where it stands among the balance plugins of its profile; no profiles where nothing is configured."""
    config, policy = state.migration_config, policy_of(state) or Policy()
    args = within(config, steps)
    return policy if args is None else policy.defragmenting(config.profile, args, config.defragment_at)


class HoldFirst:
    """The port of one command (`framework.Port`): who is to go is promised a slot, and each plugin's run is a plan."""

    holds = True

    def __init__(self, state: ClusterState, policy: Policy, command: Deschedule) -> None:
        self._state, self._now = state, command.time
        self._most = policy.bound(state.migration_config.max_moves)
        self.run = Run(state, replace(policy, max_no_of_pods_to_evict_total=self._most), self._now, command.samples)
        self._warned = tuple(self.run.warnings)
        self._asked = asked_for(state)
        self._capacity, self._loads = FreeCapacity(state.table), Counter[NodeName]()
        self._packing = packing(state, asked=self._asked)
        self._landings = Landings(state, self._now)
        self._gangs: Gangs | None = None
        self._plan = PlanId("")
        self._planned: Planned | None = None
        self.candidates: tuple[Candidate, ...] = ()
        """What Defragmentation thought of each pod, where somebody asks for it (`explains`)."""
        self.explains = False

    def carry(self, turn: Turn, plan: PlanId) -> Planned:
        run, before = self.run, len(self.run.evictions)
        # Those that balance count pod by pod what they have moved where.
        self._gangs = Gangs(self._state, self._now) if turn.point == "deschedule" else None
        run.verdicts, run.warnings, self._plan, self._planned = {}, {}, plan, None
        if run.skipped and turn.plugin != DEFRAGMENTATION:
            return self._made(turn, (), run.skipped)
        self._landings = Landings(self._state, self._now)
        try:
            run.carry(turn, self)
        finally:
            self._landings.close()
        if self._planned is not None:
            return self._planned
        moves = tuple(self._move(one, MigrationId(f"{plan}-{i}")) for i, one in enumerate([*run.evictions.values()][before:], 1))
        said = (one for one in (*self._warned, *run.warnings) if one.profile == turn.profile and one.plugin in (turn.plugin, EVICTOR))
        return self._made(turn, moves, "; ".join(dict.fromkeys(one.text for one in said)))

    def fail(self, turn: Turn, plan: PlanId, why: str) -> Planned:
        """In place of `carry`, where that came to a fault of ours."""
        self.run.verdicts, self._plan, self._planned = {}, plan, None
        return replace(self._made(turn, (), by_fault(why)), fault=True)

    def unmovable(self, pod: PodUid) -> str:
        alone = self._landings.unmovable(pod)
        if alone and self._gangs is not None:
            return self._gangs.why_not(pod, alone)
        return f"{alone}; and plugins that balance move no gang as one" if alone and starts_again(self._state, self._state.pods[pod].fact) else alone

    def company(self, pod: PodUid) -> Sequence[PodUid]:
        """Who may go alone does."""
        return self._gangs.company(pod) if self._gangs is not None and self._landings.unmovable(pod) else (pod,)

    def promise(self, pod: PodUid, to: Sequence[NodeName] | None) -> str:
        if self._gangs is not None and self._landings.unmovable(pod) and self._gangs.has(pod):
            return self._gangs.promise(self._landings, pod, to)
        return self._landings.promise(pod, to)

    def evict(self, eviction: Eviction) -> str:
        return ""

    def lands_on(self, pod: PodUid) -> NodeName | None:
        return self._landings.lands_on(pod)

    def defragment(self, run: Run, turn: Turn, args: DefragmentationArgs) -> None:
        left, scope = self._most - run.taken, run.scope(turn.profile)
        asked = self._state, args, self._now, self._plan, max(left, 0), scope
        try:
            if self.explains:
                planned, self.candidates = defragmentation.explained(*asked)
            elif left > 0:
                planned = defragmentation.plan(*asked)
        except defragmentation.ArgsError as error:
            raise Rejected(f"deschedule: {error}") from error
        if left <= 0:
            self._planned = self._made(turn, (), TOTAL)
            return
        run.count_plan(planned.moves, turn, planned.reason)
        self._packing = self._after(tuple(move for move in planned.moves if move.pod))
        said = (one.text for one in self._warned if one.profile == turn.profile and one.plugin == EVICTOR)
        self._planned = replace(planned, reason="; ".join(filter(None, (planned.reason, *dict.fromkeys(said)))))

    def _move(self, eviction: Eviction, id: MigrationId) -> Move:
        pod, spot = self._state.pods[eviction.pod].fact, self._landings.spots[eviction.pod]
        target = self._landings.lands_on(eviction.pod) or NodeName("")
        return Move(
            id, eviction.pod, pod.namespace, pod.name, eviction.node, target, spot.devices, spot.cores, cost=1, reason=eviction.reason,
            gang=self._gangs.moved(eviction.pod) if self._gangs is not None else "",
        )  # fmt: skip

    def _made(self, turn: Turn, moves: tuple[Move, ...], reason: str) -> Planned:
        before = self._packing
        after = self._packing = self._after(moves)
        sources = tuple(dict.fromkeys(move.source for move in moves))
        kept = Counter(verdict.why.partition(":")[0] for verdict in self.run.verdicts.values())
        return Planned(
            self._plan, turn.plugin, moves, before, after, sources, dict(sorted(kept.items())), planner=PLANNER, reason=reason
        )

    def _after(self, moves: tuple[Move, ...]) -> Packing:
        """As it will be when these, too, have landed."""
        state, rows = self._state, self._state.table.rows
        for move in moves:
            charge = state.charges.get(move.pod)
            if charge is None:
                continue
            v = state.vectors[charge.shape]
            self._capacity.take(rows[charge.node], v, state.devices_of(move.pod), -1)
            self._loads[charge.node] -= 1
            if move.target:
                self._capacity.take(rows[move.target], v, move.devices)
                self._loads[move.target] += 1
        return packing(state, self._capacity, dict(self._loads), self._asked) if moves else self._packing

    def thought(self, pod: PodUid) -> tuple[str, str] | None:
        """Why the plugin that ran last leaves it: the rule, and the sentence."""
        if self._planned is not None:
            found = (one for one in self.candidates if one.pod == pod and one.verdict != PLANNED)
            return next(((one.verdict, one.message) for one in found), None)
        said = next((one.why for one in self.run.verdicts.values() if one.pod == pod), None)
        if said is None:
            return None
        word, _, why = said.partition(": ")
        return word, why or said


class Thought(msgspec.Struct, frozen=True):
    """What a plugin's run thought of a pod: `verdict` is `Planned`, or the rule by which it stays; `text` says why."""

    plan: PlanId
    plugin: str
    profile: str
    verdict: str
    text: str


def explain(state: ClusterState, command: Deschedule, pod: PodUid) -> list[Thought]:
    """Decided again; of plugins that have not looked at it only why they looked at nothing, where that is for want of metrics, or by a fault of ours."""
    policy, found = _configured(state, command.steps), list[Thought]()
    with state.draft():
        state.time = Millis(max(state.time, command.time))
        port = HoldFirst(state, policy, command)
        port.explains = True
        for number, turn in enumerate(policy.turns(), 1):
            plan = plan_name(command.plan, number)
            why = command.failed.get(plan)
            planned = port.carry(turn, plan) if why is None else port.fail(turn, plan, why)
            move = next((move for move in planned.moves if move.pod == pod), None)
            if move is not None:
                where = f"moves to {move.target}" if move.target else "evicted, and nothing is held for it"
                thought: tuple[str, str] | None = (PLANNED, f"{move.reason}: {where}" if move.reason else where)
            else:
                thought = port.thought(pod)
                if thought is None and (planned.fault or NOTHING in planned.reason):
                    thought = "NotLookedAt", planned.reason
            if thought is not None:
                found.append(Thought(planned.plan, turn.plugin, turn.profile, *thought))
            apply(state, (planned,))
    return found


def turns_of(state: ClusterState) -> list[Turn]:
    """What a trigger runs, in order."""
    return list(_configured(state).turns())


def wants_samples(state: ClusterState) -> bool:
    """Whether somebody has to read metrics before the policy is carried out."""
    return _kept(state)[2]
