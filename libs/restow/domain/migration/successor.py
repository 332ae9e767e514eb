"""Who comes after a pod that was evicted: who that may be, and whether it needs a slot."""

from collections.abc import Iterator

from restow.contracts.events import WorkloadObserved
from restow.contracts.ids import PodUid
from restow.domain.beside import GATE
from restow.domain.pod_controllers import is_beyond, known_owner
from restow.domain.records import Migration
from restow.domain.state import ClusterState
from restow.domain.successors import may_follow


def followers(state: ClusterState, migration: Migration) -> Iterator[PodUid]:
    """Pods that may follow it, and have not ended."""
    alive = state.alive_under(migration.lineage.partition("/")[0])
    return (uid for uid in alive if may_follow(state, state.pods[uid].fact, migration))


def waiting(state: ClusterState, migration: Migration) -> PodUid | None:
    """A pod that may follow it and waits for a node: the first one."""
    found = [uid for uid in followers(state, migration) if state.node_of(uid) is None and uid not in state.successors]
    return min(found, key=state.order_of, default=None)


def gates_of_others(state: ClusterState, uid: PodUid) -> str:
    """The scheduling gates of a pod that are not ours to remove."""
    return ", ".join(gate for gate in state.pods[uid].fact.gates if gate != GATE)


def elsewhere(state: ClusterState, migration: Migration) -> PodUid | None:
    """A pod that may follow it and has a node, where nobody waits for one: the first one. Who has taken another move's slot follows that one's."""
    found = [uid for uid in followers(state, migration) if state.node_of(uid) is not None]
    if not found or waiting(state, migration) is not None:
        return None
    others = _of_others(state, migration)
    return min((uid for uid in found if uid not in others), key=state.order_of, default=None)


def _of_others(state: ClusterState, migration: Migration) -> set[PodUid]:
    """Who has taken another move's slot. O(migrations)."""
    return {one.successor for one in state.migrations.values() if one is not migration}


def needs_no_slot(state: ClusterState, migration: Migration) -> bool:
    """Whether somebody who may follow it has a node, and nobody waits for one."""
    return elsewhere(state, migration) is not None


def no_other_comes(state: ClusterState, migration: Migration) -> bool:
    """Whether those who may follow it are bound, and all that can: they have its name, or their controller has as many as it is to have. O(workloads)."""
    top, _, name = migration.lineage.partition("/")
    known = state.workloads.get(top)
    if not name and (known is None or not _has_all(state, migration, known)):
        return False
    return all(state.pods[uid].live.node is not None and (not name or has_its_name(state, uid)) for uid in followers(state, migration))


def follows_earlier(state: ClusterState, migration: Migration) -> bool:
    """Whether those who may follow it are no more than wait for others of its controller that were evicted before it. O(migrations)."""
    armed = (state.migrations[id] for id in state.armed.get(migration.lineage, ()))
    before = [one for one in armed if not one.successor and (one.armed, one.id) < (migration.armed, migration.id)]
    if not before:
        return False
    found = {uid for one in (*before, migration) for uid in followers(state, one)} - _of_others(state, migration)
    return len(found) <= len(before)


def has_its_name(state: ClusterState, uid: PodUid) -> bool:
    """Whether this pod alone may follow one whose lineage it shares: its controller makes no second one of that name beside it."""
    owner = known_owner(state.pods[uid].fact)
    return owner is not None and owner.again == "name"


def pattern(state: ClusterState, migration: Migration) -> PodUid | None:
    """The pod that says what is to be held at the old node: the one that was evicted, while it is there, or who waits for its slot."""
    return migration.move.pod if migration.move.pod in state.pods else waiting(state, migration)


def no_more(state: ClusterState, migration: Migration) -> str:
    """Why its controller makes no other pod for it. Empty where one may come, or has come, and where nobody knows. O(workloads)."""
    top, _, name = migration.lineage.partition("/")
    known = state.workloads.get(top)
    if name:
        return _no_more_of_that_name(state, migration, known, name)
    if known is None or not _has_all(state, migration, known) or any(_may_stand_for(state, uid, migration) for uid in _pods_of(state, migration) - _of_others(state, migration)):
        return ""
    return f"{known.kind} {known.name} is to have {known.wanted} pod{'s' * (known.wanted != 1)}, and has them"


def _has_all(state: ClusterState, migration: Migration, known: WorkloadObserved) -> bool:
    """Whether its controller, which names no pod, has as many as it is to have, so that no more come."""
    if not migration.told or known.group or known.kind == "StatefulSet" or known.wanted is None or known.busy not in ("", "scaling_down"):
        # In a rollout pods of the next ReplicaSet may follow, between two of its steps all that are wanted may be there. What was told before the eviction
        # says nothing of now: where that watch is behind, its pods may already be more than the number that it told.
        return False
    return len(_pods_of(state, migration)) >= known.wanted


def _pods_of(state: ClusterState, migration: Migration) -> set[PodUid]:
    """Of its controller, which names no pod. The API takes any uid for an owner's: pods of other namespaces are not its own."""
    return {uid for uid in state.alive_under(migration.lineage) if state.pods[uid].fact.namespace == migration.move.namespace}


def _may_stand_for(state: ClusterState, uid: PodUid, migration: Migration) -> bool:
    """Whether this pod of its Deployment may have come for the evicted one: who may follow it, and whoever its ReplicaSet has made since. One that asks for something else
    was changed by somebody's admission: the next ones will be, too, so that each such move is a miss (RULES G-12)."""
    pod = state.pods[uid].fact
    same = pod.owner is not None and pod.owner.uid == migration.controller and state.order_of(uid) > migration.came_before
    return same or may_follow(state, pod, migration)


def _no_more_of_that_name(state: ClusterState, migration: Migration, known: WorkloadObserved | None, name: str) -> str:
    """Of a StatefulSet that was scaled down, or rolled out: the pod of its name asks for something else, or is not to be."""
    top = migration.lineage.partition("/")[0]
    if next(followers(state, migration), None) is not None:
        return ""
    for uid in state.alive_under(top):
        pod, order = state.pods[uid].fact, state.order_of(uid)
        if order > migration.came_before and state.lineage(pod) == migration.lineage and has_its_name(state, uid) and not may_follow(state, pod, migration):
            return f"{pod.name} asks for something else than before"
    if known is None or not is_beyond(known, name):
        return ""
    if known.busy != "scaling_down" and not migration.told:
        # Told before the eviction: it may have been scaled up since, with this pod.
        return ""
    return f"StatefulSet {known.name} is scaled down, and is to have no {name}"
