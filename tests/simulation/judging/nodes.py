"""Whether a node takes pods, and this one: by API objects, as kube-scheduler's documentation has it."""

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def ready(node):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in (node.get("status") or {}).get("conditions") or ())


def tolerates(tolerations, taint):
    def one(t):
        if t.get("effect") and t["effect"] != taint["effect"]:
            return False
        if t.get("key") and t["key"] != taint["key"]:
            return False
        if t.get("operator") == "Exists":
            return True
        return bool(t.get("key")) and t.get("operator", "Equal") == "Equal" and (t.get("value") or "") == (taint.get("value") or "")

    return any(one(t) for t in tolerations or ())


def requirement(need, labels):
    key, values, operator = need["key"], need.get("values") or (), need["operator"]
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    try:
        have, limit = int(labels[key]), int(values[0])
    except (KeyError, ValueError, IndexError):
        return False
    return have > limit if operator == "Gt" else have < limit


def selected(spec, labels, name):
    """By node selector and required node affinity."""
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if affinity is None:
        return True
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(requirement(n, labels) for n in term.get("matchExpressions") or ())
        and all(requirement(n, {"metadata.name": name}) for n in term.get("matchFields") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
    )


def untolerated(tolerations, taints):
    """The first taint that keeps a pod away, None where there is none."""
    return next((t for t in taints or () if t["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, t)), None)


def why_not(pod, node):
    """Why this node does not take this pod, whatever is free there; empty where it does."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if not ready(node):
        return "it is not ready"
    if (node.get("spec") or {}).get("unschedulable") and not tolerates(spec.get("tolerations"), CORDON):
        return "it is cordoned"
    if node["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if (taint := untolerated(spec.get("tolerations"), (node.get("spec") or {}).get("taints"))) is not None:
        return f"it has the taint {taint['key']}"
    return "" if selected(spec, labels, node["metadata"]["name"]) else "its labels are not those that are asked for"
