"""What keeps a pod where it is, whoever wants its capacity: preemption, reclaiming, migrations (RULES G-11, G-13).

A protection is a veto: one no is final. Three of them follow from the state alone and are said here: that the cluster lives on
the pod, that somebody asked not to disrupt it, and that its PodDisruptionBudget allows nobody to go. The Eviction API would refuse
the last one; a decision that counts on it would wait for nothing.
"""

from restow.contracts.events import BudgetObserved, NodeObserved, PodObserved
from restow.contracts.ids import PodUid
from restow.domain.duration import DurationError, milliseconds
from restow.domain.records import Step
from restow.domain.selectors import covers
from restow.domain.state import ClusterState

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_CRITICAL = 2_000_000_000
"""Priorities from which on Kubernetes takes a pod for critical."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
DISRUPTION_ANNOTATIONS = (SAFE_TO_EVICT, DO_NOT_DISRUPT)
PREEMPTABLE = "volcano.sh/preemptable"
COOLDOWN_TIME = "volcano.sh/cooldown-time"
"""Of Volcano, annotations or labels: whether others may take what a pod has (where nothing is said, plugins decide), and for how long after its start
nobody may."""
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
"""Of Volcano, a label of a node that is there for its pods at times only (plugin tdm)."""
NO = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""What Go's ParseBool reads as false."""
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""An annotation, whatever its value: a pod that others go before, or, where a policy says so, that stays."""

Allowance = tuple[tuple[str, ...], int]
"""What pods have in common that not all of may go, and how many of these still may: none where it is 0 or less."""


def is_critical(state: ClusterState, pod: PodObserved) -> bool:
    """Whether the cluster lives on it, by its priority."""
    shape = state.shapes[pod.shape]
    return shape.priority_class in CRITICAL or shape.priority >= SYSTEM_CRITICAL


def asked_to_stay(pod: PodObserved) -> str:
    """The annotation, with its value, by which somebody asks not to disrupt the pod; empty where there is none."""
    if pod.annotations:
        for annotation, value in ((SAFE_TO_EVICT, "false"), (DO_NOT_DISRUPT, "true")):
            if pod.annotations.get(annotation) == value:
                return f"{annotation}: {value}"
    return ""


def asks_to_stay(state: ClusterState, uid: PodUid) -> str:
    """The same for who would move it without need: what is asked for a time counts for that time, and what is asked of its node for all pods there."""
    pod, live = state.pods[uid].fact, state.pods[uid].live
    if said := asked_to_stay(pod):
        return said
    node = state.nodes.get(live.node) if live.node is not None else None
    if node is not None and node.do_not_disrupt:
        return f"{DO_NOT_DISRUPT}: true, of its node"
    said_by = (pod.annotations.get(DO_NOT_DISRUPT, ""), pod.labels.get(COOLDOWN_TIME) or pod.annotations.get(COOLDOWN_TIME, ""))
    for annotation, value in zip((DO_NOT_DISRUPT, COOLDOWN_TIME), said_by, strict=True):
        if value and (lasts := _lasts(value)) > 0 and (not live.started or state.time < live.started + lasts):
            return f"{annotation}: {value}, from its start on"
    preemptable = pod.annotations.get(PREEMPTABLE) or pod.labels.get(PREEMPTABLE, "")
    return f"{PREEMPTABLE}: {preemptable}" if preemptable in NO else ""


def _lasts(value: str) -> int:
    """Milliseconds; 0 of what is no duration, for that asks for nothing (Karpenter, Volcano)."""
    try:
        return milliseconds(value)
    except DurationError:
        return 0


def is_revocable(node: NodeObserved) -> bool:
    """Whether Volcano gives and takes it by the clock: no target is planned there."""
    return bool(node.labels.get(REVOCABLE_ZONE))


def is_evicted(state: ClusterState, uid: PodUid) -> bool:
    """Whether a migration evicts the pod, or may do so still while it turns back; the log may not have seen its end yet."""
    id = state.victims.get(uid)
    return id is not None and state.migrations[id].step in (Step.EVICTING, Step.ABORTING, Step.EVICTED)


def _labels_asked(budgets: list[tuple[str, BudgetObserved]]) -> list[str]:
    """The labels that their selectors name."""
    selectors = [budget.selector for _, budget in budgets if budget.selector is not None]
    return list(dict.fromkeys(name for s in selectors for name in (*s.labels, *(e.key for e in s.expressions))))


class Budgets:
    """The PodDisruptionBudgets as they are in a state; made for one decision. O(budgets) to make."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._spaces: dict[str, list[tuple[str, BudgetObserved]]] = {}
        for path, budget in state.budgets.items():
            self._spaces.setdefault(budget.namespace, []).append((path, budget))
        self._asked = {namespace: _labels_asked(here) for namespace, here in self._spaces.items()}
        self._known: dict[tuple, tuple[str, ...]] = {}
        self._going: dict[str, int] | None = None

    def of(self, pod: PodObserved) -> tuple[str, ...]:
        """The budgets (`namespace/name`) that are about the pod."""
        here = self._spaces.get(pod.namespace)
        if not here:
            return ()
        # Labels that no selector names (a pod's own name, its index) tell no pods apart.
        key = (pod.namespace, *[pod.labels.get(name) for name in self._asked[pod.namespace]])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(path for path, budget in here if covers(budget, pod))
        return known

    def within(self, namespace: str) -> tuple[str, ...]:
        """All of the namespace."""
        return tuple(path for path, _ in self._spaces.get(namespace, ()))

    def bind(self, uid: PodUid) -> tuple[str, ...]:
        """The budgets that the API asks before it evicts the pod: none for one whose containers have never run, and not its only one
        where that lets those go that are not ready."""
        live = self._state.pods[uid].live
        if live.phase == "Pending":
            return ()
        paths = self.of(self._state.pods[uid].fact)
        # The API counts them first: it evicts no pod of two, ready or not.
        return () if len(paths) == 1 and not live.ready and self._state.budgets[paths[0]].unready else paths

    def evictions_left(self, path: str) -> int:
        """How many of its pods may still go: those whose eviction was decided and is not accepted yet are counted."""
        if self._going is None:
            self._going = {}
            for uid in self._leaving():
                for budget in self.bind(uid):
                    self._going[budget] = self._going.get(budget, 0) + 1
        return self._state.budgets[path].allowed - self._going.get(path, 0)

    def _leaving(self) -> list[PodUid]:
        state = self._state
        chosen = dict.fromkeys([*state.victims_of, *(uid for uid in state.victims if is_evicted(state, uid))])
        return [uid for uid in chosen if uid in state.pods and not state.pods[uid].live.deleting]

    def allowances(self, uid: PodUid) -> list[Allowance]:
        """What the pod's budgets say. The API evicts no pod that two of them are about."""
        paths = self.bind(uid)
        if len(paths) > 1:
            return [(("budgets", *paths), 0)]
        return [(("budget", path), self.evictions_left(path)) for path in paths]

    def keep(self, uid: PodUid) -> bool:
        """Whether the API would evict the pod for nobody now, whoever else is to go."""
        paths = self.bind(uid)
        return len(paths) > 1 or any(self._state.budgets[path].allowed <= 0 for path in paths)

    def refusal(self, uid: PodUid) -> str:
        """Why the pod could not be evicted now, after those whose eviction was decided already; empty where it could."""
        paths = self.bind(uid)
        if len(paths) > 1:
            return f"more than one disruption budget is about it ({', '.join(sorted(paths))}), and then the API evicts nobody"
        if paths and self.evictions_left(paths[0]) <= 0:
            return f"the disruption budget {paths[0]} allows no eviction now"
        return ""
