"""What cluster autoscalers (cluster-autoscaler, Karpenter) say by a node, and what they are told by it.

    on a node                                                  who sets it          what it means to us
    taint `ToBeDeletedByClusterAutoscaler`,
    `karpenter.sh/disrupted`, `karpenter.sh/disruption`        the autoscaler       the node goes: no target, of nobody's move
    taint `DeletionCandidateOfClusterAutoscaler`               cluster-autoscaler   it would like the node to go: no target is planned there
    annotations `PROTECTS`                                     we, if nobody has    the autoscaler leaves the node alone while a move lands there
    `spec.unschedulable`                                       we, if nobody has    nobody is placed on a node that a plan empties

Whatever we set is named beside it (`PROTECTED`, `CORDONED`), with the id of our log: that alone is taken away again, whatever became of us meanwhile.
And it says until when it counts (`ENDS`). The descheduler that wants it puts that off. Past it the mark is of use to nobody: its log was lost, or everything
of its installation is gone. Then any collector takes it away (`due`), also one of another log.

A cordon is taken away with its mark unless somebody else has cordoned the node since: `restow.kube.node_marks`.
"""

from typing import Literal

from restow.contracts.events import NodeObserved
from restow.contracts.ids import Millis
from restow.contracts.times import millis

PROTECTS = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
"""Set to "true", each keeps its autoscaler from taking the node away."""
PROTECTED = "restow.dev/protected"
"""Annotation of a node: the id of the log, and those of `PROTECTS` that were set on its behalf."""
CORDONED = "restow.dev/cordoned"
"""Annotation of a node: the id of the log, and the plan that empties the node."""
ENDS = {PROTECTED: "restow.dev/protected-until", CORDONED: "restow.dev/cordoned-until"}
"""Of each mark the annotation that says until when it counts (RFC 3339). No fact: putting it off is no news."""
LEASE, RENEWED = 3_600_000, 600_000
"""Milliseconds for which a mark counts, and after which its end is put off again."""
GRACE = 600_000
"""Milliseconds after its end for which whoever set a mark has its own turn."""
DAY = 86_400_000
"""Milliseconds for which a mark may stay that says no end (release 0.2 named none), from when that is seen. An end later than that is none."""
GOING = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"})
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def is_going(node: NodeObserved) -> bool:
    """Whether an autoscaler takes it away: also pods that tolerate everything have no future there."""
    return any(taint.key in GOING for taint in node.taints)


def may_go(node: NodeObserved) -> bool:
    """Whether an autoscaler takes it away, or would like to."""
    return any(taint.key in GOING or taint.key == CANDIDATE for taint in node.taints)


def is_protected(node: NodeObserved, log: str) -> bool:
    return _ours(node, PROTECTED, log) is not None


def cordoned_for(node: NodeObserved, log: str) -> str:
    """The plan for which this log has cordoned the node; empty where it has not."""
    return _ours(node, CORDONED, log) or ""


def is_free_to_mark(node: NodeObserved, mark: str, log: str) -> bool:
    """Whether no other log's mark is on it: what that one has set is its own to take away."""
    said = node.marks.get(mark, "")
    return not said or said.split()[0] == log


def due(said: str, now: Millis) -> Literal["stays", "ended", "endless"]:
    """What is to become of a mark, by what it says of its end: it is taken away once it has `ended`, and given one where it is `endless`."""
    try:
        end = millis(said)
    except ValueError:
        return "endless"
    if end > now + DAY:
        return "endless"
    return "ended" if end + GRACE <= now else "stays"


def _ours(node: NodeObserved, mark: str, log: str) -> str | None:
    """What the mark says beyond the log's id; None where it is not there, or another log's."""
    owner, _, rest = node.marks.get(mark, "").partition(" ")
    return rest if log and owner == log else None
