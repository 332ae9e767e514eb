"""`descheduler/v1alpha2` DeschedulerPolicy: read strictly, with upstream's defaults and validation, and refused with path, value and
what is allowed.

`read` does what upstream does when it loads a policy. Whoever runs a policy asks `usable.unusable`, too (`load`).
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from restow.domain.descheduling.args import Args, Duration, Percent, Uint, below, decoded, encoded
from restow.domain.descheduling.framework import POINTS
from restow.domain.descheduling.model import (
    EVICTOR,
    PluginConfig,
    Plugins,
    PluginSet,
    Policy,
    Profile,
)
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.selection import parsed
from restow.domain.descheduling.sources import MetricsCollector, MetricsProvider, refusals
from restow.domain.descheduling.usable import unusable

API_VERSION, KIND = "descheduler/v1alpha2", "DeschedulerPolicy"
OLDER = ("descheduler/v1alpha1",)
LARGEST = 100_000
"""Values of a policy, nested ones counted."""


class PolicyError(ValueError):
    """A policy that is refused; one line a reason."""

    def __init__(self, reasons: list[str]):
        super().__init__("\n".join(reasons))
        self.reasons = reasons


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


def _profile(said: _Profile, path: str, reasons: list[str]) -> Profile:
    configs: list[PluginConfig] = []
    for i, config in enumerate(said.plugin_config):
        at = f"{path}.pluginConfig[{i}]"
        if config.name not in PLUGINS:
            reasons.append(f"{at}.name: {config.name!r}; allowed: {', '.join(sorted(PLUGINS))}")
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
        configs.insert(0, PluginConfig(EVICTOR, PLUGINS[EVICTOR].Args().defaulted()))
    plugins = said.plugins
    return Profile(
        said.name,
        tuple(configs),
        replace(plugins, filter=_with_evictor(plugins.filter), pre_eviction_filter=_with_evictor(plugins.pre_eviction_filter)),
    )


def _args(config: _PluginConfig, path: str) -> Args:
    """Their own apiVersion and kind say nothing that the name does not."""
    said = {k: v for k, v in (config.args or {}).items() if k not in ("apiVersion", "kind")}
    args: Args = _convert(said, PLUGINS[config.name].Args, f"{path}.args")
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
