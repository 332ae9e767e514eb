"""Whether a running pod may be moved at all: its controller makes it again, and survives its eviction (RULES G-12, G-15).

This binds moves: what Defragmentation, `restow migrate` and the plugins of a policy plan to be held first. What upstream's descheduler evicts where
nothing is held (`restow descheduler run --once`) goes by upstream's rules, and so do pods that have ended.
"""

from restow.contracts.events import PodObserved, WorkloadObserved
from restow.contracts.ids import PodUid
from restow.domain import kueue
from restow.domain.groups import WORKLOAD_REF, group_of
from restow.domain.hooks import RESPONDERS, objection
from restow.domain.landing_gate import left_out
from restow.domain.other_schedulers import is_beside
from restow.domain.pod_controllers import (
    GANG,
    INDEX_FAILURES,
    MOVABLE,
    RAY_REPLICA,
    RAY_TYPE,
    REVISION,
    Owner,
    asks_same,
    group_of_version,
    known_owner,
)
from restow.domain.protection import asks_to_stay
from restow.domain.records import EVERYWHERE
from restow.domain.siblings import latest_as_made, place_in_line
from restow.domain.state import ClusterState
from restow.domain.state_maps import OVER
from restow.domain.verdicts import (
    DISTURBED,
    DO_NOT_DISRUPT,
    KUEUE,
    NOT_GATED,
    NOT_MOVABLE,
    OTHER_TEMPLATE,
    OWNER_BUSY,
    RETRIES,
    SENTENCES,
    TOGETHER,
    UNKNOWN_OWNER,
    UNSUPPORTED,
)

OWN_RETRIES = 1
"""What evictions leave of a Job's retries."""


def unmovable(state: ClusterState, uid: PodUid, as_gang: bool = False) -> str:
    """Why it must stay, `Word: sentence`; empty where it may go. Of a pod without a controller only whether somebody asks for it to stay.
    `as_gang`: it would go together with all others of its gang."""
    pod = state.pods[uid].fact
    if stay := protected(state, uid) or _of_gate(state, pod) or _of_group(state, pod, as_gang):
        return stay
    if state.disturbed and (state.lineage(pod), EVERYWHERE) in state.left_alone:
        return f"{DISTURBED}: {SENTENCES[DISTURBED]}"
    if why := objection(state, pod):
        return why
    said = movable(state, pod)
    if said == "false":
        return f"{NOT_MOVABLE}: {SENTENCES[NOT_MOVABLE]}"
    if why := _busy(state, uid, pod) or ("" if said == "true" else _unread(pod)):
        return why
    if pod.owner is None:
        return ""
    known = known_owner(pod)
    again = as_gang and starts_again(state, pod)
    if why := _of_kueue(state, pod, known, said == "true" or again):
        return why
    if said == "true":
        return ""
    if _kind(pod) in state.migration_config.movable_owners or (known is None and again):
        return ""
    if known is None:
        return f"{UNKNOWN_OWNER}: nobody knows what {_kind(pod)} {pod.owner.name} does when its pod is evicted; {_hint(pod)}"
    if why := _other_template(state, uid, pod, known):
        return why
    if again:
        return ""
    match known.again:
        case "always" | "name" | "never":
            # A DaemonSet's is told apart by who asks, for no word of anybody lets it go.
            return ""
        case "retries":
            return _of_job(state, uid, pod)
        case "told":
            job = state.workloads.get(pod.owner.uid)
            return "" if job is not None and job.evicted == "ignored" else _asked(known, pod)
        case "worker":
            return "" if pod.labels.get(RAY_TYPE) == "worker" and RAY_REPLICA not in pod.labels else _asked(known, pod)
        case "asked":
            return _asked(known, pod)


def _of_gate(state: ClusterState, pod: PodObserved) -> str:
    """Whether nobody would gate its successor. The dry run before the eviction (`restow.kube.gates.Gates.gated`) asks where placeholders are, for Restow may make
    pods nowhere else, so that it does not tell."""
    whose = left_out(pod.namespace, pod.labels) if is_beside(state, pod.shape) else ""
    return f"{NOT_GATED}: new pods of {whose} are never gated" if whose else ""


