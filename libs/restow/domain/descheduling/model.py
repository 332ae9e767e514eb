"""A DeschedulerPolicy as it was read: its profiles with all their plugins' arguments, its limits, and what it wants measured."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from restow.contracts.values import LabelSelector
from restow.domain.config import DefragmentationArgs
from restow.domain.descheduling import default_evictor
from restow.domain.descheduling.default_evictor import Args as DefaultEvictorArgs
from restow.domain.descheduling.framework import Point, Turn
from restow.domain.descheduling.plugins import PLUGINS, defragmentation, load_aware
from restow.domain.descheduling.plugins.load_aware import PROMETHEUS as PROMETHEUS_TYPE
from restow.domain.descheduling.plugins.load_aware import Args as LoadAware
from restow.domain.descheduling.sources import (
    KUBERNETES,
    PROMETHEUS,
    MetricsCollector,
    MetricsProvider,
    Prometheus,
)
from restow.domain.policy_args import Args

EVICTOR, DEFRAGMENTATION = default_evictor.NAME, defragmentation.NAME


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

    def plugin_set(self, point: Point) -> PluginSet:
        found: PluginSet = getattr(self, "pre_eviction_filter" if point == "preEvictionFilter" else point)
        return found

    def enabled(self, point: Point) -> tuple[str, ...]:
        return self.plugin_set(point).enabled


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


    def removing(self, plugin: str) -> "Profile":
        """Of a plugin of `balance`."""
        said = self.plugins.balance
        enabled, disabled = (tuple(name for name in names if name != plugin) for names in (said.enabled, said.disabled))
        configs = tuple(config for config in self.plugin_config if config.name != plugin)
        return replace(self, plugin_config=configs, plugins=replace(self.plugins, balance=PluginSet(enabled=enabled, disabled=disabled)))

    def balancing(self, config: PluginConfig, before: int) -> "Profile":
        """With one more plugin of `balance`, after so many of them."""
        enabled = self.plugins.balance.enabled
        balance = replace(self.plugins.balance, enabled=(*enabled[:before], config.name, *enabled[before:]))
        return replace(self, plugin_config=(*self.plugin_config, config), plugins=replace(self.plugins, balance=balance))


class Own(msgspec.Struct, frozen=True):
    """Defragmentation, where a profile (its index) enables it; `before`: balance plugins of the profile that come first. `warning`: what
    is wrong with how its arguments are written, empty for nothing."""

    at: int
    args: DefragmentationArgs
    before: int
    warning: str = ""


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

    def turns(self) -> Iterator[Turn]:
        """In upstream's order: what all profiles deschedule, then what all balance."""
        points: tuple[Point, ...] = ("deschedule", "balance")
        for point in points:
            for at, profile in enumerate(self.profiles):
                for plugin in profile.plugins.enabled(point):
                    yield Turn(point, at, profile.name, plugin)

    @property
    def own(self) -> Own | None:
        for at, profile in enumerate(self.profiles):
            if DEFRAGMENTATION in (enabled := profile.plugins.balance.enabled):
                args = profile.args(DEFRAGMENTATION)
                assert isinstance(args, defragmentation.Args)
                return Own(at, args.said, enabled.index(DEFRAGMENTATION), args.warning)
        return None

    @property
    def upstream(self) -> "Policy":
        """Without Defragmentation."""
        return replace(self, profiles=tuple(profile.removing(DEFRAGMENTATION) for profile in self.profiles))

    def defragmenting(self, home: str, args: DefragmentationArgs, before: int) -> "Policy":
        """With Defragmentation in the profile of this name, after so many of its balance plugins; in one of its own, which keeps nobody, where there is none."""
        config = PluginConfig(DEFRAGMENTATION, defragmentation.Args(said=args))
        at = next((i for i, profile in enumerate(self.profiles) if profile.name == home), len(self.profiles))
        profiles = self.profiles if at < len(self.profiles) else (*self.profiles, Profile(home, (), Plugins()))
        return replace(self, profiles=(*profiles[:at], profiles[at].balancing(config, before), *profiles[at + 1 :]))

    @property
    def runs_others(self) -> bool:
        """Whether any plugin is enabled beside Defragmentation."""
        return any(turn.plugin != DEFRAGMENTATION for turn in self.turns())

    def bound(self, bound: int, taken: int = 0) -> int:
        """Moves that a plan may have, after so many evictions of the same run."""
        total = self.max_no_of_pods_to_evict_total
        return bound if total is None else min(bound, max(total - taken, 0))

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
