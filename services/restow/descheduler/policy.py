"""`descheduler/v1alpha2` DeschedulerPolicy → MigrationConfig. Upstream's keys, seed 000's `Defragmentation`, and a block
`restow:` for what upstream gives as flags (interval) or does not have (cron, deadlines, limits).

The service carries out Defragmentation. What else a policy may ask for is read by the rules of `restow descheduler run`
(`domain/descheduling/policy.py`) and then refused, for nothing is worse than a rule that is passed over in silence.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from restow.domain import defragmentation
from restow.domain.config import Config, DefragmentationArgs, MigrationConfig
from restow.domain.descheduling.evictor.args import DefaultEvictorArgs
from restow.domain.descheduling.framework import POINTS
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import API_VERSION, EVICTOR, KIND, PolicyError
from restow.domain.descheduling.policy import read as read_upstream
from restow.domain.migration import check
from restow.runtime.config_source import BadConfig, convert, with_durations

PLUGIN = "Defragmentation"
DURATIONS = ("interval", "holdDeadline", "evictDeadline", "landDeadline", "budgetPatience")
ELSEWHERE = "the service carries out Defragmentation alone; run other plugins with `restow descheduler run --once --policy FILE`"
_TOTAL = "maxNoOfPodsToEvictTotal"
_IN_VAIN = {
    "nodeSelector": "the service plans for all nodes",
    "maxNoOfPodsToEvictPerNode": "restow.perNode bounds how many of a node are under way at once",
    "maxNoOfPodsToEvictPerNamespace": "restow.perNamespace bounds how many of a namespace are under way at once",
    "gracePeriodSeconds": "pods have their own grace period when they are moved",
}
"""Upstream's keys that would change what is evicted, and that the service does not follow: what to do instead."""
_NO_MATTER = ("evictionFailureEventNotification", "metricsCollector", "metricsProviders")
"""Keys that change nothing of what Defragmentation does."""
_TOP = ("apiVersion", "kind", "profiles", _TOTAL, *_IN_VAIN, *_NO_MATTER, "restow")
_PROFILE = ("name", "pluginConfig", "plugins")
_POINTS = {point.lower(): point for point in POINTS}
NOT_HERE = ("defragmentation", "profile", "policy", "grace", "defragmentAt")
"""Keys of the configuration that follow from the rest of the policy."""


def read(said: Any) -> Config:
    """Raises BadConfig with path, value and what is allowed."""
    policy = _mapping(said, "$")
    for key, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
        if policy.get(key) != allowed:
            raise BadConfig(f"$.{key}: {policy.get(key)!r}; allowed: {allowed}")
    _known(policy, "$", _TOP)
    _upstream({key: policy[key] for key in (_TOTAL, *_IN_VAIN, *_NO_MATTER) if key in policy})
    for key, instead in _IN_VAIN.items():
        if policy.get(key) is not None:
            raise BadConfig(f"$.{key}: {policy[key]!r}; allowed: nothing, for {instead}; {ELSEWHERE}")
    name, args = _defragmentation(policy.get("profiles") or [])
    own = with_durations(policy.get("restow") or {}, DURATIONS, "$.restow")
    for key in NOT_HERE:
        if key in own:
            raise BadConfig(f"$.restow.{key}: set; allowed: what is said outside restow, such as profiles[] with {PLUGIN} in pluginConfig")
    config = replace(convert(MigrationConfig, own, "$.restow"), defragmentation=args, profile=name)
    config = _limited(config, policy.get(_TOTAL))
    try:
        check(config)
    except ValueError as error:
        raise BadConfig(f"$: {error}") from None
    return config


def _limited(config: MigrationConfig, total: int | None) -> MigrationConfig:
    """Upstream's limit of a cycle is ours of a plan. None at all are allowed only where nothing is planned."""
    if total is None:
        return config
    if total == 0 and config.defragmentation is not None:
        raise BadConfig(f"$.{_TOTAL}: 0; allowed: 1 or more with {PLUGIN}, which is disabled by leaving it out")
    return replace(config, max_moves=min(config.max_moves, max(total, 1)))


def _upstream(said: Mapping[str, Any], path: str = "$") -> None:
    """By upstream's own rules. Raises BadConfig."""
    try:
        read_upstream({"apiVersion": API_VERSION, "kind": KIND, **said})
    except PolicyError as error:
        raise BadConfig("\n".join(f"{path}.{reason}" for reason in error.reasons)) from None


def _defragmentation(profiles: Any) -> tuple[str, DefragmentationArgs | None]:
    """Name and arguments of the profile that enables the plugin."""
    found: tuple[str, DefragmentationArgs | None] = "", None
    names: set[str] = set()
    for i, one in enumerate(_list(profiles, "$.profiles")):
        path = f"$.profiles[{i}]"
        profile = _mapping(one, path)
        _known(profile, path, _PROFILE)
        name = profile.get("name") or ""
        if not isinstance(name, str):
            raise BadConfig(f"{path}.name: {name!r}; allowed: a string")
        if name in names:
            raise BadConfig(f"{path}.name: {name!r} is there twice; allowed: names that tell profiles apart")
        names.add(name)
        args = _plugin_args(profile.get("pluginConfig") or [], f"{path}.pluginConfig")
        if _enabled(profile.get("plugins") or {}, f"{path}.plugins"):
            if found[1] is not None:
                raise BadConfig(f"{path}: enables {PLUGIN} again; allowed: one profile with {PLUGIN}")
            found = name, args if args is not None else DefragmentationArgs()
    return found


