"""`descheduler/v1alpha2` DeschedulerPolicy: read strictly, with upstream's defaults and validation, and refused with path, value and
what is allowed.

`read` does what upstream does when it loads a policy; Defragmentation is one more plugin. Whoever runs a policy asks `unusable`, too (`load`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from restow.domain.descheduling.framework import POINTS, Point
from restow.domain.descheduling.model import (
    DEFRAGMENTATION,
    EVICTOR,
    PluginConfig,
    Plugins,
    PluginSet,
    Policy,
    Profile,
)
from restow.domain.descheduling.plugins import PLUGINS, load_aware, low_node_utilization
from restow.domain.descheduling.plugins.load_aware import PROMETHEUS as PROMETHEUS_TYPE
from restow.domain.descheduling.selection import parsed
from restow.domain.descheduling.sources import (
    KUBERNETES,
    PROMETHEUS,
    MetricsCollector,
    MetricsProvider,
    refusals,
)
from restow.domain.policy_args import Args, Duration, Percent, Uint, decoded, encoded, nested

API_VERSION, KIND = "descheduler/v1alpha2", "DeschedulerPolicy"
OLDER = ("descheduler/v1alpha1",)
LARGEST = 100_000
"""Values of a policy, nested ones counted."""


class PolicyError(ValueError):
    """A policy that is refused; one line a reason."""

    def __init__(self, reasons: list[str]):
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class _Profile(Args, frozen=True):
    name: str = ""
    plugin_config: tuple[dict[str, Any], ...] = ()
    plugins: Plugins = Plugins()


class _Policy(Args, frozen=True):
    """As it is written."""

    api_version: str = ""
    kind: str = ""
    profiles: tuple[_Profile, ...] | None = None
    node_selector: str | None = None
    max_no_of_pods_to_evict_per_node: Uint | None = None
    max_no_of_pods_to_evict_per_namespace: Uint | None = None
    max_no_of_pods_to_evict_total: Uint | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_collector: MetricsCollector | None = None
    metrics_providers: tuple[MetricsProvider, ...] | None = None
    grace_period_seconds: int | None = None


_SAME = (
    "max_no_of_pods_to_evict_per_node", "max_no_of_pods_to_evict_per_namespace", "max_no_of_pods_to_evict_total",
    "eviction_failure_event_notification", "metrics_collector", "grace_period_seconds",
)  # fmt: skip
"""Fields that are read as they are written."""


def load(document: Any) -> Policy:
    """A policy that can be run. Raises PolicyError."""
    policy = read(document)
    if reasons := unusable(policy):
        raise PolicyError(reasons)
    return policy


def read(document: Any) -> Policy:
    """A policy as upstream decodes, defaults and validates it, from YAML's or JSON's plain values. Raises PolicyError."""
    if not isinstance(document, Mapping):
        raise PolicyError([f"the policy: {type(document).__name__}; allowed: an object of kind {KIND}"])
    if document.get("apiVersion") in OLDER:
        raise PolicyError([f"apiVersion: {document['apiVersion']!r}; allowed: {API_VERSION}, where each of the `strategies` is a plugin of a profile"])
    try:
        written = _convert(_spelled(document), _Policy, "")
    except RecursionError:
        raise PolicyError(["the policy: is nested too deeply; allowed: what a DeschedulerPolicy has"]) from None
    reasons: list[str] = []
    if written.api_version != API_VERSION:
        reasons.append(f"apiVersion: {written.api_version!r}; allowed: {API_VERSION}")
    if written.kind != KIND:
        reasons.append(f"kind: {written.kind!r}; allowed: {KIND}")
    profiles = tuple(_profile(p, f"profiles[{i}]", reasons) for i, p in enumerate(written.profiles or ()))
    selector = None
    if written.node_selector:
        try:
            selector = parsed(written.node_selector)
        except ValueError as error:
            reasons.append(f"nodeSelector: {error}")
    if written.grace_period_seconds is not None and written.grace_period_seconds < 0:
        reasons.append(f"gracePeriodSeconds: {written.grace_period_seconds}; allowed: 0 or more")
    reasons += refusals(written.metrics_providers or (), written.metrics_collector)
    if reasons:
        raise PolicyError(reasons)
    same = {name: getattr(written, name) for name in _SAME}
    return Policy(
        profiles=profiles, node_selector=selector, node_selector_text=written.node_selector or "",
        metrics_providers=written.metrics_providers or (), **same,
    )  # fmt: skip


def written(policy: Policy) -> dict[str, Any]:
    """With all defaults, as plain values: `read` of it is the same policy."""
    out: dict[str, Any] = {}
    if policy.profiles:
        out["profiles"] = [
            {
                "name": profile.name,
                "pluginConfig": [{"name": c.name, "args": _plain(c.args)} for c in profile.plugin_config],
                "plugins": _plain(profile.plugins),
            }
            for profile in policy.profiles
        ]
    rest = _Policy(
        api_version=API_VERSION, kind=KIND, node_selector=policy.node_selector_text or None, metrics_providers=policy.metrics_providers or None,
        **{name: getattr(policy, name) for name in _SAME},
    )  # fmt: skip
    return _plain(rest) | out


def _profile(said: _Profile, path: str, reasons: list[str]) -> Profile:
    configs: list[PluginConfig] = []
    names: list[str] = []
    for i, entry in enumerate(said.plugin_config):
        at = f"{path}.pluginConfig[{i}]"
        try:
            name = _name(entry, at)
            if name in names:
                reasons.append(f"{at}{'' if name == DEFRAGMENTATION else '.name'}: {name!r} is there twice; allowed: once")
            names.append(name)
            args = _args(name, entry.get("args"), f"{at}.args")
        except PolicyError as error:
            reasons += error.reasons
            continue
        if refusal := args.check():
            reasons.append(f"{nested(f'{at}.args', refusal)} (profile {said.name!r}, {name})")
        configs.append(PluginConfig(name, args))
    if EVICTOR not in names:
        configs.insert(0, PluginConfig(EVICTOR, PLUGINS[EVICTOR].Args().defaulted()))
    plugins = said.plugins
    return Profile(
        said.name,
        tuple(configs),
        replace(plugins, filter=_with_evictor(plugins.filter), pre_eviction_filter=_with_evictor(plugins.pre_eviction_filter)),
    )


def _name(entry: dict[str, Any], path: str) -> str:
    for key in entry:
        if key not in ("name", "args"):
            raise PolicyError([f"{path}.{key}: unknown; allowed: name, args"])
    name = entry.get("name", "")
    if not isinstance(name, str) or name not in PLUGINS:
        raise PolicyError([f"{path}.name: {name!r}; allowed: {', '.join(sorted(PLUGINS))}"])
    return name


def _args(plugin: str, said: Any, path: str) -> Args:
    """Their own apiVersion and kind say nothing that the name does not."""
    if said is not None and not isinstance(said, dict):
        raise PolicyError([f"{path}: {said!r}; allowed: a mapping"])
    said = {k: v for k, v in (said or {}).items() if k not in ("apiVersion", "kind")}
    try:
        args: Args = PLUGINS[plugin].read(said, path) if plugin == DEFRAGMENTATION else _convert(said, PLUGINS[plugin].Args, path)
    except PolicyError:
        raise
    except ValueError as error:
        raise PolicyError([str(error)]) from None
    return args.defaulted()


def _with_evictor(set: PluginSet) -> PluginSet:
    return set if EVICTOR in set.enabled else replace(set, enabled=(EVICTOR, *set.enabled))


def _spelled(document: Mapping[str, Any]) -> dict[str, Any]:
    """Extension points in either case, as upstream's documents have `preevictionfilter` and `preEvictionFilter`; `null` is nothing."""
    out: dict[str, Any] = _without_nulls(document, [LARGEST])
    profiles = out.get("profiles")
    for profile in profiles if isinstance(profiles, list) else ():
        plugins = profile.get("plugins") if isinstance(profile, dict) else None
        if isinstance(plugins, dict):
            for key in list(plugins):
                for point in POINTS:
                    if isinstance(key, str) and key != point and key.lower() == point.lower() and point not in plugins:
                        plugins[point] = plugins.pop(key)
    return out


