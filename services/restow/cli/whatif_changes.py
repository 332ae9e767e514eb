"""What `restow whatif` is to make different: its options, and a file with a grid of settings."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import UNUSABLE, Failure

if TYPE_CHECKING:
    from restow.domain.config import Config
    from restow.replay.whatif.answer import Change
    from restow.replay.whatif.sweep import Setting

AS_IT_IS = "none"
"""In a grid: no nodes more, without nobody."""
MOST = 500
"""Runs of one grid."""
_KEYS = ("policy", "schedulerConfig", "nodes", "without", "restow", "plugins")

Read = Callable[[Any], "Config"]
Set = tuple[str, str, Any]
"""A plugin, or `restow`; its argument; the value."""


class Axis:
    """One thing that is varied: what it is called, and (what it is called, value) of each."""

    def __init__(self, name: str, values: list[tuple[str, Any]], key: str, plugin: str = "", argument: str = "") -> None:
        self.name, self.values, self.key, self.plugin, self.argument = name, values, key, plugin, argument


def change_of(policy: str | None, scheduler: str | None, nodes: tuple[str, ...], without: tuple[str, ...], sets: tuple[Set, ...] = ()) -> Change:
    """Raises Failure, BadParameter."""
    from restow.replay.whatif.answer import Change
    from restow.runtime import policy_file, scheduler_conf

    left = list(sets)
    change = Change(_text(policy, policy_file.read, left, _into_policy), _text(scheduler, scheduler_conf.read, left, _into_scheduler), tuple(map(_more, nodes)), without)
    for plugin, argument, _ in left:
        where = "the block `restow` of the policy: name it with --policy" if plugin == "restow" else "a plugin that --policy or --scheduler-config names"
        raise Failure(f"{plugin}.{argument}: nothing to set it in; allowed: {where}", UNUSABLE)
    return change


def policy_text(file: str) -> str:
    """A DeschedulerPolicy as the descheduler would log it. Raises Failure."""
    from restow.runtime import policy_file

    return _text(file, policy_file.read, [], _into_policy)


def _text(file: str | None, read: Read, sets: list[Set], into: Callable[[Any, Set], bool]) -> str:
    """As the service would log it, with what of `sets` belongs into it, which is taken from there; empty where no file is named. Raises Failure."""
    from restow.domain.config import text_of
    from restow.runtime.config_source import BadConfig, read_file

    if file is None:
        return ""

    def with_sets(said: Any) -> Config:
        said = copy.deepcopy(said)
        sets[:] = [one for one in sets if not into(said, one)]
        return read(said)

    try:
        return text_of(read_file(file, with_sets))
    except BadConfig as error:
        raise Failure(str(error), UNUSABLE) from None


def _into_policy(said: Any, one: Set) -> bool:
    plugin, argument, value = one
    if not isinstance(said, dict):
        return False
    if plugin == "restow":
        said["restow"] = (said.get("restow") or {}) | {argument: value}
        return True
    found = [entry for profile in _list(said, "profiles") for entry in _list(profile, "pluginConfig") if isinstance(entry, dict) and entry.get("name") == plugin]
    for entry in found:
        entry["args"] = (entry.get("args") or {}) | {argument: value}
    return bool(found)


def _into_scheduler(said: Any, one: Set) -> bool:
    plugin, argument, value = one
    found = [entry for tier in _list(said, "tiers") for entry in _list(tier, "plugins") if isinstance(entry, dict) and entry.get("name") == plugin]
    for entry in found:
        entry["arguments"] = (entry.get("arguments") or {}) | {argument: value}
    return bool(found)


def _list(said: Any, key: str) -> list[Any]:
    """What is none is refused by who reads the file."""
    found = said.get(key) if isinstance(said, dict) else None
    return found if isinstance(found, list) else []


def _more(said: str) -> tuple[int, str]:
    """`+8:h100`. Raises BadParameter."""
    match = re.fullmatch(r"([+-]\d{1,6}):(.+)", said, re.ASCII)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{said!r}; allowed: +8:CLASS or -8:CLASS", param_hint="--nodes")
    return int(match[1]), match[2]


def grid(file: str, policy: str | None, scheduler: str | None, nodes: tuple[str, ...], without: tuple[str, ...]) -> list[Setting]:
    """Every combination of what the file lists, each with the options. Raises Failure with the file's path."""
    from restow.replay.whatif.sweep import Setting

    axes = _axes(file)
    for key, option, given in (("policy", "--policy", policy), ("schedulerConfig", "--scheduler-config", scheduler)):
        if given and any(axis.key == key for axis in axes):
            raise Failure(f"{file}: {key}: given, and {option} too; allowed: one of them", UNUSABLE)
    found = []
    for chosen in itertools.product(*(axis.values for axis in axes)):
        at: dict[str, Any] = {"policy": policy, "schedulerConfig": scheduler, "nodes": nodes, "without": without}
        sets = []
        for axis, (_, value) in zip(axes, chosen, strict=True):
            if axis.plugin:
                sets.append((axis.plugin, axis.argument, value))
            else:
                at[axis.key] = at[axis.key] + value if axis.key in ("nodes", "without") else value
        name = {axis.name: said for axis, (said, _) in zip(axes, chosen, strict=True)}
        try:
            found.append(Setting(name, change_of(at["policy"], at["schedulerConfig"], at["nodes"], at["without"], tuple(sets))))
        except (Failure, click.BadParameter) as error:
            said = ", ".join(f"{key}: {value}" for key, value in name.items())
            raise Failure(f"{file}: with {said}: {error.message}", UNUSABLE) from None
    return found


