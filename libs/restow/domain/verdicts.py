"""The registry of verdicts: why a pod stays, why a migration ended and why a plan was cancelled, each an id with its sentence.

A rule says its id alone, or `Id: sentence` where it has more to say of one pod or migration than the sentence in general.
"""

import msgspec

from restow.domain.pod_controllers import MOVABLE

STATIC = "Static"
BARE = "Bare"
DAEMON_SET = "DaemonSet"
TERMINATING = "Terminating"
BINDING = "Binding"
NOT_READY = "NotReady"
MIGRATING = "Migrating"
CRITICAL = "Critical"
SCHEDULER = "Scheduler"
NOT_CHOSEN = "NotChosen"
NOT_GATED = "NotGated"
HOLDS_STOLEN = "HoldsStolen"
NOT_CHECKED = "NotChecked"
NAMESPACE = "Namespace"
LABELS = "Labels"
UNSUPPORTED = "Unsupported"
PINNED = "Pinned"
USES_RESERVATION = "UsesReservation"
BOUNCED = "Bounced"
DISTURBED = "Disturbed"
PER_NODE, PER_NAMESPACE, NOT_SELECTED = "LimitPerNode", "LimitPerNamespace", "NodeSelector"
CRITICAL_NODE, COOLDOWN, NOT_OPEN, OWED = "CriticalNode", "Cooldown", "NodeNotOpen", "NodeOwesCapacity"
NO_TARGET, TOO_FEW_SOURCES, LIMIT, NO_GAIN, STEPS = "NoTarget", "TooFewSources", "Limit", "NoGain", "SearchSteps"
NO_TARGETS = "no target nodes"
"""The rule of NO_TARGET where there is no target that could fit."""

MAX_UNAVAILABLE, GANG_MINIMUM, BUDGET, REFUSED, NOT_ADMITTED = "MaxUnavailable", "GangMinimum", "Budget", "Refused", "NotAdmitted"
BAD_HOOK, WORKLOAD_REFUSED, NO_WORD, NOT_ASKED = "BadHook", "WorkloadRefused", "NoWord", "NotAsked"
DO_NOT_DISRUPT, NOT_MOVABLE, UNKNOWN_OWNER, RETRIES, OTHER_TEMPLATE = "DoNotDisrupt", "NotMovable", "UnknownOwner", "Retries", "OtherTemplate"
TOGETHER, KUEUE = "Together", "Kueue"
EVICTION_BUDGET = "EvictionBudget"
OWNER_BUSY = "OwnerBusy"

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

_OF_MOVES = {
    DO_NOT_DISRUPT: "an annotation asks not to disrupt it",
    DISTURBED: "somebody else evicts or deletes what is moved of its workload, or takes the targets away: it is left alone for a while, longer each time",
    NOT_MOVABLE: f"{MOVABLE}: false is said of it",
    BAD_HOOK: "who is to be asked before it is moved cannot be read",
    UNKNOWN_OWNER: f"nobody knows what its controller does when it is evicted; {MOVABLE}: \"true\" on it would say that it may be",
    OTHER_TEMPLATE: "who follows it asks for something else than it does, so that nothing can be held: it was resized in place, or is of an earlier revision of its StatefulSet",
    TOGETHER: "its PodGroup is disrupted as a whole or not at all (disruptionMode)",
    KUEUE: "Kueue would end more than the pod, delete its successor, or let it wait behind others",
    OWNER_BUSY: "its controller is being rolled out, paused, suspended, scaled down or deleted, or has ended: nobody knows what it would make of an eviction",
    RETRIES: "its Job would fail by it, or have no retry left for itself",
    MAX_UNAVAILABLE: "too many other pods of its workload are not ready (maxUnavailable)",
    GANG_MINIMUM: "too few other members of its PodGroup are ready",
    HOLDS_STOLEN: "another scheduler places it, and holds beside that were stolen again and again: such moves rest for ten minutes",
    NOT_GATED: "the API would not keep the successor from its scheduler until its slot is handed over to it: apply deploy/beside (before Kubernetes 1.36 with the chart's webhook), and wait a minute",
    EVICTION_BUDGET: "an eviction budget of the policy (budgets) has too little left for it",
    NOT_ADMITTED: "its successor would not be let in: its queue, its PodGroup, a ResourceQuota or the scheduler's configuration stands in the way",
}
"""Asked before a move is planned, before it begins and before its pod is evicted."""

