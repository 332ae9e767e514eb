"""Which pods of a source may move, and why not (seed 000, 2.3.2; RULES 000-4).

Stricter than an evictor where a hold would be useless: nobody would take it. What else protects a pod is asked of the profile's filter
plugins (`scope`); where there is no policy, as upstream's DefaultEvictor does by its rules that matter here.
"""

from collections.abc import Sequence

from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import PodShape
from restow.domain.beside import another_scheduler
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.args import selector
from restow.domain.defragmentation.scope import EVERYTHING, Scope
from restow.domain.disruption import Spare, not_admitted
from restow.domain.groups import Group, group_of
from restow.domain.held_by_claim import why_it_stays
from restow.domain.movable import starts_again, unmovable
from restow.domain.pod_controllers import known_owner
from restow.domain.protection import COOLDOWN_TIME, PREFER_NO_EVICTION, SYSTEM_CRITICAL
from restow.domain.selectors import selects
from restow.domain.state import ClusterState
from restow.domain.topology.terms import wants
from restow.domain.verdicts import (
    BARE,
    BINDING,
    BOUNCED,
    CRITICAL,
    DAEMON_SET,
    LABELS,
    MIGRATING,
    NAMESPACE,
    NOT_MOVABLE,
    NOT_READY,
    PINNED,
    STATIC,
    TERMINATING,
    UNSUPPORTED,
    USES_RESERVATION,
    stay,
)
from restow.domain.whole_gangs import members, over_budget

RENAMED = {LABELS: "EvictorLabels", NAMESPACE: "EvictorNamespace"}
"""Verdicts of filter plugins that have the name of one of ours and are about something else."""

OrderKey = tuple[bool, int, int, int, str, str, str]


def is_foreseen(shape: PodShape) -> bool:
    """Whether a plan can tell where the pod will fit: rules about other pods, ports, volumes and CPUs depend on what runs when its
    successor comes, and plans do not follow them."""
    says = wants(shape)
    required = says.affinity or says.anti or says.hard
    return not (required or shape.host_ports or shape.volumes or shape.is_beyond_us or shape.cores)