def _of_group(state: ClusterState, pod: PodObserved, as_gang: bool) -> str:
    """Whether its PodGroup forbids that it goes alone, or binds its successor to something that is not known to hold on another node. Of ours the session says
    the latter."""
    group = group_of(pod)
    known = state.pod_groups.get(group) if group is not None else None
    if known is None:
        return ""
    if known.annotations.get(MOVABLE) == "false":
        return f"{NOT_MOVABLE}: {MOVABLE}: false is said of its PodGroup {'/'.join((known.namespace, known.name))}"
    if known.together and not as_gang:
        return f"{TOGETHER}: PodGroup {'/'.join((known.namespace, known.name))} is disrupted as a whole or not at all (disruptionMode)"
    near = "another scheduler keeps its pods near to each other in the network" if known.topology is not None and known.topology.mode == "hard" else ""
    if (why := known.invalid or near) and not state.ours(pod):
        return f"{UNSUPPORTED}: PodGroup {'/'.join((known.namespace, known.name))}: {why}"
    return ""


def _unread(pod: PodObserved) -> str:
    """Whether it belongs to something, or somebody is to be asked, of which Restow knows no more than the name."""
    hint = f'allowed: {MOVABLE}: "true" on the pod'
    if of := pod.annotations.get(WORKLOAD_REF):
        return f"{UNSUPPORTED}: spec.workloadRef names {of}, and Workloads are not read: its gang may need it; {hint}"
    if who := pod.annotations.get(RESPONDERS):
        return f"{UNSUPPORTED}: spec.evictionResponders names {who}, whom an eviction does not ask; {hint}"
    return ""


def _of_kueue(state: ClusterState, pod: PodObserved, known: Owner | None, is_asked: bool) -> str:
    """What no word helps against, and what is left to who says that it is movable."""
    assert pod.owner is not None, "it has an owner"
    siblings = (state.pods[uid].fact for uid in state.owned[pod.owner.uid])
    if why := kueue.ends_with(pod, siblings, known is not None and known.again == "always"):
        return f"{KUEUE}: {why}"
    if is_asked or not kueue.is_workload(pod):
        return ""
    return f'{KUEUE}: its successor would wait for its admission anew, and others may be admitted first; allowed: {MOVABLE}: "true" on the pod'


BUSY: dict[str, str] = {
    "rollout": "is being rolled out: who follows may be another one, or nobody",
    "paused": "is paused",
    "scaling_down": "has more pods than it is to have: one that is evicted is not made again",
    "suspended": "is suspended",
    "over": "has ended, and makes no more pods",
    "deleting": "is being deleted",
}
"""`WorkloadObserved.busy` in words."""


def _busy(state: ClusterState, uid: PodUid, pod: PodObserved) -> str:
    """Whether its controller, or who controls that, is at work on its pods. No word that a pod may be moved is about that."""
    if pod.owner is None or state.pods[uid].live.phase in OVER:
        return ""
    known = busy(state, pod.owner.uid)
    if known is not None:
        return f"{OWNER_BUSY}: {known.kind} {known.name} {BUSY[known.busy]}"
    known = state.workloads.get(pod.owner.uid)
    if known is not None and known.revision and pod.labels.get(REVISION) != (wanted := _made_by(known, pod)):
        how = "beyond a partition" if known.kept else "by deletions (OnDelete)"
        return f"{OWNER_BUSY}: {known.kind} {known.name} is updated {how}, and would make it anew by its revision {wanted}"
    return ""


def _made_by(controller: WorkloadObserved, pod: PodObserved) -> str:
    """The revision that a StatefulSet makes this pod by."""
    ordinal = pod.name.rpartition("-")[2]
    return controller.kept if ordinal.isdecimal() and int(ordinal[:10]) < controller.kept_below else controller.revision


def busy(state: ClusterState, owner: str) -> WorkloadObserved | None:
    """The controller with this uid, or who controls that, where it is at work on its pods."""
    return next((known for known in state.controllers(owner) if known.busy), None)


