"""`descheduler/v1alpha2` DeschedulerPolicy: read strictly, with upstream's defaults and validation, and refused with path, value and
what is allowed.

`read` does what upstream does when it loads a policy; `unusable` says what upstream finds only when it builds the profiles, and what
it never minds although it cannot be meant. Whoever runs a policy asks both (`load`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from restow.contracts.values import LabelSelector
from restow.domain.descheduling.args import Args, Duration, Percent, Uint, below, decoded, encoded
from restow.domain.descheduling.evictor.args import DefaultEvictorArgs
from restow.domain.descheduling.framework import POINTS, Point
from restow.domain.descheduling.plugins import PLUGINS, load_aware, low_node_utilization
from restow.domain.descheduling.plugins.load_aware.args import PROMETHEUS as PROMETHEUS_TYPE
from restow.domain.descheduling.plugins.load_aware.args import Args as LoadAware
from restow.domain.descheduling.selection import parsed
from restow.domain.descheduling.sources import (
    KUBERNETES,
    PROMETHEUS,
    MetricsCollector,
    MetricsProvider,
    Prometheus,
    refusals,
)

EVICTOR = "DefaultEvictor"
API_VERSION, KIND = "descheduler/v1alpha2", "DeschedulerPolicy"
LARGEST = 100_000
"""Values of a policy, nested ones counted."""


class PolicyError(ValueError):
    """A policy that is refused; one line a reason."""

    def __init__(self, reasons: list[str]):
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class PluginSet(Args, frozen=True):
    """`disabled` takes nothing away: no plugin is on by itself but DefaultEvictor, which stays on, as upstream has it."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


class Plugins(Args, frozen=True):
    presort: PluginSet = PluginSet()
    sort: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    pre_eviction_filter: PluginSet = PluginSet()

    def at(self, point: Point) -> PluginSet:
        found: PluginSet = getattr(self, "pre_eviction_filter" if point == "preEvictionFilter" else point)
        return found

    def enabled(self, point: Point) -> tuple[str, ...]:
        return self.at(point).enabled


class PluginConfig(msgspec.Struct, frozen=True):
    name: str
    args: Args


class Profile(msgspec.Struct, frozen=True):
    name: str
    plugin_config: tuple[PluginConfig, ...]
    plugins: Plugins

    def args(self, plugin: str) -> Args:
        """What is said first counts; defaults where nothing is."""
        for config in self.plugin_config:
            if config.name == plugin:
                return config.args
        found: Args = _kind(plugin)().defaulted()
        return found

    @property
    def evictor_args(self) -> DefaultEvictorArgs:
        args = self.args(EVICTOR)
        assert isinstance(args, DefaultEvictorArgs)
        return args


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Limits are None where there is none; 0 allows no eviction. `grace_period_seconds` None is the pods' own."""

    profiles: tuple[Profile, ...] = ()
    node_selector: LabelSelector | None = None
    node_selector_text: str = ""
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    eviction_failure_event_notification: bool | None = None
    metrics_collector: MetricsCollector | None = None
    metrics_providers: tuple[MetricsProvider, ...] = ()
    grace_period_seconds: int | None = None

    @property
    def wants_metrics(self) -> bool:
        """Whether metrics.k8s.io is to be read."""
        if self.provides(KUBERNETES):
            return True
        # LoadAware says itself where its load is measured, and what Prometheus' adaptor does not have of pods is here.
        return any(args.metrics.type != PROMETHEUS_TYPE for _, args in self.load_aware)

    def provides(self, source: str) -> bool:
        """Whether it names this source of metrics."""
        collected = source == KUBERNETES and self.metrics_collector is not None and self.metrics_collector.enabled
        return collected or any(provider.source == source for provider in self.metrics_providers)

    @property
    def queries(self) -> tuple[str, ...]:
        """What enabled plugins ask of Prometheus, each once."""
        asked = (
            getattr(profile.args(name), "query", "")
            for profile in self.profiles
            for name in (*profile.plugins.deschedule.enabled, *profile.plugins.balance.enabled)
        )
        return tuple(dict.fromkeys(query for query in asked if query))

    @property
    def load_aware(self) -> tuple[tuple[int, LoadAware], ...]:
        """Each profile (its index) that enables LoadAware, and the plugin's arguments."""
        found: list[tuple[int, LoadAware]] = []
        for i, profile in enumerate(self.profiles):
            if load_aware.NAME in profile.plugins.balance.enabled and isinstance(args := profile.args(load_aware.NAME), LoadAware):
                found.append((i, args))
        return tuple(found)

    @property
    def load_sources(self) -> dict[str, LoadAware]:
        """LoadAware's sources other than metrics.k8s.io, by the name under which samples have them."""
        return {args.source: args for _, args in self.load_aware if args.source}

    @property
    def measured(self) -> bool:
        """Whether anything is to be read before it runs."""
        return bool(self.wants_metrics or (self.prometheus is not None and self.queries) or self.load_sources)

    @property
    def prometheus(self) -> Prometheus | None:
        return next((p.prometheus for p in self.metrics_providers if p.source == PROMETHEUS), None)


class _PluginConfig(Args, frozen=True):
    name: str = ""
    args: dict[str, Any] | None = None


