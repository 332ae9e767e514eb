"""What upstream finds only when it builds a policy's profiles, and what it never minds although it cannot be meant."""

from collections.abc import Iterator

from restow.domain.descheduling.framework import POINTS, Point
from restow.domain.descheduling.model import Policy, Profile
from restow.domain.descheduling.plugins import PLUGINS, load_aware, low_node_utilization
from restow.domain.descheduling.plugins.load_aware import PROMETHEUS as PROMETHEUS_TYPE
from restow.domain.descheduling.sources import KUBERNETES, PROMETHEUS


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
    return sorted(name for name, plugin in PLUGINS.items() if point in plugin.POINTS)
