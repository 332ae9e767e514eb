"""Who may do what: at the Kubernetes API (RBAC) and at the broker. One declaration of each; `make rights` writes the manifests from
them, and tests/deploy/test_rbac.py says when somebody has forgotten that.

    python deploy/rights.py            writes rights.yaml in deploy/base, deploy/beside, deploy/autoscalers and deploy/webhook, and deploy/nats/permissions.conf
"""

from pathlib import Path
from typing import NamedTuple

from restow.contracts.ids import WRITERS

DEPLOY = Path(__file__).parent
RBAC = DEPLOY / "base" / "rights.yaml"
BESIDE = DEPLOY / "beside" / "rights.yaml"
HOST_PORTS = DEPLOY / "beside" / "host-ports" / "rights.yaml"
WEBHOOK = DEPLOY / "webhook" / "gate" / "rights.yaml"
AUTOSCALERS = DEPLOY / "autoscalers" / "rights.yaml"
PERMISSIONS = DEPLOY / "nats" / "permissions.conf"
HEADER = "# Written by `make rights` from deploy/rights.py; change it there.\n"
NAMESPACE = "restow-system"
CLUSTER = "main"


# -- at the Kubernetes API ---------------------------------------------------------------------------------------------


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
        Rule("What scheduling reads.", "", "nodes pods namespaces persistentvolumeclaims persistentvolumes", READ),
        Rule("What a class of priority is worth.", "scheduling.k8s.io", "priorityclasses", READ),
        Rule("Where a volume can be, and how many of them a node takes.", "storage.k8s.io", "storageclasses csinodes", READ),
        Rule("Whether a namespace lets another pod in.", "", "resourcequotas", READ),
        Rule("How many pods may be evicted.", "policy", "poddisruptionbudgets", READ),
        Rule("Volcano's groups and queues, where it is installed.", "scheduling.volcano.sh", "podgroups queues", READ),
        Rule("Groups of the API's own, where it serves them.", "scheduling.k8s.io", "podgroups", READ),
        Rule("NUMA zones and CPUs, where something publishes them.", "topology.node.k8s.io", "noderesourcetopologies", READ),
        Rule("The ReplicaSet of a Deployment: a pod's real owner. Whether one of them is being rolled out, paused or scaled down.", "apps", "replicasets deployments statefulsets", READ),
        Rule("The Job of a CronJob; what a Job makes of an evicted pod, and whether it is suspended.", "batch", "jobs", READ),
        Rule("Volcano's Reservations, and what its Jobs make of an evicted pod.", "batch.volcano.sh", "reservations jobs", READ),
        Rule("Koordinator's Reservations, and what it says of a node's devices.", "scheduling.koordinator.sh", "reservations devices", READ),
    ),
    "scheduler-session": (
        Rule("Binding.", "", "pods/binding", "create"),
        Rule("After a lost answer to a binding, the pod says which node it is on.", "", "pods", "get"),
        Rule("Preemption and reclaim: always through the Eviction API, so that disruption budgets hold.", "", "pods/eviction", "create"),
        Rule(
            "The chosen volume of a claim, and the node that a claim is to be provisioned for; read first, so that what somebody\n"
            "else chose meanwhile is kept.",
            "", "persistentvolumeclaims persistentvolumes", "get patch",
        ),
        Rule(
            "Phases, conditions and counts of groups and queues; on the objects themselves where their CRDs have no /status.",
            "scheduling.volcano.sh", "podgroups queues", "get patch",
        ),
        Rule("The same, where they have one.", "scheduling.volcano.sh", "podgroups/status queues/status", "patch"),
        Rule("The condition PodScheduled.", "", "pods/status", "patch"),
        EVENTS,
    ),
    "reservation-cache": (
        Rule(
            "What the status is now: only the difference is written, also where somebody else has changed it.",
            "batch.volcano.sh", "reservations", "get list watch",
        ),
        Rule("Status in Volcano's form.", "batch.volcano.sh", "reservations/status", "patch"),
        Rule("The same of Koordinator's.", "scheduling.koordinator.sh", "reservations", "get list watch"),
        Rule("Status in Koordinator's form.", "scheduling.koordinator.sh", "reservations/status", "patch"),
        EVENTS,
    ),
    "descheduler": (
        Rule("The hold of a migration; get, because AlreadyExists with our labels is success.", "batch.volcano.sh", "reservations", "get create delete"),
        Rule(
            "One of Koordinator's that somebody has made under the name of a migration's: it is never made there by us.",
            "scheduling.koordinator.sh", "reservations", "delete",
        ),
        Rule("uid and resourceVersion just before an eviction; the annotations that make a late eviction fail, and that ask\na workload before a move or tell it after (the address of its hook is read, too).", "", "pods", "get patch"),
        Rule("Evicting, so that disruption budgets hold.", "", "pods/eviction", "create"),
        Rule(
            "migrationInfo and migrationState of the PodGroups whose pods are moved.",
            "scheduling.volcano.sh", "podgroups", "get patch",
        ),
        Rule("migrationState where the CRD has a /status.", "scheduling.volcano.sh", "podgroups/status", "patch"),
        Rule("What nodes and pods use, where the policy goes by that (metrics-server).", "metrics.k8s.io", "nodes pods", "list"),
        Rule(
            "The same of nodes from Prometheus' adaptor (LoadAware with metrics.type prometheus_adaptor).",
            "custom.metrics.k8s.io", "nodes/node_cpu_usage_avg nodes/node_memory_usage_avg", "get",
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
        Rule("The gate of a successor; the guard (guard.yaml) lets nothing else of it be changed.", "", "pods", "patch"),
        Rule("Classes of placeholders, with the priority of the pods that they hold for.", "scheduling.k8s.io", "priorityclasses", "create"),
        Rule("Which kube-scheduler leads: a new one does not know the guards' nominations until they are touched, and is asked anew whether it honours any.", "coordination.k8s.io", "leases", "get", "kube-scheduler"),
        Rule("Whose new pods wait: owners of Reservations.", "restow.dev", "landings", "create patch"),
    ),
    "descheduler": (Rule("Whose new pods wait.", "restow.dev", "landings", "create patch"),),
    "garbage-collector": (
        Rule("Classes of placeholders that nobody uses.", "scheduling.k8s.io", "priorityclasses", "list delete"),
        Rule("Entries of moves that are over.", "restow.dev", "landings", "list patch delete"),
    ),
}
"""What they may do beside another scheduler, in the whole cluster."""
HOLDS: dict[str, tuple[Rule, ...]] = {
    "scheduler-session": (Rule("Placeholders, and the two pods of the start-up check.", "", "pods", "get list create delete"),),
    "descheduler": (Rule("Whether a pod would get the gate: dry runs.", "", "pods", "create"),),
    "garbage-collector": (Rule("Placeholders of nobody's.", "", "pods", "list delete"),),
}
"""What they may do where the placeholders are."""
NODES: dict[str, tuple[Rule, ...]] = {
    "descheduler": (
        Rule("What autoscalers read of a node, and its cordon; the guard (guard.yaml) lets nothing else of it be changed.", "", "nodes", "get patch"),
    ),
}
"""What they may do where autoscalers are told of nodes."""
PLACES = {BESIDE: "restow-holds", HOST_PORTS: "restow-holds-ports"}


