"""A DeschedulerPolicy as it was read: its profiles with all their plugins' arguments, its limits, and what it wants measured."""

import msgspec

from restow.contracts.values import LabelSelector
from restow.domain.descheduling import default_evictor
from restow.domain.descheduling.args import Args
from restow.domain.descheduling.default_evictor import Args as DefaultEvictorArgs
from restow.domain.descheduling.framework import Point
from restow.domain.descheduling.plugins import PLUGINS, load_aware
from restow.domain.descheduling.plugins.load_aware import PROMETHEUS as PROMETHEUS_TYPE
from restow.domain.descheduling.plugins.load_aware import Args as LoadAware
from restow.domain.descheduling.sources import (
    KUBERNETES,
    PROMETHEUS,
    MetricsCollector,
    MetricsProvider,
    Prometheus,
)

EVICTOR = default_evictor.NAME


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
        found: Args = PLUGINS[plugin].Args().defaulted()
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