def _axes(file: str) -> list[Axis]:
    from restow.runtime.config_source import BadConfig, read_file

    axes: list[Axis] = []

    def read(said: Any) -> Any:
        axes.extend(_read_axes(said))

    try:
        read_file(file, read)
    except BadConfig as error:
        raise Failure(str(error), UNUSABLE) from None
    runs = 1
    for axis in axes:
        runs *= len(axis.values)
    if not axes or runs > MOST:
        raise Failure(f"{file}: {runs if axes else 'no'} combinations; allowed: 1 to {MOST}", UNUSABLE)
    return axes


def _read_axes(said: Any) -> Iterator[Axis]:
    """Raises BadConfig with the path."""
    for key, value in _mapping(said, "$").items():
        if key not in _KEYS:
            raise _bad(f"$.{key}: unknown; allowed: {', '.join(_KEYS)}")
        if key in ("policy", "schedulerConfig"):
            yield Axis(key, [(one, one) for one in _texts(value, f"$.{key}")], key)
        elif key in ("nodes", "without"):
            yield Axis(key, [_several(one, f"$.{key}") for one in _values(value, f"$.{key}")], key)
        elif key == "restow":
            yield from _arguments(value, "restow", "$.restow")
        else:
            for plugin, arguments in _mapping(value, "$.plugins").items():
                yield from _arguments(arguments, str(plugin), f"$.plugins.{plugin}")


def _arguments(said: Any, plugin: str, path: str) -> Iterator[Axis]:
    for argument, values in _mapping(said, path).items():
        yield Axis(f"{plugin} {argument}", [(_shown(one), one) for one in _values(values, f"{path}.{argument}")], "", plugin, str(argument))


def _several(said: Any, path: str) -> tuple[str, tuple[str, ...]]:
    """`none`, one, or some of them at once."""
    if said == AS_IT_IS:
        return AS_IT_IS, ()
    texts = _texts(said, path) if isinstance(said, list) else _texts([said], path)
    return " ".join(texts), tuple(texts)


def _texts(said: Any, path: str) -> list[str]:
    for one in _values(said, path):
        if not isinstance(one, str):
            raise _bad(f"{path}: {one!r}; allowed: text")
    return said  # type: ignore[no-any-return]


def _values(said: Any, path: str) -> list[Any]:
    if not isinstance(said, list) or not said:
        raise _bad(f"{path}: {said!r}; allowed: a list of what is to be tried")
    return said


def _mapping(said: Any, path: str) -> Mapping[Any, Any]:
    if not isinstance(said, Mapping):
        raise _bad(f"{path}: {said!r}; allowed: a mapping")
    return said


def _bad(text: str) -> Exception:
    from restow.runtime.config_source import BadConfig

    return BadConfig(text)


def _shown(value: Any) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