def rbac() -> str:
    """`deploy/base/rights.yaml`: of each service its ServiceAccount, ClusterRole, Role, and what binds them."""
    family = {writer.replace("_", "-"): name for name, writer in WRITERS.items()}
    return HEADER + "---\n".join(part for service in KUBERNETES for part in _of_service(service, family[service]))


def beside() -> str:
    """`deploy/beside/rights.yaml`: what is added to the base's."""
    return HEADER + "---\n".join([*_added("ClusterRole", BESIDE_OTHERS), *_added("Role", HOLDS, PLACES[BESIDE])])


def host_ports() -> str:
    """`deploy/beside/host-ports/rights.yaml`."""
    holds = {service: rules for service, rules in HOLDS.items() if service != "descheduler"}
    return HEADER + "---\n".join(_added("Role", holds, PLACES[HOST_PORTS]))


def autoscalers() -> str:
    """`deploy/autoscalers/rights.yaml`."""
    return HEADER + "---\n".join(_added("ClusterRole", NODES, what="autoscalers"))


GATE = Rule("Whose new pods wait; nothing else.", "restow.dev", "landings", "list watch")
"""Of the webhook, which stands in for the admission policy."""


def webhook() -> str:
    """`deploy/webhook/gate/rights.yaml`."""
    name = "restow-webhook"
    account = f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: {NAMESPACE}\n"
    return HEADER + "---\n".join([account, *_role("ClusterRole", name, name, (GATE,), ("",))])


def _added(kind: str, rules: dict[str, tuple[Rule, ...]], namespace: str = "", what: str = "beside") -> list[str]:
    return [
        part
        for service, its in rules.items()
        for part in _role(kind, f"restow-{service}-{what}", f"restow-{service}", its, tuple(rule.name for rule in its), namespace)
    ]


