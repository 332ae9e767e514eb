"""`descheduler/v1alpha2` DeschedulerPolicy → MigrationConfig. Upstream's keys, seed 000's `Defragmentation`, and a block
`restow:` for what upstream gives as flags (interval) or does not have (cron, deadlines, limits)."""

from collections.abc import Mapping
from typing import Any

from restow.domain.config import Config, DefragmentationArgs, MigrationConfig
from restow.runtime.config_source import BadConfig, convert, with_durations

API_VERSION = "descheduler/v1alpha2"
KIND = "DeschedulerPolicy"
PLUGIN = "Defragmentation"
DURATIONS = ("interval", "holdDeadline", "evictDeadline", "landDeadline")
_TOP = ("apiVersion", "kind", "profiles", "restow")
_PROFILE = ("name", "pluginConfig", "plugins")


def read(said: Any) -> Config:
    """Raises BadConfig with path, value and what is allowed."""
    policy = _mapping(said, "$")
    for key, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
        if policy.get(key) != allowed:
            raise BadConfig(f"$.{key}: {policy.get(key)!r}; allowed: {allowed}")
    _known(policy, "$", _TOP)
    args = _defragmentation(policy.get("profiles") or [])
    own = with_durations(policy.get("restow") or {}, DURATIONS, "$.restow")
    if "defragmentation" in own:
        raise BadConfig("$.restow.defragmentation: set; allowed: profiles[].pluginConfig with name Defragmentation")
    rest = convert(MigrationConfig, own, "$.restow")
    return MigrationConfig(
        **{name: getattr(rest, name) for name in rest.__struct_fields__ if name != "defragmentation"}, defragmentation=args
    )


def _defragmentation(profiles: Any) -> DefragmentationArgs | None:
    """The arguments where some profile enables the plugin."""
    found: DefragmentationArgs | None = None
    for i, one in enumerate(_list(profiles, "$.profiles")):
        path = f"$.profiles[{i}]"
        profile = _mapping(one, path)
        _known(profile, path, _PROFILE)
        args = _plugin_args(profile.get("pluginConfig") or [], f"{path}.pluginConfig")
        if _enabled(profile.get("plugins") or {}, f"{path}.plugins"):
            if found is not None:
                raise BadConfig(f"{path}: enables {PLUGIN} again; allowed: one profile with {PLUGIN}")
            found = args if args is not None else DefragmentationArgs()
    return found


def _plugin_args(entries: Any, path: str) -> DefragmentationArgs | None:
    for i, one in enumerate(_list(entries, path)):
        entry = _mapping(one, f"{path}[{i}]")
        if entry.get("name") != PLUGIN:
            raise BadConfig(f"{path}[{i}].name: {entry.get('name')!r}; allowed: {PLUGIN}")
        args = dict(_mapping(entry.get("args") or {}, f"{path}[{i}].args"))
        for key in ("apiVersion", "kind"):
            args.pop(key, None)
        if "ResourceType" in args:
            if "resourceType" in args:
                raise BadConfig(f"{path}[{i}].args: has ResourceType and resourceType; allowed: one of them")
            args["resourceType"] = args.pop("ResourceType")
        return _bounded(convert(DefragmentationArgs, args, f"{path}[{i}].args"), f"{path}[{i}].args")
    return None


def _bounded(args: DefragmentationArgs, path: str) -> DefragmentationArgs:
    for name in ("protectionThresholds", "defragmentThresholds", "lowThresholds"):
        for resource, percent in getattr(args, name).items():
            if not 0 <= percent <= 100:
                raise BadConfig(f"{path}.{name}.{resource}: {percent}; allowed: 0 to 100 (percent)")
        if args.resourceType not in getattr(args, name):
            raise BadConfig(f"{path}.{name}: {getattr(args, name)!r}; allowed: a percentage for {args.resourceType}")
    for name in ("numberOfNodes", "coolDownTime"):
        if getattr(args, name) < 0:
            raise BadConfig(f"{path}.{name}: {getattr(args, name)}; allowed: 0 or more")
    low, protected = args.lowThresholds[args.resourceType], args.protectionThresholds[args.resourceType]
    if low > protected:
        raise BadConfig(f"{path}.lowThresholds.{args.resourceType}: {low}; allowed: up to protectionThresholds ({protected})")
    both = args.evictableNamespaces
    if both is not None and both.include and both.exclude:
        raise BadConfig(f"{path}.evictableNamespaces: has include and exclude; allowed: one of them")
    return args


def _enabled(plugins: Any, path: str) -> bool:
    """Whether the plugin is enabled at its extension point (balance), or everywhere by `*`-less upstream lists."""
    enabled = False
    for point, lists in _mapping(plugins, path).items():
        if point not in ("balance", "deschedule"):
            raise BadConfig(f"{path}.{point}: set; allowed: balance, deschedule")
        sets = _mapping(lists, f"{path}.{point}")
        _known(sets, f"{path}.{point}", ("enabled", "disabled"))
        for name in _list(sets.get("enabled") or [], f"{path}.{point}.enabled"):
            if name != PLUGIN or point != "balance":
                raise BadConfig(f"{path}.{point}.enabled: {name!r}; allowed: {PLUGIN} under balance")
            enabled = True
    return enabled


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