def _other_template(state: ClusterState, uid: PodUid, pod: PodObserved, known: Owner) -> str:
    """Whether its successor, which its controller makes from a template, asks for something else than it does (RULES G-12)."""
    assert pod.owner is not None, "it has a known owner"
    if uid in state.resized:
        return f"{OTHER_TEMPLATE}: it was resized in place, and {pod.owner.kind} {pod.owner.name} makes pods by its template"
    above = state.workloads.get(pod.owner.uid)
    if known.again != "name" or (above is not None and above.revision):
        # By which revision it is made is known, and that it is the pod's own.
        return ""
    latest = latest_as_made(state, pod.owner.uid) or uid
    if state.pods[latest].order < state.pods[uid].order or asks_same(state.shapes[state.pods[latest].fact.shape], state.shapes[pod.shape]):
        return ""
    return f"{OTHER_TEMPLATE}: {pod.owner.kind} {pod.owner.name} has made {state.pods[latest].fact.name} since, which asks for something else"


def protected(state: ClusterState, uid: PodUid) -> str:
    """Whether somebody asks not to disrupt it, which counts more than any word that it is movable (RULES G-11)."""
    asked = asks_to_stay(state, uid)
    return f"{DO_NOT_DISRUPT}: its annotation {asked}" if asked else ""


def movable(state: ClusterState, pod: PodObserved) -> str:
    """What is said of it: by itself, or by its controller, or who controls that (a ReplicaSet's Deployment)."""
    said = pod.annotations.get(MOVABLE) or pod.labels.get(MOVABLE)
    if said or pod.owner is None:
        return said or ""
    return next((known.movable for known in state.controllers(pod.owner.uid) if known.movable), "")


def starts_again(state: ClusterState, pod: PodObserved) -> bool:
    """Whether it is said of it, or of its PodGroup, that whoever made the gang starts it again when all of it is evicted."""
    group = group_of(pod)
    if group is None:
        return False
    known = state.pod_groups.get(group)
    return GANG in (movable(state, pod), known.annotations.get(MOVABLE) if known is not None else "")


def _asked(known: Owner, pod: PodObserved) -> str:
    assert pod.owner is not None, "it has a known owner"
    return f"{UNKNOWN_OWNER}: of {known.kind} {pod.owner.name}: {known.why}; {_hint(pod)}"


def _hint(pod: PodObserved) -> str:
    return f'allowed: {MOVABLE}: "true" on the pod, or {_kind(pod)} in movableOwners'


def _kind(pod: PodObserved) -> str:
    """As in `movableOwners`: `Kind.group`. Of one that is known by a label that one's, not the StatefulSet's that it made."""
    assert pod.owner is not None, "it has an owner"
    known = known_owner(pod)
    kind, group = (pod.owner.kind, group_of_version(pod.owner.api_version)) if known is None else (known.kind, known.group)
    return f"{kind}.{group}" if group else kind


def _of_job(state: ClusterState, uid: PodUid, pod: PodObserved) -> str:
    """An eviction counts as a failure unless the Job says otherwise. So many of its pods are let go, those first who are on their way, that a
    retry is left for itself: whichever plan takes them, and in whatever order."""
    assert pod.owner is not None, "it has a Job"
    job = state.workloads.get(pod.owner.uid)
    name = f"Job {pod.owner.name}"
    if job is None or job.evicted in ("", "unknown"):
        return f"{UNKNOWN_OWNER}: what {name} makes of an evicted pod is not known; {_hint(pod)}"
    if pod.owner.uid in state.ended_well:
        return f"{RETRIES}: a pod of {name} ended with success when it was moved, which counts as done: nobody made it again, and so it would be with this one; {_hint(pod)}"
    if job.evicted == "ignored":
        return ""
    if job.evicted == "fatal":
        return f"{RETRIES}: the podFailurePolicy of {name} fails it when a pod is evicted"
    if state.pods[uid].live.phase in OVER:
        # It has ended by itself: its eviction is no failure of the Job.
        return ""
    if job.per_index is not None and job.per_index - _index_failures(pod) <= OWN_RETRIES:
        return f"{RETRIES}: its index of {name} fails when {max(job.per_index - _index_failures(pod), 0) + 1} more of its pods do, and an eviction counts as a failure: the last retry is its own"
    if place_in_line(state, pod.owner.uid, uid) < job.retries - OWN_RETRIES:
        return ""
    return f"{RETRIES}: {name} fails when {job.retries + 1} more pods do, and an eviction counts as a failure: the last retry is its own"


def _index_failures(pod: PodObserved) -> int:
    """As the Job controller reads it: what is no number is none."""
    said = pod.annotations.get(INDEX_FAILURES, "")
    return int(said) if said.isdecimal() and len(said) < 10 else 0
