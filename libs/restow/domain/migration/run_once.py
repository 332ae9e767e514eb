"""A whole policy carried out once where nothing of ours runs: upstream's plugins evict as upstream does, and Defragmentation plans as ever, but
nothing can hold the targets that it finds. So of its plan only those go who wait for nobody."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from restow.contracts.events import Planned, QueueObserved
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.samples import Samples
from restow.contracts.values import Move, Packing
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.defragmentation import MAX_MOVES, PLANNED, Candidate
from restow.domain.descheduling.framework import Eviction, Turn
from restow.domain.descheduling.interpreter import TOTAL, Outcome, Run
from restow.domain.descheduling.model import Policy
from restow.domain.fold import apply
from restow.domain.migration.targets import NO_SLOT, Landings, needs_hold
from restow.domain.migration.warnings import warnings
from restow.domain.state import ClusterState

PLAN, EARLIER = PlanId("once"), PlanId("earlier")
NOBODY = Packing(0, 0, 0, 0, 0, 0)
UNHELD = (
    "nothing holds the targets that Defragmentation has found: that takes Restow's scheduler, and in this mode none is asked. Whoever is evicted "
    "lands where its own scheduler puts it; where Restow runs, `restow defrag --now` reserves first"
)


class Pass(msgspec.Struct, frozen=True):
    """`planned` is Defragmentation's plan, None where it did not come to that; `outcome` has who is evicted of it, and why the others
    are not."""

    outcome: Outcome
    planned: Planned | None = None


def carried_out(
    state: ClusterState, policy: Policy, now: Millis, samples: Samples | None = None, evicts: Callable[[Eviction], str] | None = None
) -> Pass:
    """The state stays as it is; `now` is what ages and metrics are measured against. `evicts` evicts whoever is decided on before anything more is, and says
    "" or why not: what is refused uses up no limit, and gives nobody capacity."""
    run, port = Run(state, policy, now, samples), EvictOnly(evicts)
    if run.skipped:
        return Pass(Outcome(skipped=run.skipped))
    for turn in policy.turns():
        run.carry(turn, port)
    return Pass(run.outcome(), port.planned)


class EvictOnly:
    """The port where nothing can be held (`framework.Port`)."""

    holds = False

    def __init__(self, evicts: Callable[[Eviction], str] | None) -> None:
        self._evicts = evicts
        self.planned: Planned | None = None

    def unmovable(self, pod: PodUid) -> str:
        return ""

    def company(self, pod: PodUid) -> Sequence[PodUid]:
        return (pod,)

    def promise(self, pod: PodUid, to: Sequence[NodeName] | None) -> str:
        return ""

    def evict(self, eviction: Eviction) -> str:
        return "" if self._evicts is None else self._evicts(eviction)

    def lands_on(self, pod: PodUid) -> NodeName | None:
        return None

    def defragment(self, run: Run, turn: Turn, args: DefragmentationArgs) -> None:
        bound = run.policy.bound(MAX_MOVES, run.taken)
        planned, thought = _planned(run, turn, args, bound)
        free = independent(planned.moves, args.wholeNodes)
        kept = set[NodeName]()
        for move in planned.moves:
            if move.pod and move.source in kept:
                run.keep(turn, move.pod, "Whole: another pod of its node stays, so that nothing would be won")
            elif move.pod and move.migration in free:
                reason = f"the plan has capacity for it on {move.target}"
                grace = run.policy.grace_period_seconds
                gone = run.evict(Eviction(move.pod, move.source, turn.plugin, turn.profile, turn.point, reason, grace), self)
                if args.wholeNodes and not gone:
                    kept.add(move.source)
            elif move.pod:
                run.keep(turn, move.pod, f"Waits: its capacity on {move.target} is free only when others have landed, which nobody sees to here")
        for one in thought:
            if one.verdict != PLANNED:
                run.keep(turn, one.pod, f"{one.verdict.partition(': ')[0]}: {one.message}")
        self.planned = planned if bound > 0 else replace(planned, reason=TOTAL)


def _planned(run: Run, turn: Turn, args: DefragmentationArgs, bound: int) -> tuple[Planned, tuple[Candidate, ...]]:
    """As the service would plan, with the reasons of those who stay."""
    state, now = run.state, run.now
    with state.draft():
        state.time = Millis(max(state.time, now))
        state.migration_config = MigrationConfig(defragmentation=args)
        # Whoever schedules them, they are looked at as our scheduler would: by the same rules, near enough.
        schedulers = tuple(sorted({shape.scheduler for shape in state.shapes.values()}))
        state.session_config = replace(state.session_config, scheduler_names=schedulers)
        # Which queues there are nobody has asked, and other schedulers do not mind them: all that pods name take jobs.
        for name in dict.fromkeys(state.queue_of(pod.fact) for pod in state.pods.values()):
            if name not in state.queues:
                state.put(state.queues, name, QueueObserved(name, name, Millis(0)))
        if run.evictions:
            apply(state, (_earlier(run),))
        # Nobody holds their places here.
        scope = run.scope(turn.profile).without_gangs()
        planned, thought = defragmentation.explained(state, args, now, PLAN, bound, scope)
        told = warnings(state)
    for text in told:
        run.warn(turn.profile, turn.plugin, text)
    return planned, thought


def independent(moves: tuple[Move, ...], whole: bool) -> frozenset[MigrationId]:
    """Moves that wait for nobody; with `whole` nodes only those of sources that nobody waits on."""
    bound = {move.source for move in moves if _waits(move)} if whole else frozenset()
    return frozenset(move.migration for move in moves if not _waits(move) and move.source not in bound)


def _waits(move: Move) -> bool:
    return bool(move.after or move.follows)


def _earlier(run: Run) -> Planned:
    """What other plugins have evicted, as a plan: their successors are thought to be where the scheduler would put them now, so that
    nobody else is sent there. Who finds no node waits, and takes none."""
    state, moves = run.state, []
    landings = Landings(state, run.now)
    try:
        for i, eviction in enumerate(run.evictions.values(), 1):
            pod = state.pods[eviction.pod].fact
            found = needs_hold(state, eviction.pod) and not landings.promise(eviction.pod, None)
            target, spot = (landings.lands_on(eviction.pod) or NodeName(""), landings.spots[eviction.pod]) if found else (NodeName(""), NO_SLOT)
            id = MigrationId(f"{EARLIER}-{i}")
            moves.append(Move(id, eviction.pod, pod.namespace, pod.name, eviction.node, target, spot.devices, spot.cores))
    finally:
        landings.close()
    return Planned(EARLIER, "", tuple(moves), NOBODY, NOBODY)