def _plugin_args(entries: Any, path: str) -> DefragmentationArgs | None:
    found: DefragmentationArgs | None = None
    seen: set[Any] = set()
    for i, one in enumerate(_list(entries, path)):
        at = f"{path}[{i}]"
        entry = _mapping(one, at)
        name = entry.get("name")
        if name != PLUGIN and name != EVICTOR and name not in PLUGINS:
            raise BadConfig(f"{at}.name: {name!r}; allowed: {PLUGIN}, {EVICTOR}, {', '.join(sorted(PLUGINS))}")
        if name in seen:
            raise BadConfig(f"{at}.name: {name!r} is there twice; allowed: once")
        seen.add(name)
        if name != PLUGIN:
            _other(entry, at)
        else:
            _known(entry, at, ("name", "args"))
            found = _args(dict(_mapping(entry.get("args") or {}, f"{at}.args")), f"{at}.args")
    return found


def _other(entry: Mapping[str, Any], path: str) -> None:
    """Another plugin's arguments: they must make sense, and those of the evictor must be the defaults."""
    try:
        policy = read_upstream({"apiVersion": API_VERSION, "kind": KIND, "profiles": [{"pluginConfig": [entry]}]})
    except PolicyError as error:
        raise BadConfig("\n".join(reason.replace("profiles[0].pluginConfig[0]", path) for reason in error.reasons)) from None
    if entry["name"] != EVICTOR:
        return
    # That a pod fits elsewhere is what its hold promises.
    args = replace(policy.profiles[0].evictor_args, node_fit=False)
    if args != replace(DefaultEvictorArgs().defaulted(), node_fit=False):
        raise BadConfig(
            f"{path}.args: other than the defaults; allowed: nodeFit alone, for {PLUGIN} has rules of its own about who may move "
            f"(evictableNamespaces, labelSelector); {ELSEWHERE}"
        )


def _args(args: dict[str, Any], path: str) -> DefragmentationArgs:
    for key in ("apiVersion", "kind"):
        args.pop(key, None)
    if "ResourceType" in args:
        if "resourceType" in args:
            raise BadConfig(f"{path}: has ResourceType and resourceType; allowed: one of them")
        args["resourceType"] = args.pop("ResourceType")
    read = convert(DefragmentationArgs, args, path)
    try:
        defragmentation.check(read)
    except defragmentation.ArgsError as error:
        raise BadConfig(f"{path}.{error}") from None
    return read


def _enabled(plugins: Any, path: str) -> bool:
    """Whether the plugin is enabled at its extension point (balance). Raises BadConfig for any other plugin."""
    enabled = False
    for said, lists in _mapping(plugins, path).items():
        point = _POINTS.get(str(said).lower())
        if point is None:
            raise BadConfig(f"{path}.{said}: set; allowed: {', '.join(POINTS)}")
        sets = _mapping(lists or {}, f"{path}.{said}")
        _known(sets, f"{path}.{said}", ("enabled", "disabled"))
        for i, name in enumerate(_list(sets.get("enabled") or [], f"{path}.{said}.enabled")):
            enabled |= _is_ours(name, point, f"{path}.{said}.enabled[{i}]")
        for i, name in enumerate(_list(sets.get("disabled") or [], f"{path}.{said}.disabled")):
            if name not in ("*", PLUGIN, EVICTOR) and name not in PLUGINS:
                raise BadConfig(f"{path}.{said}.disabled[{i}]: {name!r}; allowed: *, {PLUGIN}, {EVICTOR}, {', '.join(sorted(PLUGINS))}")
    return enabled


def _is_ours(name: Any, point: str, path: str) -> bool:
    if name == PLUGIN and point == "balance":
        return True
    if name == EVICTOR and point in ("filter", "preEvictionFilter"):
        return False
    more = f"; {ELSEWHERE}" if name in PLUGINS else ""
    raise BadConfig(f"{path}: {name!r}; allowed: {PLUGIN} under balance{more}")


def _known(said: Mapping[str, Any], path: str, allowed: tuple[str, ...]) -> None:
    for key in said:
        if key not in allowed:
            raise BadConfig(f"{path}.{key}: unknown; allowed: {', '.join(allowed)}")


def _mapping(said: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise BadConfig(f"{path}: {said!r}; allowed: a mapping")
    return said


def _list(said: Any, path: str) -> list[Any]:
    if not isinstance(said, list):
        raise BadConfig(f"{path}: {said!r}; allowed: a list")
    return said
