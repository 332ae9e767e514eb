"""What each service may do at the Kubernetes API, and why. `make rights` writes the manifests in `deploy` from this (`deploy/rights.py`), and
`restow doctor` asks a cluster whether it allows it."""

from typing import NamedTuple


class Rule(NamedTuple):
    why: str
    group: str
    resources: str
    verbs: str
    name: str = ""
    """Of the one object that it is about, in whatever namespace."""


EVENTS = Rule("Events that people see with kubectl describe.", "events.k8s.io", "events", "get create patch")
READ = "list watch"

KUBERNETES: dict[str, tuple[Rule, ...]] = {
    "cluster-watcher": (
        Rule(
            "What scheduling reads.",
            "",
            "nodes pods namespaces persistentvolumeclaims persistentvolumes",
            READ,
        ),
        Rule("What a class of priority is worth.", "scheduling.k8s.io", "priorityclasses", READ),
        Rule(
            "Where a volume can be, and how many of them a node takes.",
            "storage.k8s.io",
            "storageclasses csinodes",
            READ,
        ),
        Rule("Whether a namespace lets another pod in.", "", "resourcequotas", READ),
        Rule("How many pods may be evicted.", "policy", "poddisruptionbudgets", READ),
        Rule(
            "Volcano's groups and queues, where it is installed.",
            "scheduling.volcano.sh",
            "podgroups queues",
            READ,
        ),
        Rule("Groups of the API's own, where it serves them.", "scheduling.k8s.io", "podgroups", READ),
        Rule("Which nodes are near to each other in the network, where Volcano's HyperNodes say so.", "topology.volcano.sh", "hypernodes", READ),
        Rule(
            "Devices that drivers publish and pods claim (dynamic resource allocation), where the API serves them.",
            "resource.k8s.io",
            "resourceslices resourceclaims deviceclasses",
            READ,
        ),
        Rule(
            "NUMA zones and CPUs, where something publishes them.",
            "topology.node.k8s.io",
            "noderesourcetopologies",
            READ,
        ),
        Rule(
            "The ReplicaSet of a Deployment: a pod's real owner. Whether one of them is being rolled out, paused or scaled down.",
            "apps",
            "replicasets deployments statefulsets",
            READ,
        ),
        Rule(
            "The Job of a CronJob; what a Job makes of an evicted pod, and whether it is suspended.",
            "batch",
            "jobs",
            READ,
        ),
        Rule(
            "Volcano's Reservations, and what its Jobs make of an evicted pod.",
            "batch.volcano.sh",
            "reservations jobs",
            READ,
        ),
        Rule(
            "Koordinator's Reservations, and what it says of a node's devices.",
            "scheduling.koordinator.sh",
            "reservations devices",
            READ,
        ),
    ),
    "scheduler-session": (
        Rule("Binding.", "", "pods/binding", "create"),
        Rule("After a lost answer to a binding, the pod says which node it is on.", "", "pods", "get"),
        Rule(
            "Preemption and reclaim: always through the Eviction API, so that disruption budgets hold.",
            "",
            "pods/eviction",
            "create",
        ),
        Rule(
            "The chosen volume of a claim, and the node that a claim is to be provisioned for; read first, so that what somebody\n"
            "else chose meanwhile is kept.",
            "",
            "persistentvolumeclaims persistentvolumes",
            "get patch",
        ),
        Rule(
            "Phases, conditions and counts of groups and queues; on the objects themselves where their CRDs have no /status.",
            "scheduling.volcano.sh",
            "podgroups queues",
            "get patch",
        ),
        Rule(
            "The same, where they have one.",
            "scheduling.volcano.sh",
            "podgroups/status queues/status",
            "patch",
        ),
        Rule("The condition PodScheduled.", "", "pods/status", "patch"),
        EVENTS,
    ),
    "reservation-cache": (
        Rule(
            "What the status is now: only the difference is written, also where somebody else has changed it.",
            "batch.volcano.sh",
            "reservations",
            "get list watch",
        ),
        Rule("Status in Volcano's form.", "batch.volcano.sh", "reservations/status", "patch"),
        Rule("The same of Koordinator's.", "scheduling.koordinator.sh", "reservations", "get list watch"),
        Rule("Status in Koordinator's form.", "scheduling.koordinator.sh", "reservations/status", "patch"),
        EVENTS,
    ),
    "descheduler": (
        Rule(
            "The hold of a migration; get, because AlreadyExists with our labels is success.",
            "batch.volcano.sh",
            "reservations",
            "get create delete",
        ),
        Rule(
            "One of Koordinator's that somebody has made under the name of a migration's: it is never made there by us.",
            "scheduling.koordinator.sh",
            "reservations",
            "delete",
        ),
        Rule(
            "uid and resourceVersion just before an eviction; the annotations that make a late eviction fail, and that ask\na workload before a move or tell it after (the address of its hook is read, too).",
            "",
            "pods",
            "get patch",
        ),
        Rule("Evicting, so that disruption budgets hold.", "", "pods/eviction", "create"),
        Rule(
            "migrationInfo and migrationState of the PodGroups whose pods are moved.",
            "scheduling.volcano.sh",
            "podgroups",
            "get patch",
        ),
        Rule(
            "migrationState where the CRD has a /status.",
            "scheduling.volcano.sh",
            "podgroups/status",
            "patch",
        ),
        Rule(
            "What nodes and pods use, where the policy goes by that (metrics-server).",
            "metrics.k8s.io",
            "nodes pods",
            "list",
        ),
        Rule(
            "The same of nodes from Prometheus' adaptor (LoadAware with metrics.type prometheus_adaptor).",
            "custom.metrics.k8s.io",
            "nodes/node_cpu_usage_avg nodes/node_memory_usage_avg",
            "get",
        ),
        EVENTS,
    ),
    "garbage-collector": (
        Rule("Reservations past retention, and orphans.", "batch.volcano.sh", "reservations", "delete"),
        Rule("The same of Koordinator's.", "scheduling.koordinator.sh", "reservations", "delete"),
    ),
}

