"""A whole policy carried out once where nothing of ours runs: upstream's plugins evict as upstream does, and Defragmentation plans as ever, but
nothing can hold the places that it finds. So of its plan only those go who wait for nobody."""

import msgspec
from msgspec.structs import replace

from restow.contracts.events import Planned, QueueObserved
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.samples import Samples
from restow.contracts.values import Move, Packing
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.defragmentation.explain import PLANNED
from restow.domain.defragmentation.plan import MAX_MOVES
from restow.domain.descheduling.framework import Eviction, Verdict
from restow.domain.descheduling.run import TOTAL, Carry, Outcome, Run, Turn, Warned, too_few
from restow.domain.descheduling.selection import selected_nodes
from restow.domain.descheduling.whole import PLUGIN, Whole
from restow.domain.fold import apply
from restow.domain.migration.landing import Landings, needs_hold
from restow.domain.migration.scope import in_run, most
from restow.domain.planview import warnings
from restow.domain.state import ClusterState

PLAN, EARLIER = PlanId("once"), PlanId("earlier")
NOBODY = Packing(0, 0, 0, 0, 0, 0)
UNHELD = (
    "nothing holds the places that Defragmentation has found: that takes Restow's scheduler, and in this mode none is asked. Whoever is evicted "
    "lands where its own scheduler puts it; where Restow runs, `restow defrag --now` reserves first"
)


class Pass(msgspec.Struct, frozen=True):
    """`planned` is Defragmentation's plan, None where it did not come to that; `outcome` has who is evicted of it, and why the others
    are not."""

    outcome: Outcome
    planned: Planned | None = None


def carried_out(state: ClusterState, whole: Whole, now: Millis, samples: Samples | None = None, carry: Carry | None = None) -> Pass:
    """The state stays as it is. What is decided is what `descheduling.run.evaluate` decides, and Defragmentation at its place. `carry`
    evicts whoever is decided on before anything more is: what is refused uses up no limit, and gives nobody room."""
    nodes = selected_nodes(state, whole.policy.node_selector)
    if why := too_few(nodes):
        return Pass(Outcome(skipped=why))
    run, planned = Run(state, whole.policy, now, nodes, samples, carry), None
    for turn in whole.turns():
        if turn.plugin != PLUGIN:
            run.carry(turn)
        elif whole.own is not None:
            planned = _defragment(run, whole.own.args, turn)
    return Pass(run.outcome(), planned)


def _defragment(run: Run, args: DefragmentationArgs, turn: Turn) -> Planned:
    state, now = run.state, run.now
    bound = most(run.policy, MAX_MOVES, run.taken)
    with state.draft():
        state.time = Millis(max(state.time, now))
        state.migration_config = MigrationConfig(defragmentation=args)
        # Whoever schedules them, they are looked at as our scheduler would: by the same rules, near enough.
        schedulers = tuple(sorted({shape.scheduler for shape in state.shapes.values()}))
        state.session_config = replace(state.session_config, scheduler_names=schedulers)
        # Which queues there are nobody has asked, and other schedulers do not mind them: all that pods name take jobs.
        for name in dict.fromkeys(map(state.queue_of, state.pods.values())):
            if name not in state.queues:
                state.put(state.queues, name, QueueObserved(name, name, Millis(0)))
        if run.evictions:
            apply(state, (_earlier(run),))
        scope = in_run(run, turn.profile)
        planned = defragmentation.plan(state, args, now, PLAN, bound, scope)
        thought = defragmentation.explain(state, args, now, bound, scope)
        told = warnings(state)
    for text in told:
        run.warnings[Warned(turn.profile, PLUGIN, text)] = None
    free = independent(planned.moves, args.wholeNodes)
    kept = set[NodeName]()
    for move in planned.moves:
        if move.pod and move.source in kept:
            _keep(run, turn, move.pod, "Whole: another pod of its node stays, so that nothing would be won")
        elif move.pod and move.migration in free:
            reason = f"the plan has a place for it on {move.target}"
            grace = run.policy.grace_period_seconds
            gone = run.evict(Eviction(move.pod, move.source, PLUGIN, turn.profile, turn.point, reason, grace))
            if args.wholeNodes and not gone:
                kept.add(move.source)
        elif move.pod:
            why = f"Waits: its place on {move.target} is free only when others have landed, which nobody sees to here"
            _keep(run, turn, move.pod, why)
    for one in thought:
        if one.verdict != PLANNED:
            _keep(run, turn, one.pod, f"{one.verdict.partition(': ')[0]}: {one.message}")
    if bound <= 0:
        return replace(planned, reason=TOTAL)
    return planned


def independent(moves: tuple[Move, ...], whole: bool) -> frozenset[MigrationId]:
    """Moves that wait for nobody; with `whole` nodes only those of sources that nobody waits on."""
    bound = {move.source for move in moves if _waits(move)} if whole else frozenset()
    return frozenset(move.migration for move in moves if not _waits(move) and move.source not in bound)


def _waits(move: Move) -> bool:
    return bool(move.after or move.follows)


def _keep(run: Run, turn: Turn, pod: PodUid, why: str) -> None:
    if pod not in run.evictions:
        run.verdicts[turn.profile, PLUGIN, pod] = Verdict(pod, PLUGIN, turn.profile, turn.point, why)


def _earlier(run: Run) -> Planned:
    """What other plugins have evicted, as a plan: their successors are thought to be where the scheduler would put them now, so that
    nobody else is sent there. Who finds no place waits, and takes none."""
    state, moves = run.state, []
    places = Landings(state, run.now)
    try:
        for i, eviction in enumerate(run.evictions.values(), 1):
            pod = state.pods[eviction.pod]
            found = needs_hold(state, eviction.pod) and not places.promise(eviction.pod, None)
            spot = places.spots[eviction.pod] if found else None
            move = Move(MigrationId(f"{EARLIER}-{i}"), eviction.pod, pod.namespace, pod.name, eviction.node, spot.node if spot else NodeName(""))
            moves.append(replace(move, devices=spot.devices, cores=spot.cores) if spot else move)
    finally:
        places.close()
    return Planned(EARLIER, "", tuple(moves), NOBODY, NOBODY)