class Evictable:
    """The rules for one plan; what depends only on a shape is decided once a shape."""

    def __init__(
        self, state: ClusterState, args: DefragmentationArgs, resource: str, by_rules: bool = False, scope: Scope = EVERYTHING
    ) -> None:
        """`by_rules`: who plans asks the session's rules about what runs, too."""
        self._scope = scope
        self._state = state
        self._by_rules = by_rules
        names = args.evictableNamespaces
        self._include = frozenset(names.include) if names is not None else frozenset()
        self._exclude = frozenset(names.exclude) if names is not None else frozenset()
        asked = selector(args)
        self._selector = asked.selects if asked is not None else None
        self._resource = resource
        self._spare = Spare.planning(state)
        self._alone = (state.victims, state.successors, state.victims_of, state.refused, state.resized)
        self._shapes: dict[ShapeId, str] = {}
        self._sizes: dict[ShapeId, tuple[int, int, int]] = {}
        self._gangs: dict[Group, tuple[list[PodUid], str]] = {}
        self._free: set[tuple] = set()
        """Of plain pods (`_plain`) those kinds that no rule keeps."""

    def verdict(self, uid: PodUid) -> str:
        """The first rule that keeps the pod where it is, if it goes alone; empty where none does. Of a filter plugin with its sentence: `Word: …`."""
        kind = self._plain(uid)
        if kind is not None and kind in self._free:
            return self._filtered(uid)
        said = self._itself(uid) or self._spare.why_not(uid)
        if kind is not None and not said:
            self._free.add(kind)
        return said

    def _plain(self, uid: PodUid) -> tuple | None:
        """Equal for pods of which all rules but filter plugins say the same: nothing is known of such a pod alone. None for any other."""
        state, seen = self._state, self._state.pods[uid]
        pod, live = seen.fact, seen.live
        if pod.annotations or pod.static or pod.claims or pod.owners or pod.pinned_node or COOLDOWN_TIME in pod.labels:
            return None
        if live.phase != "Running" or not live.ready or live.deleting or live.node is None:
            return None
        node = state.nodes.get(live.node)
        if node is None or node.do_not_disrupt or state.owes(uid):
            return None
        for some in self._alone:
            if uid in some:
                return None
        known = known_owner(pod)
        if pod.owner is None or known is None or known.again != "always":
            return None
        if state.left_alone and (state.lineage(pod), live.node) in state.left_alone:
            return None
        return pod.owner.uid, pod.namespace, pod.shape, tuple(pod.labels.items())

    def as_one(self, uid: PodUid) -> tuple[list[PodUid], str]:
        """Of a pod that cannot go alone: all pods of its gang where that starts again (else nobody), and why they cannot go as one, a sentence, empty
        where they can. Every answer is about all of the gang, and kept."""
        state, pod = self._state, self._state.pods[uid].fact
        group = group_of(pod)
        if group is None or not self._scope.gangs or not starts_again(state, pod):
            return [], ""
        if group not in self._gangs:
            pods, why = members(state, group)
            self._gangs[group] = pods, why or self._near(group) or self._stay(pods) or over_budget(state, pods)
        return self._gangs[group]

    def _near(self, group: Group) -> str:
        """Where they fit depends on where the others of them are."""
        known = self._state.pod_groups.get(group)
        return "its pods are to be near to each other" if known is not None and known.topology is not None and not self._by_rules else ""

    def _stay(self, pods: Sequence[PodUid]) -> str:
        state = self._state
        for uid in pods:
            itself = self._itself(uid, as_gang=True) or not_admitted(state, uid) or self._spare.remembered(uid)
            if why := itself or ("" if starts_again(state, state.pods[uid].fact) else NOT_MOVABLE):
                said = stay(why)
                return f"pod {state.pods[uid].fact.name} stays: {said.sentence or said.id}"
        return ""

    def _itself(self, uid: PodUid, as_gang: bool = False) -> str:
        """Whether it stays whoever can spare it."""
        state = self._state
        pod, live = state.pods[uid].fact, state.pods[uid].live
        owner = pod.owner
        if pod.static:
            return STATIC
        if owner is None:
            return BARE
        if owner.kind == "DaemonSet":
            return DAEMON_SET
        if live.deleting:
            return TERMINATING
        if live.node is None:
            return BINDING
        if uid in state.victims or uid in state.successors:
            return MIGRATING
        if state.owes(uid):
            return USES_RESERVATION
        if live.phase != "Running" or not live.ready:
            return NOT_READY
        if (self._include and pod.namespace not in self._include) or pod.namespace in self._exclude:
            return NAMESPACE
        if self._selector is not None and not selects(self._selector, pod.labels):
            return LABELS
        if pod.pinned_node:
            return PINNED
        if state.left_alone and (state.lineage(pod), live.node) in state.left_alone:
            return BOUNCED
        of_shape = self._shapes.get(pod.shape)
        if of_shape is None:
            of_shape = self._of_shape(pod.shape)
        if of_shape in ("", UNSUPPORTED) and state.shapes[pod.shape].resource_claims and (why := why_it_stays(state, uid)):
            return why
        return of_shape or unmovable(state, uid, as_gang) or self._filtered(uid)

    def _filtered(self, uid: PodUid) -> str:
        said = self._scope.why_not(uid) if self._scope.why_not is not None else ""
        said = said or self._scope.quota.nothing_left(uid, self._state.pods[uid].live.node or NodeName(""))
        head, _, sentence = said.partition(": ")
        return f"{RENAMED[head]}: {sentence}" if head in RENAMED else said

    def _of_shape(self, id: ShapeId) -> str:
        shape = self._state.shapes[id]
        verdict = ""
        if shape.priority >= SYSTEM_CRITICAL and self._scope.why_not is None:
            verdict = CRITICAL
        elif why := another_scheduler(self._state, id):
            verdict = why
        elif shape.unreadable or (not self._by_rules and not is_foreseen(shape)):
            verdict = UNSUPPORTED
        self._shapes[id] = verdict
        return verdict

    def order(self, uid: PodUid) -> OrderKey:
        """Sort key: larger requests of the classifying resource first, then cpu, memory, namespace, name. As under upstream's default policy,
        Preferred, the annotation that asks for no eviction does not forbid it: such pods move after all others of their node."""
        pod = self._state.pods[uid].fact
        size = self._sizes.get(pod.shape)
        if size is None:
            asked = self._state.shapes[pod.shape].requests
            size = self._sizes[pod.shape] = (
                -asked.get(self._resource, 0),
                -asked.get("cpu", 0),
                -asked.get("memory", 0),
            )
        return (PREFER_NO_EVICTION in pod.annotations, *size, pod.namespace, pod.name, uid)
