"""Volcano's `volcano-scheduler.conf` → SessionConfig (DESIGN 6, RULES 000-5 and 002-5).

What Volcano passes over in silence is refused here, with path, value and what is allowed: names that nobody knows, the
same plugin twice, arguments that nobody reads. What may be left out has Volcano's default, and is logged as such."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from restow.domain.config import OFF_BY_DEFAULT, SWITCHES, ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.actions.args import ARGS as ACTIONS
from restow.domain.session.args import ArgsError, Arguments
from restow.domain.session.plugins import PLUGINS
from restow.domain.session.plugins.overcommit import FACTOR

HAND_OVER, ALLOCATE = "reserve", "allocate"
"""`reserve` before `allocate` hands holds over, after it serves starving jobs: told apart by position alone."""

_TOP = ("schedulerNames", "actions", "tiers", "configurations")
_TIER = ("plugins",)
_ACTION = ("name", "arguments")
_MAX_NAME = 63
_EXCLUSIVE = ("proportion", "capacity")


class ConfError(ValueError):
    """A configuration that is not allowed. Says path, value and what is allowed."""


def read_conf(said: Any) -> SessionConfig:
    """From what the YAML says (dicts, lists, scalars), None for an empty file. Raises ConfError."""
    conf = _mapping({} if said is None else said, "$")
    _known(conf, "$", _TOP)
    default = SessionConfig()
    names = _scheduler_names(conf["schedulerNames"]) if "schedulerNames" in conf else default.scheduler_names
    actions = _actions(conf["actions"]) if "actions" in conf else [(a.name, {}, "$.actions") for a in default.actions]
    tiers = _tiers(conf["tiers"] if "tiers" in conf else _said(default))
    tiers, configured = _older(tiers, _configurations(conf.get("configurations") or []))
    return SessionConfig(names, _with_arguments(actions, configured), tiers)


def hands_over(actions: Sequence[ActionConfig], index: int) -> bool:
    """Whether the `reserve` at this index is the hand-over: one that `allocate` follows (RULES 000-5)."""
    return actions[index].name == HAND_OVER and any(action.name == ALLOCATE for action in actions[index:])


_Said = tuple[str, Mapping[str, Any], str]
"""Name, arguments and path of an action."""


def _actions(said: Any) -> list[_Said]:
    """Volcano's names separated by commas, or a list of names and of objects as in seed 002's YAML."""
    if isinstance(said, str):
        read: list[_Said] = [(name.strip(), {}, "$.actions") for name in said.split(",")] if said.strip() else []
    else:
        read = [_action(one, f"$.actions[{i}]") for i, one in enumerate(_list(said, "$.actions"))]
    if not read:
        raise ConfError(f"$.actions: {said!r}; allowed: one action at least of {_names(ACTIONS)}")
    for name, _, path in read:
        if name not in ACTIONS:
            raise ConfError(f"{path}: {name!r}; allowed: {_names(ACTIONS)}")
    _check_order([name for name, _, _ in read])
    return read


def _action(said: Any, path: str) -> _Said:
    if isinstance(said, str):
        return said, {}, path
    action = _mapping(said, path)
    _known(action, path, _ACTION)
    return _name(action, path), _mapping(action.get("arguments") or {}, f"{path}.arguments"), path


def _check_order(names: list[str]) -> None:
    shown = ", ".join(names)
    for name in sorted(set(names)):
        if name != HAND_OVER and names.count(name) > 1:
            raise ConfError(f"$.actions: {shown}; allowed: {name} once")
    if HAND_OVER not in names:
        return
    if ALLOCATE not in names:
        raise ConfError(f"$.actions: {shown}; allowed: reserve together with allocate, which it stands before or after")
    at = names.index(ALLOCATE)
    if max(names[:at].count(HAND_OVER), names[at:].count(HAND_OVER)) > 1:
        raise ConfError(f"$.actions: {shown}; allowed: reserve once before allocate (hand-over) and once after it (starving jobs)")


def _configurations(said: Any) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Arguments and path by the action's name."""
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    for i, one in enumerate(_list(said, "$.configurations")):
        path = f"$.configurations[{i}]"
        entry = _mapping(one, path)
        _known(entry, path, _ACTION)
        name = _name(entry, path)
        if name not in ACTIONS:
            raise ConfError(f"{path}.name: {name!r}; allowed: {_names(ACTIONS)}")
        if name in found:
            raise ConfError(f"{path}.name: {name!r} again; allowed: each action once")
        found[name] = _mapping(entry.get("arguments") or {}, f"{path}.arguments"), path
    return found