def _without_nulls(value: Any, left: list[int]) -> Any:
    """`left`: values that may follow. What refers to itself, as YAML can, has no end."""
    left[0] -= 1
    if left[0] < 0:
        raise PolicyError([f"the policy: has more than {LARGEST} values; allowed: up to {LARGEST}"])
    if isinstance(value, Mapping):
        return {k: _without_nulls(v, left) for k, v in value.items() if v is not None}
    return [_without_nulls(v, left) for v in value] if isinstance(value, list | tuple) else value


def _plain(args: Args) -> dict[str, Any]:
    """As upstream writes it: without what is empty, unless nothing would not mean the same."""
    plain: dict[str, Any] = {}
    for field in msgspec.structs.fields(args):
        value = getattr(args, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        shown = _values(value)
        # What may be nothing at all (Go's pointers) is there where it is said, and so is what is on by default.
        if shown or (value is not None and default is None) or (default and not isinstance(default, Args)):
            plain[field.encode_name] = shown
    return plain


def _values(value: Any) -> Any:
    if isinstance(value, Args):
        return _plain(value)
    if isinstance(value, Mapping):
        return {key: _values(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_values(one) for one in value]
    return encoded(value) if isinstance(value, Duration | Percent) else value


def _convert(value: Any, kind: type[Any], path: str) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=decoded)
    except msgspec.ValidationError as error:
        what, _, where = str(error).rpartition(" - at `$")
        where = where.removesuffix("`") if what else ""
        said = what or str(error)
        if "unknown field" in said and not where:
            said += f"; allowed: {', '.join(kind.__struct_encode_fields__)}"
        raise PolicyError([f"{(path + where).lstrip('.') or 'the policy'}: {said}"]) from None


def unusable(policy: Policy) -> list[str]:
    """Why it cannot be run as it is written; empty where it can."""
    reasons: list[str] = []
    if not policy.profiles:
        reasons.append("profiles: none; allowed: at least one")
    names: set[str] = set()
    for i, profile in enumerate(policy.profiles):
        path = f"profiles[{i}]"
        if profile.name in names:
            reasons.append(f"{path}.name: {profile.name!r} is there twice; allowed: names that tell profiles apart")
        names.add(profile.name)
        if policy.own is not None and policy.own.at < i and DEFRAGMENTATION in profile.plugins.balance.enabled:
            reasons.append(f"{path}: enables {DEFRAGMENTATION} again; allowed: one profile with {DEFRAGMENTATION}")
        reasons += _unusable(profile, path)
    for i, profile in enumerate(policy.profiles):
        reasons += _unmeasured(policy, profile, i)
    for i, args in policy.load_aware:
        if args.metrics.type == PROMETHEUS_TYPE and not args.metrics.address and policy.prometheus is None:
            reasons.append(
                f"profiles[{i}], {load_aware.NAME}: metrics.address: nothing; allowed: the URL of Prometheus, here or in metricsProviders"
            )
    return reasons


def refused_upstream(policy: Policy) -> list[str]:
    """What upstream's validation refuses although its plugins know how to do it: `include` of evictableNamespaces, which `unusable` leaves to
    a warning. Whoever runs a policy day after day refuses it."""
    return [
        f"profiles[{i}], {config.name}: evictableNamespaces.include: {', '.join(said.include)}; allowed: exclude alone, as upstream has it"
        for i, profile in enumerate(policy.profiles)
        for config in profile.plugin_config
        if (said := getattr(config.args, "evictable_namespaces", None)) is not None and said.include
    ]


def _unmeasured(policy: Policy, profile: Profile, at: int) -> Iterator[str]:
    """Metrics that a plugin goes by, and that nobody provides: upstream's plugin cannot be built."""
    args = profile.args(low_node_utilization.NAME) if low_node_utilization.NAME in profile.plugins.balance.enabled else None
    if not isinstance(args, low_node_utilization.Args):
        return
    where = f"profiles[{at}], {low_node_utilization.NAME}: metricsUtilization"
    if args.measured and not policy.provides(KUBERNETES):
        yield f"{where}: {KUBERNETES}, which metricsProviders do not have; allowed: what they have"
    if args.query and not policy.provides(PROMETHEUS):
        yield f"{where}: {PROMETHEUS}, which metricsProviders do not have; allowed: what they have"


def _unusable(profile: Profile, path: str) -> list[str]:
    reasons: list[str] = []
    configured = {config.name for config in profile.plugin_config}
    for point in POINTS:
        allowed = _at(point)
        for word in ("enabled", "disabled"):
            said = getattr(profile.plugins.plugin_set(point), word)
            for i, name in enumerate(said):
                where = f"{path}.plugins.{point}.{word}[{i}]"
                if name not in allowed and not (word == "disabled" and name == "*"):
                    reasons.append(f"{where}: {name!r}; allowed: {', '.join(allowed) or 'no plugin has this extension point'}")
                elif name in said[:i]:
                    reasons.append(f"{where}: {name!r} is there twice; allowed: once")
                elif word == "enabled" and name not in (*configured, DEFRAGMENTATION):
                    reasons.append(f"{where}: {name!r} has no entry in pluginConfig; allowed: plugins that have one, be it empty")
    return reasons


def _at(point: Point) -> list[str]:
    return sorted(name for name, plugin in PLUGINS.items() if point in plugin.POINTS)