class _Profile(Args, frozen=True):
    name: str = ""
    plugin_config: tuple[_PluginConfig, ...] = ()
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
    return Policy(
        profiles=profiles,
        node_selector=selector,
        node_selector_text=written.node_selector or "",
        max_no_of_pods_to_evict_per_node=written.max_no_of_pods_to_evict_per_node,
        max_no_of_pods_to_evict_per_namespace=written.max_no_of_pods_to_evict_per_namespace,
        max_no_of_pods_to_evict_total=written.max_no_of_pods_to_evict_total,
        eviction_failure_event_notification=written.eviction_failure_event_notification,
        metrics_collector=written.metrics_collector,
        metrics_providers=written.metrics_providers or (),
        grace_period_seconds=written.grace_period_seconds,
    )


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
        api_version=API_VERSION,
        kind=KIND,
        node_selector=policy.node_selector_text or None,
        max_no_of_pods_to_evict_per_node=policy.max_no_of_pods_to_evict_per_node,
        max_no_of_pods_to_evict_per_namespace=policy.max_no_of_pods_to_evict_per_namespace,
        max_no_of_pods_to_evict_total=policy.max_no_of_pods_to_evict_total,
        eviction_failure_event_notification=policy.eviction_failure_event_notification,
        metrics_collector=policy.metrics_collector,
        metrics_providers=policy.metrics_providers or None,
        grace_period_seconds=policy.grace_period_seconds,
    )
    return _plain(rest) | out


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
        reasons += _unusable(profile, path)
    for i, profile in enumerate(policy.profiles):
        reasons += _unmeasured(policy, profile, i)
    for i, args in policy.load_aware:
        if args.metrics.type == PROMETHEUS_TYPE and not args.metrics.address and policy.prometheus is None:
            reasons.append(
                f"profiles[{i}], {load_aware.NAME}: metrics.address: nothing; allowed: the URL of Prometheus, here or in metricsProviders"
            )
    return reasons


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


def refused_upstream(policy: Policy) -> list[str]:
    """What upstream's validation refuses although its plugins know how to do it: `include` of evictableNamespaces, which `unusable` leaves to
    a warning. Whoever runs a policy day after day refuses it."""
    return [
        f"profiles[{i}], {config.name}: evictableNamespaces.include: {', '.join(said.include)}; allowed: exclude alone, as upstream has it"
        for i, profile in enumerate(policy.profiles)
        for config in profile.plugin_config
        if (said := getattr(config.args, "evictable_namespaces", None)) is not None and said.include
    ]


def _unusable(profile: Profile, path: str) -> list[str]:
    reasons: list[str] = []
    configured = {config.name for config in profile.plugin_config}
    for point in POINTS:
        allowed = _at(point)
        for word in ("enabled", "disabled"):
            said = getattr(profile.plugins.at(point), word)
            for i, name in enumerate(said):
                where = f"{path}.plugins.{point}.{word}[{i}]"
                if name not in allowed and not (word == "disabled" and name == "*"):
                    reasons.append(f"{where}: {name!r}; allowed: {', '.join(allowed) or 'no plugin has this extension point'}")
                elif name in said[:i]:
                    reasons.append(f"{where}: {name!r} is there twice; allowed: once")
                elif word == "enabled" and name not in configured:
                    reasons.append(f"{where}: {name!r} has no entry in pluginConfig; allowed: plugins that have one, be it empty")
    return reasons


def _at(point: Point) -> list[str]:
    found = sorted(name for name, plugin in PLUGINS.items() if point in plugin.POINTS)
    return sorted((EVICTOR, *found)) if point in ("filter", "preEvictionFilter") else found


def _kind(plugin: str) -> type[Args]:
    kind: type[Args] = DefaultEvictorArgs if plugin == EVICTOR else PLUGINS[plugin].Args
    return kind


def _profile(said: _Profile, path: str, reasons: list[str]) -> Profile:
    configs: list[PluginConfig] = []
    for i, config in enumerate(said.plugin_config):
        at = f"{path}.pluginConfig[{i}]"
        if config.name != EVICTOR and config.name not in PLUGINS:
            reasons.append(f"{at}.name: {config.name!r}; allowed: {', '.join(sorted((EVICTOR, *PLUGINS)))}")
            continue
        if any(config.name == other.name for other in said.plugin_config[:i]):
            reasons.append(f"{at}.name: {config.name!r} is there twice; allowed: once")
        try:
            args = _args(config, at)
        except PolicyError as error:
            reasons += error.reasons
            continue
        if refusal := args.check():
            reasons.append(f"{below(f'{at}.args', refusal)} (profile {said.name!r}, {config.name})")
        configs.append(PluginConfig(config.name, args))
    if not any(config.name == EVICTOR for config in said.plugin_config):
        configs.insert(0, PluginConfig(EVICTOR, DefaultEvictorArgs().defaulted()))
    plugins = said.plugins
    return Profile(
        said.name,
        tuple(configs),
        replace(plugins, filter=_with_evictor(plugins.filter), pre_eviction_filter=_with_evictor(plugins.pre_eviction_filter)),
    )


def _args(config: _PluginConfig, path: str) -> Args:
    """Their own apiVersion and kind say nothing that the name does not."""
    said = {k: v for k, v in (config.args or {}).items() if k not in ("apiVersion", "kind")}
    args: Args = _convert(said, _kind(config.name), f"{path}.args")
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
