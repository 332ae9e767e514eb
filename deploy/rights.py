"""Who may do what: at the Kubernetes API (RBAC) and at the broker. One declaration of each; `make rights` writes the manifests from
them, and tests/deploy/test_rbac.py says when somebody has forgotten that.

    python deploy/rights.py            writes them into deploy/chart/files
"""

from pathlib import Path
from typing import NamedTuple

from restow.contracts.ids import WRITERS
from restow.kube.rights import BESIDE_OTHERS, CLAIMS, CLAIMS_OTHERS, HOLDS, KUBERNETES, NODES, Rule, own_of

FILES = Path(__file__).parent / "chart" / "files"
RBAC = FILES / "rights.yaml"
BESIDE = FILES / "beside" / "rights.yaml"
HOST_PORTS = FILES / "beside" / "host-ports" / "rights.yaml"
CLAIM_RIGHTS = FILES / "beside" / "claims" / "rights.yaml"
CLAIM_BINDING = FILES / "beside" / "claims" / "binding.yaml"
WEBHOOK = FILES / "webhook-rights.yaml"
AUTOSCALERS = FILES / "autoscalers" / "rights.yaml"
PERMISSIONS = FILES / "nats" / "permissions.conf"
NKEYS = FILES / "nats" / "permissions-nkeys.conf"
HEADER = "# Written by `make rights` from deploy/rights.py; change it there.\n"
NAMESPACE = "restow-system"
CLUSTER = "main"


# -- at the Kubernetes API ---------------------------------------------------------------------------------------------

PLACES = {BESIDE: "restow-holds", HOST_PORTS: "restow-holds-ports"}


def rbac() -> str:
    """`rights.yaml`: of each service its ServiceAccount, ClusterRole, Role, and what binds them."""
    family = {writer.replace("_", "-"): name for name, writer in WRITERS.items()}
    return HEADER + "---\n".join(
        part for service in KUBERNETES for part in _of_service(service, family[service])
    )


def beside() -> str:
    """`beside/rights.yaml`: what is added to it."""
    return HEADER + "---\n".join(
        [*_added("ClusterRole", BESIDE_OTHERS), *_added("Role", HOLDS, PLACES[BESIDE])]
    )


def host_ports() -> str:
    """`beside/host-ports/rights.yaml`."""
    holds = {service: rules for service, rules in HOLDS.items() if service != "descheduler"}
    return HEADER + "---\n".join(_added("Role", holds, PLACES[HOST_PORTS]))


def claims() -> str:
    """`beside/claims/rights.yaml`, to be applied in each namespace, by itself: so it has the label by which `restow uninstall` finds it."""
    return HEADER + "---\n".join(part.replace("metadata:\n", "metadata:\n  labels: {app.kubernetes.io/part-of: restow}\n", 1) for part in _added("Role", CLAIMS, what="claims"))


def claim_binding() -> str:
    """`beside/claims/binding.yaml`."""
    return HEADER + "---\n".join(_added("ClusterRole", CLAIMS_OTHERS, what="claims"))


def autoscalers() -> str:
    """`autoscalers/rights.yaml`."""
    return HEADER + "---\n".join(_added("ClusterRole", NODES, what="autoscalers"))


GATE = Rule("Whose new pods wait; nothing else.", "restow.dev", "landings", "list watch")
"""Of the webhook, which stands in for the admission policy."""


def webhook() -> str:
    """`webhook-rights.yaml`."""
    name = "restow-webhook"
    account = f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: {NAMESPACE}\n"
    return HEADER + "---\n".join([account, *_role("ClusterRole", name, name, (GATE,), ("",))])


def _added(
    kind: str, rules: dict[str, tuple[Rule, ...]], namespace: str = "", what: str = "beside"
) -> list[str]:
    return [
        part
        for service, its in rules.items()
        for part in _role(
            kind,
            f"restow-{service}-{what}",
            f"restow-{service}",
            its,
            tuple(rule.name for rule in its),
            namespace,
        )
    ]


def _of_service(service: str, family: str) -> list[str]:
    name = f"restow-{service}"
    account = f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n"
    own = own_of(family, NAMESPACE)
    return [
        account,
        *_role("ClusterRole", name, name, KUBERNETES[service], ("",) * len(KUBERNETES[service])),
        *_role("Role", name, name, own, tuple(rule.name for rule in own)),
    ]