def _with_arguments(said: list[_Said], configured: dict[str, tuple[Mapping[str, Any], str]]) -> tuple[ActionConfig, ...]:
    """Each action with its arguments, from one of the two places. Those of `reserve` are for the one after `allocate`."""
    plain = [ActionConfig(name) for name, _, _ in said]
    read, unused = [], dict(configured)
    for i, (name, arguments, path) in enumerate(said):
        if hands_over(plain, i):
            if arguments:
                raise ConfError(f"{path}.arguments: {_shown(arguments)}; allowed: none for reserve before allocate, which hands over")
            read.append(ActionConfig(name))
            continue
        if name in unused:
            if arguments:
                raise ConfError(f"{path}.arguments: set here and in {unused[name][1]}; allowed: one of them")
            arguments, path = unused.pop(name)
        read.append(ActionConfig(name, _arguments(ACTIONS[name], arguments, path)))
    hand_over = any(action.name == HAND_OVER for action in plain)
    for name, (arguments, path) in unused.items():
        if name == HAND_OVER and arguments and hand_over:
            raise ConfError(f"{path}.arguments: {_shown(arguments)}; allowed: with reserve after allocate, which serves starving jobs")
        _arguments(ACTIONS[name], arguments, path)
    return tuple(read)


def _tiers(said: Any) -> tuple[tuple[PluginConfig, ...], ...]:
    seen: dict[str, str] = {}
    tiers: list[tuple[PluginConfig, ...]] = []
    for i, one in enumerate(_list(said, "$.tiers")):
        tier = _mapping(one, f"$.tiers[{i}]")
        _known(tier, f"$.tiers[{i}]", _TIER)
        plugins = []
        for j, entry in enumerate(_list(tier.get("plugins") or [], f"$.tiers[{i}].plugins")):
            path = f"$.tiers[{i}].plugins[{j}]"
            plugin = _plugin(entry, path)
            if plugin.name in seen:
                raise ConfError(f"{path}.name: {plugin.name!r}, as in {seen[plugin.name]}; allowed: each plugin once")
            seen[plugin.name] = path
            plugins.append(plugin)
        tiers.append(tuple(plugins))
    if all(name in seen for name in _EXCLUSIVE):
        raise ConfError(f"{seen[_EXCLUSIVE[1]]}.name: {_EXCLUSIVE[1]!r}; allowed: one of {' and '.join(_EXCLUSIVE)}")
    return tuple(tiers)


def _plugin(said: Any, path: str) -> PluginConfig:
    plugin = _mapping(said, path)
    name = _name(plugin, path)
    if name not in PLUGINS:
        raise ConfError(f"{path}.name: {name!r}; allowed: {_names(PLUGINS)}")
    enabled: dict[str, bool] = {}
    for key, value in plugin.items():
        if key in _ACTION:
            continue
        switch = _switch(key)
        if switch is None:
            raise ConfError(f"{path}.{key}: unknown; allowed: name, arguments, {', '.join(SWITCHES)}")
        if switch in enabled:
            raise ConfError(f"{path}.{key}: says {switch} again; allowed: each switch once")
        if not isinstance(value, bool):
            raise ConfError(f"{path}.{key}: {value!r}; allowed: true, false")
        enabled[switch] = value
    said_otherwise = {switch: on for switch, on in enabled.items() if on != (switch not in OFF_BY_DEFAULT)}
    if why := PLUGINS[name].Args.switches_wrong(said_otherwise):
        raise ConfError(f"{path}.{why}")
    return PluginConfig(name, said_otherwise, _arguments(PLUGINS[name].Args, plugin.get("arguments") or {}, path))


_SPELLINGS = {switch.removeprefix("enable"): switch for switch in SWITCHES}


