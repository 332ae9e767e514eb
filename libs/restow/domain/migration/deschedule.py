"""A whole policy, hold first: every profile's plugins in upstream's order, Defragmentation among them with its planner, each on the
state that includes what the earlier ones have planned. One plan a plugin's run, also where it moves nothing: it says why."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from restow.contracts.commands import Deschedule
from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move, Packing
from restow.domain import defragmentation
from restow.domain.config import MigrationConfig
from restow.domain.decider import Rejected
from restow.domain.defragmentation.explain import PLANNED, Candidate
from restow.domain.descheduling import run as r
from restow.domain.descheduling.framework import Eviction
from restow.domain.descheduling.model import EVICTOR, Policy
from restow.domain.descheduling.policy import PolicyError, load, read
from restow.domain.descheduling.selection import selected_nodes
from restow.domain.descheduling.utilization.usage import NOTHING
from restow.domain.descheduling.whole import runs_others, with_own
from restow.domain.fold import apply
from restow.domain.fragmentation import Room, packing, typical_shapes
from restow.domain.migration.landing import Landings
from restow.domain.migration.scope import in_run, most, scope_of
from restow.domain.migration.search import within
from restow.domain.state import ClusterState

PLANNER = "policy"


def policy_of(state: ClusterState) -> Policy | None:
    """The policy that is configured, without Defragmentation; None where there is none. (What cannot be read was refused before it was
    logged, and a crash loop would help nobody.)"""
    return _kept(state)[1]


def whole_policy(state: ClusterState) -> bool:
    """Whether a trigger carries out more than Defragmentation."""
    policy = policy_of(state)
    return policy is not None and runs_others(policy)


def defragment(state: ClusterState, now: Millis, plan: PlanId, demand: str = "", steps: int = 0) -> Planned:
    """A plan of Defragmentation alone, within the policy and `steps` (0: as configured). Raises ArgsError."""
    config, policy = state.migration_config, policy_of(state)
    args = within(config, steps)
    assert args is not None, "whoever asks has looked"
    scope = scope_of(state, policy, config.profile, now)
    bound = most(policy, config.max_moves)
    if demand:
        return defragmentation.make_room(state, args, now, plan, demand, bound, scope)
    return defragmentation.plan(state, args, now, plan, bound, scope)


def explain_alone(state: ClusterState, now: Millis) -> tuple[Candidate, ...]:
    """What such a plan thinks of each pod."""
    config, policy = state.migration_config, policy_of(state)
    if config.defragmentation is None:
        return ()
    scope = scope_of(state, policy, config.profile, now)
    return defragmentation.explain(state, config.defragmentation, now, most(policy, config.max_moves), scope)


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


def check(config: MigrationConfig) -> None:
    """Raises ValueError with path, value and what is allowed."""
    if config.grace is not None and config.grace < 0:
        raise ValueError(f"grace: {config.grace}; allowed: 0 or more (seconds)")
    if config.defragment_at < 0:
        raise ValueError(f"defragment_at: {config.defragment_at}; allowed: 0 or more")
    if not config.policy:
        return
    policy = load(config.policy)
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
    """Raises Rejected."""
    config = state.migration_config
    policy = policy_of(state)
    if policy is None and config.defragmentation is None:
        raise Rejected("deschedule: no plugin is enabled; allowed: after enabling one in the policy")
    if plan_name(command.plan, 1) in state.plans:
        raise Rejected(f"deschedule: plan {command.plan!r} exists already; allowed: a fresh id")
    events: list[Planned] = []
    with state.draft():
        # What one plugin plans is planned now, for the next one (cooldown).
        state.time = Millis(max(state.time, command.time))
        cycle = _Cycle(state, policy or Policy(), command)
        for turn in turns(config, policy):
            planned = cycle.carry(turn, plan_name(command.plan, len(events) + 1))
            events.append(replace(planned, trigger=command.trigger, profile=turn.profile))
            apply(state, (events[-1],))
    return events


def turns(config: MigrationConfig, policy: Policy | None) -> Iterator[r.Turn]:
    """Upstream's, with Defragmentation where it stands among the balance plugins of its profile."""
    if policy is None:
        yield r.Turn("balance", 0, config.profile, defragmentation.PLUGIN)
        return
    yield from r.turns(policy) if config.defragmentation is None else with_own(policy, config.profile, config.defragment_at)