def _of_service(service: str, family: str) -> list[str]:
    name = f"restow-{service}"
    account = f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n"
    own = (
        Rule("The Lease of its family, and no other. Creating cannot be limited to a name.", "coordination.k8s.io", "leases", "create"),
        Rule("", "coordination.k8s.io", "leases", "get update"),
        Rule("A standby asks whether the namespace is there; a refusal would make it lead at once.", "", "namespaces", "get"),
    )
    names = ("", f"restow-{family}", NAMESPACE)
    return [
        account,
        *_role("ClusterRole", name, name, KUBERNETES[service], ("",) * len(KUBERNETES[service])),
        *_role("Role", name, name, own, names),
    ]


def _role(kind: str, name: str, account: str, rules: tuple[Rule, ...], names: tuple[str, ...], namespace: str = "") -> list[str]:
    """It, and what binds it to the service's account. `namespace`: where it is, empty for where it is applied."""
    top = f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}"
    where = f"  name: {name}\n" + (f"  namespace: {namespace}\n" if namespace else "")
    bound = f"  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\n"
    whom = f"  - kind: ServiceAccount\n    name: {account}\n    namespace: {NAMESPACE}\n"
    return [
        f"{top}\nmetadata:\n{where}rules:\n{_rules(rules, names)}",
        f"{top}Binding\nmetadata:\n{where}roleRef:\n{bound}subjects:\n{whom}",
    ]


def _rules(rules: tuple[Rule, ...], names: tuple[str, ...]) -> str:
    lines = []
    for rule, name in zip(rules, names, strict=True):
        lines += [f"  # {line}" for line in rule.why.splitlines()]
        lines.append(f"  - apiGroups: [{rule.group or chr(34) * 2}]")
        lines.append(f"    resources: [{', '.join(rule.resources.split())}]")
        lines += [f"    resourceNames: [{name}]"] if name else []
        lines.append(f"    verbs: [{', '.join(rule.verbs.split())}]")
    return "\n".join(lines) + "\n"


# -- at the broker -----------------------------------------------------------------------------------------------------

LOG = f"restow-{CLUSTER}"
SNAPSHOTS = f"OBJ_{LOG}"
ALL = f"restow.{CLUSTER}.*"
CREATE = f"STREAM.CREATE.{LOG}"
NEXT_OF_LOG, NEXT_OF_SNAPSHOTS = (f"CONSUMER.MSG.NEXT.{stream}.*" for stream in (LOG, SNAPSHOTS))
READ_LOG = [f"STREAM.INFO.{LOG}", f"STREAM.MSG.GET.{LOG}", f"CONSUMER.CREATE.{LOG}.*", f"CONSUMER.DELETE.{LOG}.*", NEXT_OF_LOG]
READ_SNAPSHOTS = [
    f"STREAM.INFO.{SNAPSHOTS}",
    f"STREAM.MSG.GET.{SNAPSHOTS}",
    f"CONSUMER.CREATE.{SNAPSHOTS}.*.$O.{LOG}.C.*",
    f"CONSUMER.DELETE.{SNAPSHOTS}.*",
    NEXT_OF_SNAPSHOTS,
]
TRUNCATE = f"STREAM.PURGE.{LOG}"
STORE = [f"STREAM.CREATE.{SNAPSHOTS}", f"STREAM.PURGE.{SNAPSHOTS}"]
CHUNKS = [f"$O.{LOG}.C.*", f"$O.{LOG}.M.*"]


class User(NamedTuple):
    name: str
    does: str
    appends: str
    """The subject that it may append to; empty for who only reads."""
    collects: bool = False
    """It also truncates the log, and writes snapshots."""

    @property
    def kind(self) -> str:
        return "COLLECTOR" if self.collects else "WRITER" if self.appends else "READER"


