"""Configuration as the deciders read it: what a `<family>.configured` event carries, as canonical JSON.

Users write YAML; the services check it, turn it into these and log it before it is used.
"""

import hashlib
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

LONGEST = 100 * 8_766 * 3_600_000
"""Milliseconds of a hundred years: whoever never wants something says that. A time and such a duration add up to a time."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all configurations."""


class ActionConfig(Config):
    """One action of a session. `arguments` are checked and typed by `domain/session_config.py`, with every default written
    out: what a decision used is in the log."""

    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class PluginConfig(Config):
    """One plugin of a tier. `enabled` holds only those of Volcano's `enable…` switches that are not at their default (see
    `on`); `arguments` as in ActionConfig."""

    name: str
    enabled: dict[str, bool] = msgspec.field(default_factory=dict)
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)

    def on(self, switch: str) -> bool:
        """Whether the plugin answers at the extension point of this switch, such as `enableJobOrder`."""
        return self.enabled.get(switch, switch not in OFF_BY_DEFAULT)


SWITCHES = (
    "enableJobOrder",
    "enableNamespaceOrder",
    "enableHierarchy",
    "enableJobReady",
    "enableJobPipelined",
    "enableTaskOrder",
    "enablePreemptable",
    "enableReclaimable",
    "enablePreemptive",
    "enableQueueOrder",
    "enableClusterOrder",
    "enablePredicate",
    "enableBestNode",
    "enableNodeOrder",
    "enableTargetJob",
    "enableReservedNodes",
    "enableJobEnqueued",
    "enableVictim",
    "enableJobStarving",
    "enableOverused",
    "enableAllocatable",
    "enableResourceNodeOrder",
)
"""What Volcano's plugin options are called, and seed 002's (RULES 002-5)."""

OFF_BY_DEFAULT = frozenset({"enableHierarchy"})
"""All others are on where nothing is said."""


def _plugins(*names: str, quiet: str = "") -> tuple[PluginConfig, ...]:
    return tuple(PluginConfig(name, {"enablePreemptable": False} if name == quiet else {}) for name in names)


class SessionConfig(Config):
    """`scheduler_names`: pods of these are ours, others are never touched. `actions` run in this order; of each extension
    point the plugins are asked tier by tier. Written by `domain/session_config.py` from Volcano's `volcano-scheduler.conf`.

    The default is Volcano's, with `reserve` before `allocate` and the plugin `reservation`, which it needs."""

    scheduler_names: tuple[str, ...] = ("restow",)
    actions: tuple[ActionConfig, ...] = tuple(ActionConfig(n) for n in ("enqueue", "reserve", "allocate", "backfill"))
    tiers: tuple[tuple[PluginConfig, ...], ...] = (
        _plugins("priority", "gang", "conformance", quiet="gang"),
        _plugins("overcommit", "drf", "predicates", "proportion", "nodeorder", "reservation", quiet="drf"),
    )


class ReservationConfig(Config):
    """`default_ttl`: milliseconds, where neither ttl nor expires is set (RULES G-2)."""

    default_ttl: int = 24 * 3600 * 1000


class Namespaces(Config):
    """Either `include` or `exclude`, not both."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class Requirement(Config):
    """One of a selector's matchExpressions."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Config):
    """metav1.LabelSelector, as users write it."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class PriceArgs(Config, rename=None):
    """What nodes cost per hour, in `unit`, by the value of a label (numbers, as text too). A node's own label `restow.dev/price-per-hour` counts first."""

    label: str = "node.kubernetes.io/instance-type"
    perHour: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    unit: str = ""


class DefragmentationArgs(Config, rename=None):
    """Seed 000's arguments. Thresholds are percent per resource. `coolDownTime` is in seconds. `labelSelector` chooses the
    pods that may move.

    `planner`: greedy (seed 000's rules and order), claims (frees whole devices by claim, by `minimumGain`) or optimizing. The last one minimises, by `objective`, what is not a whole free
    device (`devices`), a whole free node (`nodes`), or capacity for the amounts of `capacity` (`capacity`), per pod moved: a set of moves must
    gain `minimumGain` thousandths of one of these per unit of cost; `costs` say what each costs (`move`, 1000: one unit of
    `prices`, a GPU-hour) and are added for what a pod is (priority, age, restarts, gang, budget; `work` that is lost). By `value` what is free is worth what the demands
    that there are could use of it for `horizonHours`, by the `prices` of nodes, and must gain `minimumGain` thousandths more than it costs. `searchSteps` bounds the search. With `wholeNodes` a source is emptied wholly
    or not at all. `demand`: plan for pods that wait although the capacity is there in
    pieces.

    `perDevice` (greedy, GPUs): thresholds are about the devices that are in use, what is requested of them over what they have; on a
    device that pods share no more is planned than stays below the protection threshold."""

    resourceType: str = "nvidia.com/gpu"
    protectionThresholds: dict[str, int] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": 95})
    defragmentThresholds: dict[str, int] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": 70})
    lowThresholds: dict[str, int] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": 40})
    numberOfNodes: int = 0
    evictableNamespaces: Namespaces | None = None
    coolDownTime: int = 0
    labelSelector: Selector | None = None
    planner: Literal["greedy", "optimizing", "claims"] = "greedy"
    objective: Literal["devices", "nodes", "capacity", "value"] = "devices"
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    minimumGain: int = 100
    costs: dict[str, int] = msgspec.field(default_factory=dict)
    prices: PriceArgs = PriceArgs()
    horizonHours: int = 24
    searchSteps: int = 20_000
    wholeNodes: bool = False
    demand: bool = False
    perDevice: bool = False


