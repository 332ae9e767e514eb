"""`descheduler/v1alpha2` DeschedulerPolicy → MigrationConfig. Upstream's keys, seed 000's `Defragmentation`, and a block
`restow:` for what upstream gives as flags (interval) or does not have (cron, deadlines, limits)."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from restow.domain import defragmentation
from restow.domain.config import Config, DefragmentationArgs, MigrationConfig
from restow.domain.migration import check
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
    config = replace(rest, defragmentation=args)
    try:
        check(config)
    except ValueError as error:
        raise BadConfig(f"$: {error}") from None
    return config


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
        read = convert(DefragmentationArgs, args, f"{path}[{i}].args")
        try:
            defragmentation.check(read)
        except defragmentation.ArgsError as error:
            raise BadConfig(f"{path}[{i}].args.{error}") from None
        return read
    return None


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