DOES = {
    "cluster": "appends facts",
    "session": "appends placements, hand-overs, releases",
    "reservation": "appends reservations",
    "migration": "appends plans and migrations",
    "gc": "appends what is due; alone truncates and writes snapshots",
}
USERS = [
    *(User(writer, DOES[family], f"restow.{CLUSTER}.{family}", family == "gc") for family, writer in WRITERS.items()),
    User("console", "reads only", ""),
    User("cli", "reads only: `restow log|state|why|verify`", ""),
    User("operator", "for `restow log import` into an empty log; give it to people, not to services", ALL),
]
HEAD = f"""# Written by `make rights` from deploy/rights.py; change it there.
# Who may do what to the log of the cluster named "{CLUSTER}" (for another name replace "{CLUSTER}" after "restow." and "restow-").
#
# Each user lives in an account of its own; the log is in the account LOG and the snapshots are in SNAPSHOTS, where no user is. Only
# what these two export and a user's account imports passes between them: that user's own way to the broker's API, under
# JS.LOG.API instead of $JS.API. This is not tidiness. Publish permissions alone do not keep a reader from writing: the broker stores
# its *answer* to any allowed request under whatever reply subject the request named, and a push consumer delivers wherever its maker
# says. Across accounts a reply goes back to the account that asked, and a consumer's deliveries stay in the account of its stream, in
# which that stream's own subjects are refused (a cycle) and nobody else listens; which is why the snapshots have an account to themselves.
#
# Within its account a user appends to its own family's subject and to no other, reads everything, and subscribes only under
# its own inbox prefix. Only garbage_collector may drop the prefix (purge) and write snapshots. Nobody may change or delete the
# stream. tests/integration/eventlog/test_permissions.py proves all of it, the attacks included.
#
# Passwords come from the environment. nats-server parses the variable's text as a value of this file: use letters and
# digits, beginning with a letter (`openssl rand -hex 24 | sed 's/^/p/'`). A missing variable stops the server at start.

authorization {{ timeout: 5 }}

# What each kind of user may reach in the two accounts. What of that it may use, its permissions say.
"""


def permissions() -> str:
    """`deploy/nats/permissions.conf`: accounts, what they export and import, and what each user may publish."""
    kinds = "".join(_imports(kind) for kind in ("READER", "WRITER", "COLLECTOR"))
    exports_of_log = [f"$JS.API.{CREATE}", ALL, *(f"$JS.API.{verb}" for verb in [*READ_LOG[:-1], TRUNCATE])]
    exports_of_snapshots = [*(f"$JS.API.{verb}" for verb in [*READ_SNAPSHOTS[:-1], *STORE]), *CHUNKS]
    return (
        f"{HEAD}{kinds}\naccounts {{\n"
        + _exports("LOG", "the log, and nobody", exports_of_log, NEXT_OF_LOG)
        + _exports("SNAPSHOTS", "the snapshots, and nobody", exports_of_snapshots, NEXT_OF_SNAPSHOTS)
        + "".join(_user(user) for user in USERS)
        + "}\n"
    )


def _imports(kind: str) -> str:
    log = [*([] if kind == "READER" else [CREATE, ALL]), *READ_LOG, *([TRUNCATE] if kind == "COLLECTOR" else [])]
    snapshots = [*READ_SNAPSHOTS, *([*STORE, *CHUNKS] if kind == "COLLECTOR" else [])]
    lines = [_import("LOG", subject) for subject in log] + [_import("SNAPSHOTS", subject) for subject in snapshots]
    return f"{kind}: [\n" + "".join(lines) + "]\n"


def _import(account: str, subject: str) -> str:
    if subject == ALL or subject in CHUNKS:
        return f'  {{ service: {{ account: {account}, subject: "{subject}" }} }}\n'
    return f'  {{ service: {{ account: {account}, subject: "$JS.API.{subject}" }}, to: "JS.LOG.API.{subject}" }}\n'


def _exports(account: str, what: str, subjects: list[str], stream: str) -> str:
    lines = [f'      {{ service: "{subject}" }}\n' for subject in subjects]
    lines.append(f'      {{ service: "$JS.API.{stream}", response_type: stream }}\n')
    return f"  # {what}\n  {account} {{\n    jetstream: enabled\n    exports: [\n{''.join(lines)}    ]\n  }}\n"


def _user(user: User) -> str:
    api = [*([CREATE] if user.appends else []), *READ_LOG, *READ_SNAPSHOTS, *([TRUNCATE, *STORE] if user.collects else [])]
    subjects = [*([user.appends] if user.appends else []), *(f"JS.LOG.API.{verb}" for verb in api), *(CHUNKS if user.collects else [])]
    allowed = ",\n".join(f'            "{subject}"' for subject in subjects)
    return f"""  # {user.does}
  {user.name} {{
    imports: ${user.kind}
    users: [
      {{
        user: {user.name}
        password: $RESTOW_NATS_{user.name.upper()}_PASSWORD
        permissions: {{
          publish: {{ allow: [
{allowed}
          ] }}
          subscribe: {{ allow: ["_INBOX_{user.name}.>"] }}
        }}
      }}
    ]
  }}
"""


if __name__ == "__main__":
    RBAC.write_text(rbac())
    BESIDE.write_text(beside())
    HOST_PORTS.write_text(host_ports())
    WEBHOOK.write_text(webhook())
    AUTOSCALERS.write_text(autoscalers())
    PERMISSIONS.write_text(permissions())