def _role(
    kind: str, name: str, account: str, rules: tuple[Rule, ...], names: tuple[str, ...], namespace: str = ""
) -> list[str]:
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
CONSUMERS = 500
"""Of the log, and of the snapshots. Whoever reads may make some (50 KB of the broker's memory each); a service has one or two. Who gets none reads record by record."""
ALL = f"restow.{CLUSTER}.*"
CREATE = f"STREAM.CREATE.{LOG}"
NEXT_OF_LOG, NEXT_OF_SNAPSHOTS = (f"CONSUMER.MSG.NEXT.{stream}.*" for stream in (LOG, SNAPSHOTS))
READ_LOG = [
    f"STREAM.INFO.{LOG}",
    f"STREAM.MSG.GET.{LOG}",
    f"CONSUMER.CREATE.{LOG}.*",
    f"CONSUMER.DELETE.{LOG}.*",
    NEXT_OF_LOG,
]
READ_SNAPSHOTS = [
    f"STREAM.INFO.{SNAPSHOTS}",
    f"STREAM.MSG.GET.{SNAPSHOTS}",
    f"CONSUMER.CREATE.{SNAPSHOTS}.*.$O.{LOG}.C.*",
    f"CONSUMER.DELETE.{SNAPSHOTS}.*",
    NEXT_OF_SNAPSHOTS,
]
CHANGE = [f"STREAM.UPDATE.{stream}" for stream in (LOG, SNAPSHOTS)]
"""`restow log replicas`. What else it could change (a limit), every service looks at when it starts, and refuses."""
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
    operates: bool = False
    """It also changes on how many brokers they are."""

    @property
    def kind(self) -> str:
        return "ADMIN" if self.operates else "COLLECTOR" if self.collects else "WRITER" if self.appends else "READER"


DOES = {
    "cluster": "appends facts",
    "session": "appends placements, hand-overs, releases",
    "reservation": "appends reservations",
    "migration": "appends plans and migrations",
    "gc": "appends what is due; alone truncates and writes snapshots",
}
USERS = [
    *(
        User(writer, DOES[family], f"restow.{CLUSTER}.{family}", family == "gc")
        for family, writer in WRITERS.items()
    ),
    User("console", "reads only", ""),
    User("cli", "reads only: `restow log|state|why|verify`", ""),
    User("operator", "for `restow log import` into an empty log and `restow log replicas`; give it to people, not to services", ALL, operates=True),
]
HEAD = """# Written by `make rights` from deploy/rights.py; change it there.
# Who may do what to the log of the cluster named "{cluster}" (for another name replace "{cluster}" after "restow." and "restow-").
#
# Each user lives in an account of its own; the log is in the account LOG and the snapshots are in SNAPSHOTS, where no user is. Only
# what these two export and a user's account imports passes between them: that user's own way to the broker's API, under
# JS.LOG.API instead of $JS.API. This is not tidiness. Publish permissions alone do not keep a reader from writing: the broker stores
# its *answer* to any allowed request under whatever reply subject the request named, and a push consumer delivers wherever its maker
# says. Across accounts a reply goes back to the account that asked, and a consumer's deliveries stay in the account of its stream, in
# which that stream's own subjects are refused (a cycle) and nobody else listens; which is why the snapshots have an account to themselves.
#
# Within its account a user appends to its own family's subject and to no other, reads everything, and subscribes only under
# its own inbox prefix. Only garbage_collector may drop the prefix (purge) and write snapshots. Nobody may delete a stream, and
# only operator, whom no service is, may change one (on how many brokers it is). tests/integration/eventlog/test_permissions.py proves all of it, the attacks included.
#
{known}authorization {{ timeout: 5 }}

# What each kind of user may reach in the two accounts. What of that it may use, its permissions say.
"""


PASSWORDS = """# Passwords come from the environment. nats-server parses the variable's text as a value of this file: use letters and
# digits, beginning with a letter (`openssl rand -hex 24 | sed 's/^/p/'`). A missing variable stops the server at start.

"""
PUBLIC_KEYS = """# In place of permissions.conf, with nkeys instead of passwords: the broker knows public keys only (U..., from the environment), and each service has its
# seed in a file (RESTOW_NATS_CREDENTIALS). `nk -gen user -pubout` makes both. A missing variable stops the server at start.

"""


