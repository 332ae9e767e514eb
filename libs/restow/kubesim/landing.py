"""The one admission policy that kubesim knows: Restow's `restow-landing`, which makes awaited successors wait.

kubesim has no CEL. It looks for a policy and a binding of that name, and then does what deploy/beside/landing.yaml says: a new pod gets
the gate if it has no node, its controller, or its labels, are listed in a Landing, and the listed instant is still to come. Of the objects it reads the
policy's namespaceSelector, objectSelector and paramKind, and the binding's paramRef (name or selector); expressions are not read.
"""

from __future__ import annotations

from collections.abc import Iterator

from restow.kubesim.objects import Obj, controller_of, dig
from restow.kubesim.placement import selector_matches
from restow.kubesim.podstate import labels_of, seconds_of
from restow.kubesim.resources import MUTATINGBINDINGS, MUTATINGPOLICIES, NAMESPACES
from restow.kubesim.store import Store

POLICY = "restow-landing"
GATE = "restow.dev/landing"


def gate(store: Store, pod: Obj) -> None:
    """Adds the gate, and the annotation that says for whom, where the policy would. Fails open: what cannot be read lists nobody."""
    policy = store.find(MUTATINGPOLICIES, "", POLICY)
    spec, owner = pod.get("spec") or {}, controller_of(pod)
    if policy is None or spec.get("nodeName"):
        return
    selector = dig(policy, "spec", "matchConstraints", "namespaceSelector")
    namespace = store.find(NAMESPACES, "", pod["metadata"].get("namespace", ""))
    if selector is not None and not selector_matches(selector, {} if namespace is None else labels_of(namespace)):
        return
    whose = dig(policy, "spec", "matchConstraints", "objectSelector")
    if whose is not None and not selector_matches(whose, labels_of(pod)):
        return
    gates = spec.get("schedulingGates") or []
    if any(one.get("name") == GATE for one in gates):
        return
    # The API server's managedFields say whole seconds.
    now = float(int(store.clock().timestamp()))
    for landing in _landings(store, policy):
        until = _until(landing, owner, pod, now)
        if not until:
            continue
        meta, said = pod["metadata"], f"{landing['metadata']['name']} {until}"
        pod["metadata"] = {**meta, "annotations": {**(meta.get("annotations") or {}), GATE: said}}
        pod["spec"] = {**spec, "schedulingGates": [*gates, {"name": GATE}]}


def _landings(store: Store, policy: Obj) -> Iterator[Obj]:
    """The parameters of each binding of the policy."""
    group = dig(policy, "spec", "paramKind", "apiVersion", default="").partition("/")[0]
    resource = store.registry.by_kind(group, dig(policy, "spec", "paramKind", "kind", default=""))
    if resource is None:
        return
    for binding in store.list(MUTATINGBINDINGS):
        if dig(binding, "spec", "policyName") != POLICY:
            continue
        ref = dig(binding, "spec", "paramRef", default={})
        for landing in store.list(resource):
            if landing["metadata"]["name"] == ref.get("name") or ("selector" in ref and selector_matches(ref["selector"], labels_of(landing))):
                yield landing


def _until(landing: Obj, owner: Obj | None, pod: Obj, now: float) -> str:
    """As it is listed, by its controller or by its labels; empty for a pod that is not listed, or whose entry is over."""
    labels, namespace = labels_of(pod), pod["metadata"].get("namespace", "")
    said = [] if owner is None else [dig(landing, "spec", "open", owner["uid"], default="")]
    for entry in dig(landing, "spec", "owners", default={}).values():
        if entry["namespace"] in ("", namespace) and any(one.items() <= labels.items() for one in entry["labels"]):
            said.append(entry["until"])
    return next((until for until in said if now < _seconds(until)), "")


def _seconds(said: str) -> float:
    """Since 1970; 0 for what is no instant."""
    try:
        return seconds_of(said)
    except (TypeError, ValueError):
        return 0.0