def _switch(key: Any) -> str | None:
    """Volcano spells some of its switches `enabledVictim` or `EnabledClusterOrder`."""
    if not isinstance(key, str):
        return None
    for prefix in ("enabled", "enable", "Enabled", "Enable"):
        if key.startswith(prefix) and key.removeprefix(prefix) in _SPELLINGS:
            return _SPELLINGS[key.removeprefix(prefix)]
    return None


def _older(
    tiers: tuple[tuple[PluginConfig, ...], ...], configured: dict[str, tuple[Mapping[str, Any], str]]
) -> tuple[tuple[tuple[PluginConfig, ...], ...], dict[str, tuple[Mapping[str, Any], str]]]:
    """Volcano gave `overcommit-factor` to the action enqueue before there was a plugin for it: read as the plugin's, which
    joins the last tier where it is missing."""
    arguments, path = configured.get("enqueue", ({}, ""))
    if FACTOR not in arguments:
        return tiers, configured
    factor = {FACTOR: arguments[FACTOR]}
    rest = {key: value for key, value in arguments.items() if key != FACTOR}
    plugin = PluginConfig("overcommit", {}, _arguments(PLUGINS["overcommit"].Args, factor, path))
    present = [one for tier in tiers for one in tier if one.name == plugin.name]
    if any(one.arguments != _arguments(PLUGINS["overcommit"].Args, {}, path) for one in present):
        raise ConfError(f"{path}.arguments.{FACTOR}: {arguments[FACTOR]}; allowed: in the plugin overcommit, which has arguments, too")
    if present:
        tiers = tuple(tuple(msgspec.structs.replace(plugin, enabled=one.enabled) if one in present else one for one in tier) for tier in tiers)
    else:
        tiers = (*tiers[:-1], (*(tiers[-1] if tiers else ()), plugin))
    return tiers, configured | {"enqueue": (rest, path)}


def _arguments(kind: type[Arguments], said: Any, path: str) -> dict[str, Any]:
    """Checked, typed, and with every default. Raises ConfError."""
    arguments = _mapping(said, f"{path}.arguments")
    for key in arguments:
        if not isinstance(key, str):
            raise ConfError(f"{path}.arguments: {key!r}; allowed: names")
    try:
        args = kind.read(arguments)
    except ArgsError as error:
        raise ConfError(f"{path}.arguments.{error}") from None
    if why := args.check():
        raise ConfError(f"{path}.arguments.{why}")
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(args))
    return read


def _scheduler_names(said: Any) -> tuple[str, ...]:
    path = "$.schedulerNames"
    names = _list(said, path)
    if not names:
        raise ConfError(f"{path}: []; allowed: one name at least")
    for i, name in enumerate(names):
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or name != name.strip():
            raise ConfError(f"{path}[{i}]: {_shown(name)}; allowed: the name of a scheduler, 1 to {_MAX_NAME} characters")
        if name in names[:i]:
            raise ConfError(f"{path}[{i}]: {name!r} again; allowed: each name once")
    return tuple(names)


def _said(default: SessionConfig) -> list[dict[str, Any]]:
    """The default tiers as a file would say them."""
    return [{"plugins": [{"name": plugin.name, **plugin.enabled} for plugin in tier]} for tier in default.tiers]


def _name(said: Mapping[str, Any], path: str) -> str:
    name = said.get("name")
    if not isinstance(name, str):
        raise ConfError(f"{path}.name: {_shown(name)}; allowed: a name")
    return name


def _known(said: Mapping[str, Any], path: str, allowed: tuple[str, ...]) -> None:
    for key in said:
        if key not in allowed:
            raise ConfError(f"{path}.{key}: unknown; allowed: {', '.join(allowed)}")


def _mapping(said: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise ConfError(f"{path}: {_shown(said)}; allowed: a mapping")
    return said


def _list(said: Any, path: str) -> list[Any]:
    if not isinstance(said, list):
        raise ConfError(f"{path}: {_shown(said)}; allowed: a list")
    return said


def _names(registry: Mapping[str, object]) -> str:
    return ", ".join(registry)


def _shown(said: Any) -> str:
    shown = repr(said)
    return shown if len(shown) <= 80 else shown[:77] + "..."
