"""Who may use a Reservation, read anew from RULES G-3, G-4 and the issue, over events as plain values; nothing of
`restow.domain`. Part of the judge of logs (`checker.py`)."""

import json

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "value": ""}
GPUS = ("nvidia.com/gpu", "koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
GPU = "restow.dev/gpu-milli"


def refers(ref, version, kind, namespace, name, uid):
    """Every field that is given must be the same; logs from before facts said it have no API version."""
    if version and ref.get("api_version") and ref["api_version"] != version:
        return False
    given = {"kind": kind, "namespace": namespace, "name": name, "uid": uid}
    return all(not ref.get(field) or ref[field] == is_so for field, is_so in given.items())


def controls(ref, pod, workloads):
    """Whether it is the pod's controller, or that one's (a Deployment has a ReplicaSet, which has the pod)."""
    chain, above = [], pod.get("owner")
    while above and len(chain) < 2:
        chain.append(above)
        above = workloads.get(above["uid"])
    named = ref.get("kind") or ref.get("name") or ref.get("uid")
    return bool(named) and any(refers(ref, o.get("api_version"), o["kind"], pod["namespace"], o["name"], o["uid"]) for o in chain)


def requirement(need, labels):
    key, values = need["key"], need.get("values") or ()
    match need["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt":
            return key in labels and int(labels[key]) > int(values[0])
        case "Lt":
            return key in labels and int(labels[key]) < int(values[0])
    raise AssertionError(need)


def selects(selector, labels):
    equal = all(labels.get(k) == v for k, v in selector.get("labels", {}).items())
    return equal and all(requirement(need, labels) for need in selector.get("expressions", ()))


def fits_rule(rule, pod, workloads):
    """The fields of one owner are ANDed; one without fields is nobody."""
    said = []
    if rule.get("object") is not None:
        itself = refers(rule["object"], "v1", "Pod", pod["namespace"], pod["name"], pod["pod"])
        said.append(itself or controls(rule["object"], pod, workloads))
    if rule.get("controller") is not None:
        said.append(controls(rule["controller"], pod, workloads))
    if rule.get("selector") is not None:
        said.append(selects(rule["selector"], pod.get("labels") or {}))
    return bool(said) and all(said)


def owns(fact, spec, pod, workloads):
    """Owners are ORed; a namespaced Reservation's are in its namespace."""
    if fact.get("namespace") and fact["namespace"] != pod["namespace"]:
        return False
    return any(fits_rule(rule, pod, workloads) for rule in spec.get("owners", ()))


def tolerates(tolerations, taint):
    def one(t):
        if t.get("effect") and t["effect"] != taint["effect"]:
            return False
        if t.get("key") and t["key"] != taint["key"]:
            return False
        if t.get("operator") == "Exists":
            return True
        return bool(t.get("key")) and (t.get("value") or "") == taint.get("value", "")

    return any(one(t) for t in tolerations)


def unwanted(fact, spec, node, pod, asked, held):
    """Why the pod and the Reservation do not want each other, empty where they do. `asked`, `held`: the shapes of both."""
    notes = pod.get("annotations") or {}
    wish = json.loads(notes[AFFINITY] or "{}") or {} if AFFINITY in notes else None
    if notes.get(EXACT):
        for name in json.loads(notes[EXACT]).get("resourceNames") or ():
            column = GPU if name in GPUS else name
            if asked["requests"].get(column, 0) != held["requests"].get(column, 0):
                return f"it does not hold exactly as much {name}"
    if wish and wish.get("name"):
        return "" if wish["name"] == fact["name"] else "it has another name"
    tolerations = (wish or {}).get("tolerations") or ()
    if spec.get("unschedulable") and not tolerates(tolerations, UNSCHEDULABLE):
        return "it is unschedulable"
    for taint in spec.get("taints", ()):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return f"it has the taint {taint['key']}"
    labels = (node or {}).get("labels", {}) | fact.get("labels", {})
    if wish and any(labels.get(k) != v for k, v in (wish.get("reservationSelector") or {}).items()):
        return "its labels are others"
    required = (wish or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not any(term(t, fact, labels) for t in required.get("reservationSelectorTerms") or ()):
        return "no term of the affinity matches it"
    return ""


def term(said, fact, labels):
    """A term without requirements matches nothing, as of a node's affinity."""
    needs, fields = said.get("matchExpressions") or (), said.get("matchFields") or ()
    if not needs and not fields:
        return False
    return all(requirement(n, labels) for n in needs) and all(requirement(n, {"metadata.name": fact["name"]}) for n in fields)