BESIDE_OTHERS: dict[str, tuple[Rule, ...]] = {
    "scheduler-session": (
        Rule(
            "The gate of a successor; the guard (guard.yaml) lets nothing else of it be changed.",
            "",
            "pods",
            "patch",
        ),
        Rule(
            "Classes of placeholders, with the priority of the pods that they hold for.",
            "scheduling.k8s.io",
            "priorityclasses",
            "create",
        ),
        Rule(
            "Which kube-scheduler leads: a new one does not know the guards' nominations until they are touched, and is asked anew whether it honours any.",
            "coordination.k8s.io",
            "leases",
            "get",
            "kube-scheduler",
        ),
        Rule("Whose new pods wait: owners of Reservations.", "restow.dev", "landings", "create patch"),
    ),
    "descheduler": (Rule("Whose new pods wait.", "restow.dev", "landings", "create patch"),),
    "garbage-collector": (
        Rule(
            "Classes of placeholders that nobody uses.", "scheduling.k8s.io", "priorityclasses", "list delete"
        ),
        Rule("Entries of moves that are over.", "restow.dev", "landings", "list patch delete"),
    ),
}
"""What they may do beside another scheduler, in the whole cluster."""
HOLDS: dict[str, tuple[Rule, ...]] = {
    "scheduler-session": (
        Rule("Placeholders, and the two pods of the start-up check.", "", "pods", "get list create delete"),
    ),
    "descheduler": (Rule("Whether a pod would get the gate: dry runs.", "", "pods", "create"),),
    "garbage-collector": (Rule("Placeholders of nobody's.", "", "pods", "list delete"),),
}
"""What they may do where the placeholders are."""
CLAIMS: dict[str, tuple[Rule, ...]] = {
    "scheduler-session": (
        Rule("Placeholders of pods with ResourceClaims.", "", "pods", "create delete"),
        Rule(
            "A placeholder's claim becomes the successor's; the one that was made for that goes (the guard, guard.yaml, lets nothing else be done with them).",
            "resource.k8s.io",
            "resourceclaims",
            "get list patch delete",
        ),
        Rule("It is reserved for the successor.", "resource.k8s.io", "resourceclaims/status", "patch"),
    ),
    "garbage-collector": (Rule("Placeholders of nobody's.", "", "pods", "list delete"),),
}
"""What they may do in a namespace whose pods may move with their ResourceClaims."""
CLAIMS_OTHERS: dict[str, tuple[Rule, ...]] = {
    "scheduler-session": (
        Rule(
            "That admission lets it (beside/guard.yaml): whoever has this right in the whole cluster may name the classes of placeholders where it may create pods. No API\n"
            "of this name is served. Not in each namespace: who may do everything in a namespace of his own is not to get a priority by it.",
            "restow.dev",
            "placeholders",
            "create",
        ),
        Rule(
            "For whom a claim is reserved: Kubernetes 1.36 asks for this right in the whole cluster, and for that to the claim's status in its namespace besides.",
            "resource.k8s.io",
            "resourceclaims/binding",
            "patch",
        ),
    ),
}
"""What they may do besides in the whole cluster."""
NODES: dict[str, tuple[Rule, ...]] = {
    "descheduler": (
        Rule(
            "What autoscalers read of a node, and its cordon; the guard (guard.yaml) lets nothing else of it be changed.",
            "",
            "nodes",
            "get patch",
        ),
    ),
    "garbage-collector": (
        Rule(
            "What is left of that on nodes once nobody wants it any more; the guard (guard.yaml) lets it set nothing.",
            "",
            "nodes",
            "get patch",
        ),
    ),
}
"""What they may do where autoscalers are told of nodes."""


def own_of(family: str, namespace: str) -> tuple[Rule, ...]:
    """What a service may do in its own namespace."""
    return (
        Rule(
            "The Lease of its family, and no other. Creating cannot be limited to a name.",
            "coordination.k8s.io",
            "leases",
            "create",
        ),
        Rule("", "coordination.k8s.io", "leases", "get update", f"restow-{family}"),
        Rule(
            "A standby asks whether the namespace is there; a refusal would make it lead at once.",
            "",
            "namespaces",
            "get",
            namespace,
        ),
    )