def permissions(keys: bool = False) -> str:
    """`nats/permissions.conf`: accounts, what they export and import, and what each user may publish. `keys`: users are known by their nkeys."""
    head = HEAD.format(cluster=CLUSTER, known=PUBLIC_KEYS if keys else PASSWORDS)
    kinds = "".join(_imports(kind) for kind in ("READER", "WRITER", "COLLECTOR", "ADMIN"))
    exports_of_log = [f"$JS.API.{CREATE}", ALL, *(f"$JS.API.{verb}" for verb in [*READ_LOG[:-1], TRUNCATE, CHANGE[0]])]
    exports_of_snapshots = [*(f"$JS.API.{verb}" for verb in [*READ_SNAPSHOTS[:-1], *STORE, CHANGE[1]]), *CHUNKS]
    return (
        f"{head}{kinds}\naccounts {{\n"
        + _exports("LOG", "the log, and nobody", exports_of_log, NEXT_OF_LOG)
        + _exports("SNAPSHOTS", "the snapshots, and nobody", exports_of_snapshots, NEXT_OF_SNAPSHOTS)
        + "".join(_user(user, keys) for user in USERS)
        + "}\n"
    )


def _imports(kind: str) -> str:
    log = [
        *([] if kind == "READER" else [CREATE, ALL]),
        *READ_LOG,
        *([TRUNCATE] if kind == "COLLECTOR" else []),
        *(CHANGE[:1] if kind == "ADMIN" else []),
    ]
    snapshots = [*READ_SNAPSHOTS, *([*STORE, *CHUNKS] if kind == "COLLECTOR" else []), *(CHANGE[1:] if kind == "ADMIN" else [])]
    lines = [_import("LOG", subject) for subject in log] + [
        _import("SNAPSHOTS", subject) for subject in snapshots
    ]
    return f"{kind}: [\n" + "".join(lines) + "]\n"


def _import(account: str, subject: str) -> str:
    if subject == ALL or subject in CHUNKS:
        return f'  {{ service: {{ account: {account}, subject: "{subject}" }} }}\n'
    return f'  {{ service: {{ account: {account}, subject: "$JS.API.{subject}" }}, to: "JS.LOG.API.{subject}" }}\n'


def _exports(account: str, what: str, subjects: list[str], stream: str) -> str:
    lines = [f'      {{ service: "{subject}" }}\n' for subject in subjects]
    lines.append(f'      {{ service: "$JS.API.{stream}", response_type: stream }}\n')
    return (
        f"  # {what}\n  {account} {{\n    jetstream: {{ max_consumers: {CONSUMERS} }}\n    exports: [\n{''.join(lines)}    ]\n  }}\n"
    )


def _user(user: User, keys: bool) -> str:
    known = f"nkey: $RESTOW_NATS_{user.name.upper()}_NKEY" if keys else f"user: {user.name}\n        password: $RESTOW_NATS_{user.name.upper()}_PASSWORD"
    subjects = ",\n".join(f'            "{subject}"' for subject in allowed(user))
    return f"""  # {user.does}
  {user.name} {{
    imports: ${user.kind}
    users: [
      {{
        {known}
        permissions: {{
          publish: {{ allow: [
{subjects}
          ] }}
          subscribe: {{ allow: ["_INBOX_{user.name}.>"] }}
        }}
      }}
    ]
  }}
"""


# -- what of it nobody has ------------------------------------------------------------------------------------------------

OF_A_STREAM = (
    *(f"STREAM.{verb}.{{stream}}" for verb in (
        "CREATE", "UPDATE", "INFO", "DELETE", "PURGE", "SNAPSHOT", "RESTORE", "MSG.GET", "MSG.DELETE", "PEER.REMOVE", "PEER.EVACUATE", "CANCEL_MOVE", "LEADER.STEPDOWN",
    )),
    "DIRECT.GET.{stream}", "DIRECT.GET.{stream}.{subject}",
    "CONSUMER.CREATE.{stream}", "CONSUMER.CREATE.{stream}.{consumer}", "CONSUMER.CREATE.{stream}.{consumer}.{subject}",
    "CONSUMER.DURABLE.CREATE.{stream}.{consumer}", "CONSUMER.NAMES.{stream}", "CONSUMER.LIST.{stream}",
    *(f"CONSUMER.{verb}.{{stream}}.{{consumer}}" for verb in (
        "INFO", "DELETE", "PAUSE", "RESET", "UNPIN", "MSG.NEXT", "LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE",
    )),
)  # fmt: skip
OF_THE_BROKER = (
    "INFO", "STREAM.NAMES", "STREAM.LIST", "META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE", "ACCOUNT.PURGE.LOG",
    f"ACCOUNT.STREAM.MOVE.LOG.{LOG}", f"ACCOUNT.STREAM.CANCEL_MOVE.LOG.{LOG}",
)  # fmt: skip
"""Every call of JetStream's API, as nats-server 2.15 has them (server/jetstream_api.go), behind its prefix."""
SUBJECT = {LOG: f"restow.{CLUSTER}.session", SNAPSHOTS: f"$O.{LOG}.C.x"}
"""One that messages of the stream have."""