class HookConfig(Config):
    """Whose pods are asked for before they are moved, and told of after it: those in `namespaces`, of controllers of `kinds`
    (`Kind.group`), that `selector` selects; empty: all. The first entry that is about a pod counts; what the pod itself declares counts
    more. `before`, `after`: the ways (`domain/hooks.py`), empty for none. `deadline`: milliseconds to answer; `on_silence`: what follows
    where nobody does. `token_file`, `ca_file`: read for each request."""

    name: str
    before: str = ""
    after: str = ""
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    selector: Selector | None = None
    deadline: int = 300_000
    on_silence: Literal["stay", "evict"] = "stay"
    token_file: str = ""
    ca_file: str = ""
    server_name: str = ""


class AutoPause(Config):
    """What makes Restow stop moving pods until somebody says `restow resume`. `missed`: so many evicted pods, within `within` milliseconds, that did not come to the slots that were
    held for them, although their controllers made them again or should have; 0 for never. `pending`: so many milliseconds for which a pod waits that nothing keeps from running
    (`domain/undecided.py`): the scheduler is behind or away, and who is evicted would wait, too; 0 for never. `queries`: PromQL; a query whose answer has a sample that is not 0 pauses,
    too. It is asked each `every` milliseconds."""

    missed: int = 10
    within: int = 600_000
    pending: int = 900_000
    queries: tuple[str, ...] = ()
    every: int = 60_000


class Period(Config):
    """Either from each firing of `cron` (five fields, in the policy's time zone) on for `duration` milliseconds, or from `start` until before `end` (RFC 3339). `reason` is for people."""

    cron: str = ""
    duration: int = 0
    start: str = ""
    end: str = ""
    reason: str = ""


class EvictionBudget(Config):
    """At most so many `evictions` by moves within so many milliseconds, or each `day` from midnight in the policy's time zone: of pods in `namespaces`, in those that `namespace_selector` selects, in
    `queues`, on nodes that `node_selector` selects (empty, None: all), together, or `per` namespace or queue, or per value of a label of their nodes. It is known by its `name`
    (`domain/eviction_budgets.py`)."""

    name: str
    evictions: int
    within: int | Literal["day"] = 86_400_000
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    queues: tuple[str, ...] = ()
    node_selector: Selector | None = None
    per: Literal["", "namespace", "queue"] = ""
    per_node_label: str = ""


