"""Does this scheduler count a gated pod that is nominated to a node? Others than the scheduler may write the nomination, but nothing promises that it
is honoured. Two pods prove it, and take no room:

    guest      gated, nominated to the node; never bound
    probe      for the same node alone, and by required anti-affinity for none where the guest is

As long as the guest is there, a scheduler that honours nominations refuses the probe. Once the guest is gone, it binds it: so nothing
else had kept it away.

Of a gated pod that it hears of together with its nomination, as where it lists all pods anew since its API server was away, kube-scheduler counts the nomination only when
the pod changes. So where the probe is bound the guest is touched, and another probe tries again.
"""

from typing import Literal

import msgspec

from restow.domain.other_schedulers import LOG
from restow.kube.placeholder import IMAGE, NAMESPACE, Container, Gate, PodSecurity, idle_container, restricted
from restow.kube.pod_template import (
    Affinity,
    Expression,
    Json,
    NodeAffinity,
    NodeSelector,
    NodeTerm,
    PodAffinity,
    PodTerm,
    Selector,
    Toleration,
)

CANARY = "restow.dev/canary"
"""Label of both, with the guest's role; and the guest's gate."""
NOWHERE = "restow.dev/nowhere"
"""Label that no node has."""
HOSTNAME = "kubernetes.io/hostname"
_REQUESTS = {"cpu": "1m", "memory": "1Mi"}


class Metadata(Json, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str]


class Spec(Json, frozen=True):
    scheduler_name: str
    containers: tuple[Container, ...]
    security_context: PodSecurity
    termination_grace_period_seconds: int
    automount_service_account_token: bool
    tolerations: tuple[Toleration, ...]
    affinity: Affinity | None = None
    scheduling_gates: tuple[Gate, ...] = ()
    priority_class_name: str = ""


class Pod(Json, frozen=True):
    api_version: str
    kind: str
    metadata: Metadata
    spec: Spec


class Seen(msgspec.Struct, frozen=True):
    """What is there now. `probe`: absent, new (nobody has looked at it), refused (the scheduler says Unschedulable), bound.
    `elapsed`: seconds since the last step of ours."""

    guest: bool
    probe: Literal["absent", "new", "refused", "bound"]
    elapsed: float


class Invite(msgspec.Struct, frozen=True):
    """Create the guest and nominate it."""


class Probe(msgspec.Struct, frozen=True):
    """Create the probe."""


class Again(msgspec.Struct, frozen=True):
    """Delete the probe, and touch the guest."""


class Dismiss(msgspec.Struct, frozen=True):
    """Delete the guest."""


class Wait(msgspec.Struct, frozen=True):
    """Look again."""


class Verdict(msgspec.Struct, frozen=True):
    """Honoured, ignored, or unknown and why. Delete both."""

    said: Literal["honoured", "ignored", "unknown"]
    why: str = ""


class Asked(msgspec.Struct, frozen=True):
    """What has been done so far. `again`: the guest was touched, since a first probe was bound."""

    invited: bool = False
    probed: bool = False
    again: bool = False
    dismissed: bool = False


Step = Invite | Probe | Again | Dismiss | Wait | Verdict


def step(asked: Asked, seen: Seen, patience: float = 10.0) -> tuple[Asked, Step]:
    """What to do next. `patience`: seconds for each answer of the scheduler's."""
    if not asked.invited:
        return Asked(invited=True), Invite()
    if not asked.dismissed and not seen.guest:
        return asked, Verdict("unknown", "somebody deleted the gated pod")
    if not asked.probed:
        return msgspec.structs.replace(asked, probed=True), Probe()
    if seen.probe == "absent":
        return asked, Verdict("unknown", "somebody deleted the probe")
    if not asked.dismissed:
        if seen.probe == "bound" and not asked.again:
            return Asked(invited=True, again=True), Again()
        if seen.probe == "bound":
            return asked, Verdict("ignored", "a pod was bound to the node that a nominated pod excludes it from")
        if seen.probe == "refused":
            return msgspec.structs.replace(asked, dismissed=True), Dismiss()
        late = "the scheduler did not look at the probe"
    elif seen.probe == "bound":
        return asked, Verdict("honoured")
    else:
        late = "something else keeps pods away from the node"
    return asked, Verdict("unknown", f"{late} within {patience:g} s") if seen.elapsed >= patience else Wait()


def guest(scheduler: str, node: str, log: str, token: str, image: str = IMAGE) -> Pod:
    """`token`: distinguishes one check from the others; part of names and labels."""
    return _pod("guest", scheduler, log, token, image, None, (Gate(CANARY),))


def probe(scheduler: str, node: str, log: str, token: str, image: str = IMAGE) -> Pod:
    # Of a node without this label anti-affinity says nothing: a probe that was bound there would prove nothing.
    here = NodeTerm((Expression(HOSTNAME, "Exists"),), (Expression("metadata.name", "In", (node,)),))
    apart = PodTerm(HOSTNAME, Selector({CANARY: _role("guest", token)}), (NAMESPACE,))
    affinity = Affinity(NodeAffinity(NodeSelector((here,))), None, PodAffinity((apart,)))
    return _pod("probe", scheduler, log, token, image, affinity, ())


def nowhere(scheduler: str, priority_class: str, log: str, token: str, image: str = IMAGE) -> Pod:
    """Fits on no node, and says so at once: by a field, which the scheduler looks up, and by a label, which autoscalers read."""
    none = NodeTerm((Expression(NOWHERE, "Exists"),), (Expression("metadata.name", "In", ("nowhere",)),))
    return _pod("nowhere", scheduler, log, token, image, Affinity(NodeAffinity(NodeSelector((none,)))), (), priority_class)


def _role(role: str, token: str) -> str:
    return f"{role}-{token}"


def _pod(
    role: str, scheduler: str, log: str, token: str, image: str, affinity: Affinity | None, gates: tuple[Gate, ...], priority_class: str = ""
) -> Pod:
    labels = {"app.kubernetes.io/managed-by": "restow", LOG: log, CANARY: _role(role, token)}
    spec = Spec(
        scheduler_name=scheduler,
        containers=(idle_container(image, _REQUESTS),),
        security_context=restricted(),
        termination_grace_period_seconds=0,
        automount_service_account_token=False,
        tolerations=(Toleration(operator="Exists"),),
        affinity=affinity,
        scheduling_gates=gates,
        priority_class_name=priority_class,
    )
    return Pod("v1", "Pod", Metadata(f"canary-{role}-{token}", NAMESPACE, labels), spec)