SENTENCES = _OF_FILTERS | _OF_MOVES | {
    BUDGET: "no disruption budget allows its eviction now",
    REFUSED: "its last moves were refused; it is tried again later",
    STATIC: "a static pod: only its kubelet can end it",
    BARE: "no controller would create it again",
    DAEMON_SET: "a DaemonSet's pod belongs to its node",
    TERMINATING: "it is going away already",
    BINDING: "it is not bound to the node yet",
    NOT_READY: "it is not ready, so a successor would hardly become ready either",
    MIGRATING: "it is part of a migration that is under way",
    CRITICAL: "its priority is system-critical",
    SCHEDULER: "another scheduler places it, which knows nothing of holds (restow.beside in the policy would hold for it with a placeholder)",
    NOT_CHOSEN: "another scheduler places it, which does not choose the part of a device, or the CPUs, that would be held for it",
    NOT_CHECKED: "another scheduler places it, and whether that honours nominations is not known yet (is deploy/beside applied? /readyz of the session says why)",
    NAMESPACE: "evictableNamespaces leaves its namespace out",
    LABELS: "labelSelector does not select it",
    UNSUPPORTED: "it has a constraint that a hold cannot promise to meet",
    PINNED: "it asks for this very node",
    USES_RESERVATION: "what it uses belongs to a Reservation, which would only have it back",
    BOUNCED: "pods like it bounced off this node, again and again",
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
"""Why a pod stays, by id."""

POD_DONE, JOB_ENDED, OWNER_GONE, NOT_NEEDED = "PodDone", "JobEnded", "OwnerGone", "NotNeeded"
ENDED = _OF_MOVES | {
    "Cancelled": "its plan was cancelled",
    "Taken": "an earlier plan moves its pod",
    "After": "a move that had to land first ended otherwise, or the moves of its plan wait for each other",
    "Whole": "another pod of its node stays, and its plan empties nodes wholly; or another pod of the gang that its plan moves as one",
    "NoCapacity": "others have taken the target's capacity since the plan",
    "TargetLost": "its target is gone, not ready, unschedulable, or does not take the pod any more",
    "HoldTimeout": "its target was not held in time",
    "HoldFailed": "its Reservation failed, was deleted, or is not what was planned",
    "HoldLost": "its slot was lost",
    "HoldStolen": "the placeholder that held its slot for another scheduler was preempted, rejected or deleted",
    "HoldTaken": "a pod took its slot before the eviction",
    "Company": "rules about other pods would keep a successor from its slot",
    WORKLOAD_REFUSED: "its workload was asked, and refused",
    NO_WORD: "its workload was asked, and did not answer in time",
    NOT_ASKED: "its workload is to be asked before a move, and nothing can be held for its successor",
    "RateLimit": "as many pods as may be were evicted within a minute",
    BUDGET: "a disruption budget did not allow the eviction",
    REFUSED: "the API refused the eviction",
    "EvictTimeout": "the API did not accept the eviction in time",
    "NotMarked": "the pod could not be marked, so that a late eviction is not ruled out",
    "PodGone": "the pod ended before it was evicted",
    "PodFinished": "the pod finished before it was evicted",
    "PodMoved": "the pod is on another node",
    "PodChanged": "the pod's requests or constraints changed after the plan",
    "OwnerChanged": "the pod's controller is another one than when the move was planned",
    "Elsewhere": "the successor runs on another node",
    NOT_READY: "the successor was not ready in time, or still waits",
    POD_DONE: "the pod ended with success when it was told to go: its Job counts it as done, and makes no other",
    JOB_ENDED: "its Job has ended, or is deleted, and makes no other pod",
    OWNER_GONE: "its owner was deleted, and makes no other pod",
    NOT_NEEDED: "its controller was scaled down or rolled out since, and makes no other pod for it",
    "SuccessorGone": "the successor was deleted before it was ready",
    "SuccessorFinished": "the successor ran and finished before it was seen ready",
}
"""Why a migration ended otherwise than planned, by id."""

NOT_EMPTIED, REFILLED, NOT_TAKEN, UNCORDONED, OFF = "NotEmptied", "Refilled", "NotTaken", "Uncordoned", "Off"
RETURNED = {
    NOT_EMPTIED: "its plan did not finish",
    REFILLED: "somebody is on it again, or capacity is held there",
    NOT_TAKEN: "nobody took it away in time",
    UNCORDONED: "somebody else uncordoned it",
    OFF: "the policy does not ask for it any more",
}
"""Why a node that a plan was to empty, or has emptied, is anybody's again, by id."""

PLACING, PLACEHOLDER, OPENING, HELD, GUARDING, AWAITED = "Placing", "Placeholder", "Opening", "Held", "Guarding", "Awaited"
LANDING, ONE_AT_A_TIME, UNGATED, BOUND = "Landing", "OneAtATime", "Ungated", "Bound"
BESIDE = {
    PLACING: "its slot has no node yet",
    PLACEHOLDER: "its placeholder does not run on the node yet",
    OPENING: "its placeholder holds the slot; the API does not gate its successor yet",
    HELD: "its placeholder holds the slot, and the API gates its successor",
    GUARDING: "it is not evicted before its guard is nominated for its node",
    AWAITED: "it was evicted, and its successor has not come yet",
    ONE_AT_A_TIME: "its successor is gated: on each node one pod lands at a time, and another one is before it",
    LANDING: "its successor is nominated for the node, its placeholder is deleted, and the gate is removed",
    UNGATED: "its successor has no gate any more, and its scheduler has not bound it yet",
    BOUND: "its successor is bound, and not ready yet",
}
"""How far a move of another scheduler's pod is, by id."""

STOLEN, PLACEHOLDER_REFUSED, SLOT_GONE = "HoldStolen", "PlaceholderRefused", "SlotGone"
TAKEN_BACK = {
    STOLEN: "its placeholder was preempted, rejected by its kubelet, or deleted by somebody else",
    PLACEHOLDER_REFUSED: "the API does not take its placeholder",
    SLOT_GONE: "its move is over, and its scheduler has not bound the pod to that node",
}
"""Why a session takes back what it has decided for another scheduler's pod, by id."""

NOBODY_FOLLOWED = (
    "no pod came in time that may follow it: its controller made none (what the API refuses is in the controller's events: kubectl describe), or admission made another pod of it"
)
"""What is to be said of a pod that was evicted and not recreated."""

CANCELLED = {
    "PodGone": "the pod that waits for capacity is gone",
    "PodPlaced": "the pod that waits for capacity has found a node",
    "MoveFailed": "a move that makes its capacity ended otherwise",
    "SlotFailed": "the Reservation of its capacity failed or was deleted",
    "SlotTimeout": "the Reservation of its capacity got no slot in time",
    "NotApproved": "it was proposed, and nobody has approved it in time",
    "ModeChanged": "the mode that was set does not allow it any more",
}
"""Why a plan was cancelled by itself, by id: first those that are for a job that waits."""


def ended(id: str) -> tuple[str, str]:
    """A reason about which there is no more to say."""
    return id, ENDED[id]


def explained(reason: str) -> str:
    """A reason of a slot or a placement, with its sentence where that says more."""
    text = TAKEN_BACK.get(reason) or (BESIDE[PLACEHOLDER] if reason == PLACEHOLDER else "")
    return f"{reason}: {text}" if text else reason


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
    if head != NO_TARGET or not rule:
        return SENTENCES.get(id, "")
    return f"there are {NO_TARGETS}" if rule == NO_TARGETS else f"{SENTENCES[NO_TARGET]}: {rule}"
