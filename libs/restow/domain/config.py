"""Configuration as the deciders read it: what a `<family>.configured` event carries, as canonical JSON.

Users write YAML; the services check it, turn it into these and log it before it is used.
"""

import hashlib
from typing import Literal, TypeVar

import msgspec


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all configurations."""


class SessionConfig(Config):
    """`scheduler_names`: pods of these are ours, others are never touched. `score`: which node is preferred among those
    that fit: `leastAllocated` (most room left) or `binpack` (least room left), over `weights` per resource."""

    scheduler_names: tuple[str, ...] = ("restow",)
    score: Literal["leastAllocated", "binpack"] = "leastAllocated"
    weights: dict[str, int] = msgspec.field(
        default_factory=lambda: {"cpu": 1, "memory": 1, "restow.dev/gpu-milli": 2}
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


class DefragmentationArgs(Config, rename=None):
    """Seed 000's arguments. Thresholds are percent per resource. `coolDownTime` is in seconds. `labelSelector` chooses the
    pods that may move."""

    resourceType: str = "nvidia.com/gpu"
    protectionThresholds: dict[str, int] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": 95})
    defragmentThresholds: dict[str, int] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": 70})
    lowThresholds: dict[str, int] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": 40})
    numberOfNodes: int = 0
    evictableNamespaces: Namespaces | None = None
    coolDownTime: int = 0
    labelSelector: Selector | None = None


class MigrationConfig(Config):
    """`interval` in milliseconds, 0 for never; `cron` in five fields, empty for never. `concurrent` bounds migrations
    under way at once, `per_node` those with one source. Deadlines in milliseconds per step of the saga."""

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


class GcConfig(Config):
    """`retention`: milliseconds that a finished Reservation is kept. A snapshot is due after `snapshot_every` sequences;
    a prefix is truncated only when `keep` sequences stay behind it."""

    retention: int = 24 * 3600 * 1000
    snapshot_every: int = 50_000
    keep: int = 100_000


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


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read(kind: type[C], text: str) -> C:
    """Raises msgspec.ValidationError, naming the path, where `text` is not such a configuration."""
    return msgspec.json.decode(text, type=kind)