def calls() -> list[str]:
    """Every call of JetStream's API, for the log and for the snapshots."""
    return [*OF_THE_BROKER, *(call.format(stream=stream, consumer="c", subject=SUBJECT[stream]) for stream in SUBJECT for call in OF_A_STREAM)]


def publishes() -> list[str]:
    """Subjects of messages: every family's, one of none, chunk and description of a snapshot."""
    return [*(f"restow.{CLUSTER}.{family}" for family in WRITERS), f"restow.{CLUSTER}.other", f"$O.{LOG}.C.x", f"$O.{LOG}.M.x"]


def allowed(user: User) -> list[str]:
    """The subjects that it may publish to, as the broker has them: with wildcards."""
    api = [*([CREATE] if user.appends else []), *READ_LOG, *READ_SNAPSHOTS, *([TRUNCATE, *STORE] if user.collects else []), *(CHANGE if user.operates else [])]
    return [*([user.appends] if user.appends else []), *(f"JS.LOG.API.{verb}" for verb in api), *(CHUNKS if user.collects else [])]


def may(user: User, subject: str) -> bool:
    """Whether it may publish there."""
    return any(_covers(pattern.split("."), subject.split(".")) for pattern in allowed(user))


def _covers(pattern: list[str], subject: list[str]) -> bool:
    return len(pattern) == len(subject) and all(ours in ("*", theirs) for ours, theirs in zip(pattern, subject, strict=True))


def page() -> str:
    """`docs/rights.md`."""
    lines = ["| | " + " | ".join(user.name for user in USERS) + " |", "|---|" + "---|" * len(USERS)]
    nobodys = []
    for subject, shown in [*((subject, subject) for subject in publishes()), *((f"JS.LOG.API.{call}", call) for call in calls())]:
        who = [may(user, subject) for user in USERS]
        if any(who):
            lines.append(f"| `{shown}` | " + " | ".join("yes" if one else "" for one in who) + " |")
        else:
            nobodys.append(f"`{shown}`")
    return PAGE.format(table="\n".join(lines), consumers=CONSUMERS, nobodys=",\n".join(nobodys))


PAGE = """<!-- Written by `make rights` from deploy/rights.py; change it there. -->

# Rights at the broker

What the credential of each user can do with the log of cluster `main`, and with its snapshots (`OBJ_restow-main`). `c` stands for any consumer, `x` for any chunk or object.
`tests/integration/eventlog/test_rights.py` asks a real nats-server for each of these as each user, and for what follows below. [Install](install.md#permissions) says how they are kept.

{table}

Calls of the API are behind `JS.LOG.API`. Behind `$JS.API`, where a broker without accounts has them, nobody may call anything. `operator` is nobody's credential but a person's.

Each user listens on `_INBOX_<user>.>` and on nothing else. Whatever reply subject it names, the answer stays in its account: it reaches neither stream and no other user.

A consumer costs the broker memory, and whoever reads may make one: there may be {consumers} of the log, and as many of the snapshots. One that nobody listens to lasts for two minutes at most, whatever its maker says.
(A log that 0.2.0 has made knows no such time: `restow log replicas` with the number that it has gives it one.) Who gets none [reads record by record](failures.md).

Nobody may call or publish to:
{nobodys}.
"""
RIGHTS_PAGE = Path(__file__).resolve().parent.parent / "docs" / "rights.md"


if __name__ == "__main__":
    RBAC.write_text(rbac())
    BESIDE.write_text(beside())
    HOST_PORTS.write_text(host_ports())
    CLAIM_RIGHTS.write_text(claims())
    CLAIM_BINDING.write_text(claim_binding())
    WEBHOOK.write_text(webhook())
    AUTOSCALERS.write_text(autoscalers())
    PERMISSIONS.write_text(permissions())
    NKEYS.write_text(permissions(keys=True))
    RIGHTS_PAGE.write_text(page())
