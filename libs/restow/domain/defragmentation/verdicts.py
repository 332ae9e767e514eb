"""The registry of verdicts: why a pod stays, each an id with its sentence.

A rule says its id alone, or `Id: sentence` where it has more to say of one pod than the sentence in general.
"""

import msgspec

from restow.domain.movable import MEANING as OF_OWNERS
from restow.domain.spare import MEANING as OF_SPARE

STATIC = "Static"
BARE = "Bare"
DAEMON_SET = "DaemonSet"
TERMINATING = "Terminating"
BINDING = "Binding"
NOT_READY = "NotReady"
MIGRATING = "Migrating"
CRITICAL = "Critical"
SCHEDULER = "Scheduler"
NAMESPACE = "Namespace"
LABELS = "Labels"
UNSUPPORTED = "Unsupported"
PINNED = "Pinned"
DRAWS = "Draws"
CAME_BACK = "CameBack"
PER_NODE, PER_NAMESPACE, NOT_SELECTED = "LimitPerNode", "LimitPerNamespace", "NodeSelector"
CRITICAL_NODE, COOLDOWN, NOT_OPEN, OWED = "CriticalNode", "Cooldown", "NodeNotOpen", "NodeOwesRoom"
NO_TARGET, TOO_FEW_SOURCES, LIMIT, NO_GAIN, STEPS = "NoTarget", "TooFewSources", "Limit", "NoGain", "SearchSteps"

_OF_FILTERS = {
    "NoEviction": "its annotation asks for it, and noEvictionPolicy is Mandatory",
    "SystemCritical": "its priority is system-critical",
    "Priority": "its priority is not below DefaultEvictor's priorityThreshold",
    "LocalStorage": "it would lose its emptyDir or hostPath (podProtections)",
    "PVC": "it has a PersistentVolumeClaim that podProtections name",
    "WithoutPDB": "no PodDisruptionBudget is about it",
    "PDB": "a PodDisruptionBudget is about it, and it is not its owner's only pod",
    "ResourceClaims": "it has claimed devices",
    "EvictorLabels": "DefaultEvictor's labelSelector does not select it",
    "EvictorNamespace": "DefaultEvictor's namespaceLabelSelector does not select its namespace",
    "MinReplicas": "its owner has fewer pods than DefaultEvictor's minReplicas",
    "MinPodAge": "it is younger than DefaultEvictor's minPodAge",
}
"""Of DefaultEvictor, in general; what exactly it has against one pod it says itself."""

SENTENCES = _OF_FILTERS | OF_OWNERS | OF_SPARE | {
    STATIC: "a static pod: only its kubelet can end it",
    BARE: "no controller would create it again",
    DAEMON_SET: "a DaemonSet's pod belongs to its node",
    TERMINATING: "it is going away already",
    BINDING: "it is not bound to the node yet",
    NOT_READY: "it is not ready, so a successor would hardly become ready either",
    MIGRATING: "it is part of a migration that is under way",
    CRITICAL: "its priority is system-critical",
    SCHEDULER: "another scheduler places it, which knows nothing of holds",
    NAMESPACE: "evictableNamespaces leaves its namespace out",
    LABELS: "labelSelector does not select it",
    UNSUPPORTED: "it has a constraint that a hold cannot promise to meet",
    PINNED: "it asks for this very node",
    DRAWS: "what it uses belongs to a Reservation, which would only have it back",
    CAME_BACK: "its like were moved off this node and came back, again and again",
    PER_NODE: "maxNoOfPodsToEvictPerNode is reached on its node",
    PER_NAMESPACE: "maxNoOfPodsToEvictPerNamespace is reached in its namespace",
    NOT_SELECTED: "nodeSelector does not select its node",
    CRITICAL_NODE: "its node has the label critical=true",
    COOLDOWN: "its node had migrations within coolDownTime",
    NOT_OPEN: "its node is not ready, or cordoned",
    OWED: "what becomes free on its node is promised to others",
    NO_TARGET: "no target fits",
    TOO_FEW_SOURCES: "too few nodes are sources (numberOfNodes)",
    LIMIT: "the plan is full; a later one may move it",
    NO_GAIN: "moving it would gain nothing that is worth it",
    STEPS: "searchSteps were used up before it was its turn",
}
"""By id."""


class Stay(msgspec.Struct, frozen=True):
    """Why a pod stays: an id (of NO_TARGET with the rule that leaves the fewest nodes), and the `sentence` about this pod. Where no target took it:
    how many there were, and how many each rule `removed` (the first that applies counts)."""

    id: str
    sentence: str
    targets: int = 0
    removed: dict[str, int] = {}


def stay(said: str) -> Stay:
    """What a rule has said."""
    id, _, sentence = said.partition(": ")
    return Stay(id, sentence or SENTENCES.get(id, ""))


def sentence(id: str) -> str:
    """Of a verdict as plans count it; "" of one that is not known."""
    head, _, rule = id.partition(": ")
    return f"{SENTENCES[NO_TARGET]}: {rule}" if head == NO_TARGET and rule else SENTENCES.get(id, "")