class MigrationConfig(Config):
    """`interval` in milliseconds, 0 for never; `cron` in five fields, empty for never. `concurrent` bounds migrations
    under way at once, `per_node` those with one source, `per_namespace` and `max_unavailable` those of one namespace and of one
    workload (a number, or a share of its pods rounded down, but one at least: RULES G-15), `evictions_per_minute` how many begin to be evicted; 0 for no bound. An eviction that a budget refuses is tried again for
    `budget_patience`. `abort_deadline` is how long the pod's mark is tried on the way back. `profile` is the policy's that enables Defragmentation: what metrics are labelled with. Deadlines and patience in milliseconds per step of the saga.

    `policy`: the DeschedulerPolicy with all defaults (`descheduling.policy.written`), where it enables any plugin; of one
    that enables none, whom the queries of `auto_pause` are asked of. Defragmentation is not in it: in its profile it comes after so many (`defragment_at`) of the balance plugins. `grace`:
    seconds in which pods that are evicted are to end, None for what they say themselves. `movable_owners`: controllers (`Kind.group`) whose pods
    may be moved although nobody knows what an eviction means to them (`domain/pod_controllers.py`). `beside`: schedulers whose pods may be moved, too: for
    these a placeholder pod holds the slot (`domain/beside.py`). `claim_namespaces`: where their placeholders may have ResourceClaims (`domain/held_by_claim.py`). `protect_targets`: autoscalers are kept from nodes to which moves are under way.
    `emptied`: what becomes of a node that a plan has emptied wholly: nothing (none), it is said (announce), or nobody is placed there (cordon) from the
    first eviction on, until `emptied_for` (milliseconds) after it was empty. `hooks`: who is asked before a move and told after it. `auto_pause`: when moves stop by themselves.
    `mode`: what becomes of plans, as long as nobody sets another one (`domain/migration/modes.py`); one that is proposed waits for a person for `approve_deadline`.
    `windows` and `blackouts`: when pods may move (`domain/migration/open_hours.py`); `budgets`: how many in a time (`domain/eviction_budgets.py`)."""

    defragmentation: DefragmentationArgs | None = None
    interval: int = 0
    cron: str = ""
    time_zone: str = "UTC"
    concurrent: int = 50
    per_node: int = 8
    max_moves: int = 2_000
    hold_deadline: int = 30_000
    evict_deadline: int = 60_000
    land_deadline: int = 300_000
    per_namespace: int = 0
    max_unavailable: int | str = "10%"
    evictions_per_minute: int = 60
    budget_patience: int = 0
    profile: str = ""
    policy: dict[str, Any] = msgspec.field(default_factory=dict)
    defragment_at: int = 0
    grace: int | None = None
    abort_deadline: int = 120_000
    movable_owners: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    claim_namespaces: tuple[str, ...] = ()
    protect_targets: bool = False
    emptied: Literal["none", "announce", "cordon"] = "none"
    emptied_for: int = 1_800_000
    hooks: tuple[HookConfig, ...] = ()
    auto_pause: AutoPause = AutoPause()
    mode: Literal["observe", "propose", "automatic"] = "automatic"
    approve_deadline: int = 3_600_000
    windows: tuple[Period, ...] = ()
    blackouts: tuple[Period, ...] = ()
    budgets: tuple[EvictionBudget, ...] = ()

    def unavailable_of(self, pods: int) -> int:
        """How many of a workload with so many pods may be away at once; 0 for no bound."""
        said = self.max_unavailable
        return said if isinstance(said, int) else max(pods * int(said.removesuffix("%")) // 100, 1)

    @property
    def evicts_for(self) -> int:
        """Milliseconds in which an eviction must have been accepted: long enough for a budget to let the pod go."""
        return max(self.evict_deadline, self.budget_patience)


class GcConfig(Config):
    """`retention`: milliseconds that a finished Reservation is kept. `period`: objects are deleted only at full multiples of so
    many milliseconds since the Unix epoch, 0 for as soon as each may be; expiry is exact in any case. A snapshot is due after
    `snapshot_every` sequences, or `snapshot_bytes` of commits; a prefix is truncated only when `keep` sequences stay behind it,
    or when more than `keep_bytes` of commits do."""

    retention: int = 24 * 3600 * 1000
    period: int = 0
    snapshot_every: int = 50_000
    snapshot_bytes: int = 256 << 20
    keep: int = 100_000
    keep_bytes: int = 1 << 30


CONFIGS: dict[str, type[Config]] = {
    "session": SessionConfig,
    "reservation": ReservationConfig,
    "migration": MigrationConfig,
    "gc": GcConfig,
}

C = TypeVar("C", bound=Config)


def text_of(config: Config) -> str:
    """Canonical JSON: equal configurations are equal texts."""
    return msgspec.json.encode(config, order="sorted").decode()


@lru_cache(maxsize=16)
def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read(kind: type[C], text: str) -> C:
    """Raises msgspec.ValidationError, naming the path, where `text` is not such a configuration."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        try:
            if kind is MigrationConfig:
                return msgspec.convert(_present(msgspec.json.decode(text)), kind)
            if kind is SessionConfig:
                return msgspec.json.decode(text, type=_OldSession).upcast()  # type: ignore[return-value]
        except msgspec.ValidationError:
            pass
        raise


def renamed(args: dict[str, Any]) -> dict[str, str]:
    """Gives arguments of Defragmentation the names of today, in place; returns which were given, old → new. Raises ValueError where
    an argument is there under both names."""
    found = {}
    for old, new in FORMER.items():
        if old in args:
            if new in args:
                raise ValueError(f"has {old} and {new}; allowed: {new}, which is the same")
            args[new] = args.pop(old)
            found[old] = new
    said = args.get("objective")
    if isinstance(said, str) and said in FORMER:
        args["objective"] = FORMER[said]
        found[f"objective {said}"] = FORMER[said]
    return found


FORMER = {"room": "capacity"}
"""Words of the arguments of Defragmentation until 0.1, and what they are called now."""


def _present(said: Any) -> Any:
    """As logs have it until migration@5: two pods could change places, and capacity was called room."""
    if isinstance(said, dict) and isinstance(args := said.get("defragmentation"), dict):
        args.pop("swaps", None)
        renamed(args)
    return said


class _OldSession(Config):
    """What logs hold of sessions before there were actions and plugins."""

    scheduler_names: tuple[str, ...]
    score: Literal["leastAllocated", "binpack"]
    weights: dict[str, int]

    def upcast(self) -> SessionConfig:
        new = SessionConfig(scheduler_names=self.scheduler_names)
        if self.score != "binpack":
            return new
        rest = {name: weight for name, weight in self.weights.items() if name not in ("cpu", "memory")}
        binpack = {
            "binpack.weight": 10,
            "binpack.cpu": self.weights.get("cpu", 0),
            "binpack.memory": self.weights.get("memory", 0),
            "binpack.resources": rest,
        }
        spread = {"leastrequested.weight": 0, "balancedresource.weight": 0}
        last = [PluginConfig("nodeorder", {}, spread) if p.name == "nodeorder" else p for p in new.tiers[-1]]
        return SessionConfig(new.scheduler_names, new.actions, (*new.tiers[:-1], (*last, PluginConfig("binpack", {}, binpack))))