class _Cycle:
    """What the plugins of one command share."""

    def __init__(self, state: ClusterState, policy: Policy, command: Deschedule) -> None:
        now = command.time
        self._state, self._config, self._now = state, state.migration_config, now
        self._args = within(self._config, command.steps)
        self._most = bound = most(policy, self._config.max_moves)
        nodes = selected_nodes(state, policy.node_selector)
        self._too_few = r.too_few(nodes)
        self._run = r.Run(state, replace(policy, max_no_of_pods_to_evict_total=bound), now, nodes, command.samples)
        self._warned = tuple(self._run.warnings)
        self._typical = typical_shapes(state)
        self._room, self._loads = Room(state.table), Counter[NodeName]()
        self._packing = packing(state, typical=self._typical)

    def carry(self, turn: r.Turn, plan: PlanId) -> Planned:
        if turn.plugin == defragmentation.PLUGIN:
            return self._defragment(turn, plan)
        if self._too_few:
            return self._planned(turn, plan, (), {}, self._too_few)
        run, before = self._run, set(self._run.evictions)
        run.verdicts, run.warnings = {}, {}
        places = run.places = Landings(self._state, self._now)
        try:
            run.carry(turn)
        finally:
            places.close()
            run.places = None
        moves = tuple(
            self._move(eviction, places, MigrationId(f"{plan}-{i}"))
            for i, eviction in enumerate((one for uid, one in run.evictions.items() if uid not in before), 1)
        )
        kept = Counter(verdict.why.partition(":")[0] for verdict in run.verdicts.values())
        said = (one for one in (*self._warned, *run.warnings) if one.profile == turn.profile and one.plugin in (turn.plugin, EVICTOR))
        return self._planned(turn, plan, moves, kept, "; ".join(dict.fromkeys(one.text for one in said)))

    def _move(self, eviction: Eviction, places: Landings, id: MigrationId) -> Move:
        pod, spot = self._state.pods[eviction.pod], places.spots[eviction.pod]
        return Move(
            id, eviction.pod, pod.namespace, pod.name, eviction.node, spot.node, spot.devices, spot.cores, cost=1, reason=eviction.reason
        )

    def _planned(self, turn: r.Turn, plan: PlanId, moves: tuple[Move, ...], kept: Mapping[str, int], reason: str) -> Planned:
        before = self._packing
        after = self._packing = self._after(moves)
        sources = tuple(dict.fromkeys(move.source for move in moves))
        return Planned(
            plan, turn.plugin, moves, before, after, sources, dict(sorted(kept.items())), planner=PLANNER, reason=reason
        )

    def _after(self, moves: tuple[Move, ...]) -> Packing:
        """As it will be when these, too, have landed."""
        state, rows = self._state, self._state.table.rows
        for move in moves:
            charge = state.charges.get(move.pod)
            if charge is None:
                continue
            v = state.vectors[charge.shape]
            self._room.take(rows[charge.node], v, charge.devices, -1)
            self._loads[charge.node] -= 1
            if move.target:
                self._room.take(rows[move.target], v, move.devices)
                self._loads[move.target] += 1
        return packing(state, self._room, dict(self._loads), self._typical) if moves else self._packing

    def verdict(self, pod: PodUid) -> tuple[str, str] | None:
        """Why the plugin that ran last leaves it."""
        said = next((one.why for one in self._run.verdicts.values() if one.pod == pod), None)
        if said is None:
            return None
        word, _, why = said.partition(": ")
        return word, why or said

    def of_defragmentation(self, pod: PodUid) -> tuple[str, str] | None:
        """What it would think of the pod now."""
        args = self._args
        assert args is not None, "its turn comes only where it is configured"
        left = max(self._most - self._run.taken, 0)
        for candidate in defragmentation.explain(self._state, args, self._now, left, in_run(self._run, self._config.profile)):
            if candidate.pod == pod and candidate.verdict != PLANNED:
                return candidate.verdict, candidate.message
        return None

    def _defragment(self, turn: r.Turn, plan: PlanId) -> Planned:
        args, run = self._args, self._run
        assert args is not None, "its turn comes only where it is configured"
        left = self._most - run.taken
        if left <= 0:
            return self._planned(turn, plan, (), {}, r.TOTAL)
        try:
            planned = defragmentation.plan(self._state, args, self._now, plan, left, in_run(run, turn.profile))
        except defragmentation.ArgsError as error:
            raise Rejected(f"deschedule: {error}") from error
        run.count_plan(planned.moves, turn, planned.reason)
        self._packing = self._after(tuple(move for move in planned.moves if move.pod))
        said = (one.text for one in self._warned if one.profile == turn.profile and one.plugin == EVICTOR)
        return replace(planned, reason="; ".join(filter(None, (planned.reason, *dict.fromkeys(said)))))


class Thought(msgspec.Struct, frozen=True):
    """What a plugin's run thought of a pod: `verdict` is `Planned`, or the rule by which it stays; `text` says why."""

    plan: PlanId
    plugin: str
    profile: str
    verdict: str
    text: str


def explain(state: ClusterState, command: Deschedule, pod: PodUid) -> list[Thought]:
    """Decided again; of plugins that have not looked at it only why they looked at nothing, where that is for want of metrics."""
    config, policy = state.migration_config, policy_of(state)
    found: list[Thought] = []
    with state.draft():
        state.time = Millis(max(state.time, command.time))
        cycle = _Cycle(state, policy or Policy(), command)
        for number, turn in enumerate(turns(config, policy), 1):
            thought = cycle.of_defragmentation(pod) if turn.plugin == defragmentation.PLUGIN else None
            planned = cycle.carry(turn, plan_name(command.plan, number))
            move = next((move for move in planned.moves if move.pod == pod), None)
            if move is not None:
                where = f"moves to {move.target}" if move.target else "evicted, and nothing is held for it"
                thought = PLANNED, f"{move.reason}: {where}" if move.reason else where
            elif turn.plugin != defragmentation.PLUGIN:
                thought = cycle.verdict(pod)
                if thought is None and NOTHING in planned.reason:
                    thought = "NotLookedAt", planned.reason
            if thought is not None:
                found.append(Thought(planned.plan, turn.plugin, turn.profile, *thought))
            apply(state, (planned,))
    return found


def turns_of(state: ClusterState) -> list[r.Turn]:
    """What a trigger runs, in order."""
    config, policy = state.migration_config, policy_of(state)
    return [] if policy is None and config.defragmentation is None else list(turns(config, policy))


def wants_samples(state: ClusterState) -> bool:
    """Whether somebody has to read metrics before the policy is carried out."""
    return _kept(state)[2]
