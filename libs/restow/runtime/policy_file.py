"""`descheduler/v1alpha2` DeschedulerPolicy → MigrationConfig. Upstream's keys and plugins, Restow's `Defragmentation`, and a block
`restow:` for what upstream gives as flags (interval) or does not have (cron, deadlines, limits).

All but `restow:` is read by the rules of `restow descheduler run` (`domain/descheduling/policy.py`). What the service would not follow is refused, for
nothing is worse than a rule that is passed over in silence.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

import structlog
from msgspec.structs import replace

from restow.domain.config import Config, MigrationConfig
from restow.domain.descheduling.interpreter import IN_THE_CLEAR
from restow.domain.descheduling.model import DEFRAGMENTATION, Policy
from restow.domain.descheduling.policy import API_VERSION, KIND, PolicyError, load, refused_upstream, written
from restow.domain.descheduling.policy import read as read_policy
from restow.domain.descheduling.sources import PROMETHEUS
from restow.domain.eviction_budgets import DAY
from restow.domain.migration import check
from restow.runtime.config_source import BadConfig, convert, with_durations

DURATIONS = ("interval", "holdDeadline", "evictDeadline", "landDeadline", "budgetPatience", "abortDeadline", "emptiedFor", "approveDeadline")
_TOP = (
    "apiVersion", "kind", "profiles", "nodeSelector", "maxNoOfPodsToEvictTotal", "maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace",
    "gracePeriodSeconds", "evictionFailureEventNotification", "metricsCollector", "metricsProviders", "restow",
)  # fmt: skip
NOT_HERE = ("defragmentation", "profile", "policy", "grace", "defragmentAt")
"""Keys of the configuration that follow from the rest of the policy."""


def read(said: Any) -> Config:
    """Raises BadConfig with path, value and what is allowed."""
    document = _mapping(said, "$")
    for key, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != allowed:
            raise BadConfig(f"$.{key}: {document.get(key)!r}; allowed: {allowed}")
    _known(document, "$", _TOP)
    own = with_durations(document.get("restow") or {}, DURATIONS, "$.restow")
    for key in NOT_HERE:
        if key in own:
            raise BadConfig(f"$.restow.{key}: set; allowed: profiles[], with {DEFRAGMENTATION} and other plugins in pluginConfig")
    _known(own, "$.restow", tuple(key for key in MigrationConfig.__struct_encode_fields__ if key not in NOT_HERE))
    own |= _with_hooks(own) | _with_periods(own) | _with_budgets(own)
    if "autoPause" in own:
        own["autoPause"] = with_durations(own["autoPause"], ("within", "pending", "every"), "$.restow.autoPause")
    config = convert(MigrationConfig, own, "$.restow")
    policy = _policy({key: value for key, value in document.items() if key != "restow"})
    if config.auto_pause.queries and policy.prometheus is None:
        raise BadConfig("$.restow.autoPause.queries: set, and nobody to ask; allowed: with metricsProviders, source Prometheus")
    config = _configured(config, policy)
    try:
        check(config)
    except ValueError as error:
        raise BadConfig(f"$: {error}") from None
    return config


def _with_hooks(own: Mapping[str, Any]) -> dict[str, Any]:
    hooks = own.get("hooks")
    if not isinstance(hooks, list):
        return {}
    return {"hooks": [with_durations(one, ("deadline",), f"$.restow.hooks[{i}]") for i, one in enumerate(hooks)]}


def _with_periods(own: Mapping[str, Any]) -> dict[str, Any]:
    """YAML reads a time as such; a configuration has texts."""
    found = {}
    for name in ("windows", "blackouts"):
        if isinstance(periods := own.get(name), list):
            read = [with_durations(one, ("duration",), f"$.restow.{name}[{i}]") for i, one in enumerate(periods)]
            found[name] = [{key: value.isoformat() if isinstance(value, date) else value for key, value in one.items()} for one in read]
    return found


def _with_budgets(own: Mapping[str, Any]) -> dict[str, Any]:
    budgets = own.get("budgets")
    if not isinstance(budgets, list):
        return {}
    is_day = [isinstance(one, Mapping) and one.get("within") == DAY for one in budgets]
    return {"budgets": [with_durations(one, () if day else ("within",), f"$.restow.budgets[{i}]") for i, (one, day) in enumerate(zip(budgets, is_day, strict=True))]}


def _configured(config: MigrationConfig, policy: Policy) -> MigrationConfig:
    """The policy is in the configuration wherever it does something: Defragmentation, too, goes by its filters and limits."""
    ours = policy.own
    config = replace(config, grace=policy.grace_period_seconds)
    if ours is not None:
        config = replace(
            config, defragmentation=ours.args, profile=policy.profiles[ours.at].name, defragment_at=ours.before if policy.runs_others else 0
        )
    if ours is not None or policy.runs_others:
        config = replace(config, policy=written(policy.upstream))
    elif config.auto_pause.queries:
        # Of one that moves nothing by itself counts whom to ask: there are moves by hand.
        asked = tuple(one for one in policy.metrics_providers if one.source == PROMETHEUS)
        config = replace(config, policy=written(Policy(metrics_providers=asked)))
    if (total := policy.max_no_of_pods_to_evict_total) is not None:
        # The limit of a cycle is ours of a plan; that of 0 the policy sees to itself.
        config = replace(config, max_moves=min(config.max_moves, max(total, 1)))
    return config


def _policy(document: Mapping[str, Any]) -> Policy:
    """Raises BadConfig."""
    try:
        # Without profiles it only moves what is asked for by hand.
        policy = load(document) if document.get("profiles") not in (None, []) else read_policy(document)
        if reasons := refused_upstream(policy):
            raise PolicyError(reasons)
    except PolicyError as error:
        raise BadConfig("\n".join(f"$.{reason}" for reason in error.reasons)) from None
    if policy.prometheus is not None and policy.prometheus.in_the_clear:
        structlog.get_logger().warning(f"metricsProviders: {IN_THE_CLEAR}")
    if policy.own is not None and policy.own.warning:
        structlog.get_logger().warning(f"{DEFRAGMENTATION}: {policy.own.warning}")
    return policy


def _known(said: Mapping[str, Any], path: str, allowed: tuple[str, ...]) -> None:
    for key in said:
        if key not in allowed:
            raise BadConfig(f"{path}.{key}: unknown; allowed: {', '.join(allowed)}")


def _mapping(said: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise BadConfig(f"{path}: {said!r}; allowed: a mapping")
    return said
