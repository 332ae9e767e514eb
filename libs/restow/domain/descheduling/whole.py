"""A DeschedulerPolicy with Defragmentation in it: it is read by the rules of `policy`, and Defragmentation (extension point `balance`, in one
profile) by seed 000's. Both doors of a policy, the service and `restow descheduler run --once`, read it here."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import PolicyError
from restow.domain.descheduling.policy import read as read_upstream
from restow.domain.descheduling.run import Turn, turns
from restow.domain.descheduling.usable import unusable

PLUGIN = defragmentation.PLUGIN
POINT = "balance"
_LISTED = (", ".join(sorted(PLUGINS)), ", ".join(sorted(n for n, p in PLUGINS.items() if POINT in p.POINTS)))
"""How upstream's reader says which plugins there are."""
_INDEXED = re.compile(r"profiles\[(\d+)\]\.(pluginConfig|plugins\.balance\.enabled|plugins\.balance\.disabled)\[(\d+)\]")


class Own(msgspec.Struct, frozen=True):
    """Defragmentation, where a profile (its index) enables it; `before`: balance plugins of the profile that come first."""

    at: int
    args: DefragmentationArgs
    before: int


class Whole(msgspec.Struct, frozen=True):
    """`policy` is the rest, without Defragmentation."""

    policy: Policy
    own: Own | None

    @property
    def others(self) -> bool:
        """Whether any other plugin is enabled."""
        return runs_others(self.policy)

    def turns(self) -> Iterator[Turn]:
        own = self.own
        return turns(self.policy) if own is None else with_own(self.policy, self.policy.profiles[own.at].name, own.before)


def runs_others(policy: Policy) -> bool:
    """Whether it enables anything beside Defragmentation, which is not in it."""
    return any(profile.plugins.enabled("deschedule") or profile.plugins.enabled("balance") for profile in policy.profiles)


def with_own(policy: Policy, home: str, before: int) -> Iterator[Turn]:
    """Upstream's order, with Defragmentation after so many balance plugins of its profile."""
    passed, pending = 0, True
    at = next((i for i, profile in enumerate(policy.profiles) if profile.name == home), len(policy.profiles))
    own = Turn("balance", at, home, PLUGIN)
    for turn in turns(policy):
        if turn.point == "balance" and pending and (turn.at > at or (turn.at == at and passed >= before)):
            pending = False
            yield own
        passed += turn.point == "balance" and turn.at == at
        yield turn
    if pending:
        yield own


def load(document: Any) -> Whole:
    """Raises PolicyError with path, value and what is allowed."""
    if not isinstance(document, Mapping):
        return Whole(read_upstream(document), None)
    split = _Split(document.get("profiles"))
    try:
        policy = read_upstream({**document, "profiles": split.profiles})
        if reasons := unusable(policy):
            raise PolicyError(reasons)
    except PolicyError as error:
        raise PolicyError([split.restored(reason) for reason in error.reasons]) from None
    return Whole(policy, split.own)


class _Split:
    """The profiles without Defragmentation, as upstream's reader takes them, and Defragmentation by itself. What is no list or mapping
    where one should be is left for that reader to refuse."""

    def __init__(self, profiles: Any) -> None:
        self.own: Own | None = None
        self._kept: dict[tuple[int, str], list[int]] = {}
        self.profiles = [self._profile(i, one) for i, one in enumerate(profiles)] if isinstance(profiles, list) else profiles

    def restored(self, reason: str) -> str:
        """With the indices and the names of the whole policy."""

        def index(found: re.Match[str]) -> str:
            at, what, i = int(found[1]), found[2], int(found[3])
            kept = self._kept.get((at, what.rpartition(".")[2]), [])
            return f"profiles[{at}].{what}[{kept[i] if i < len(kept) else i}]"

        for listed in _LISTED:
            if reason.endswith(listed):
                reason = reason.removesuffix(listed) + ", ".join(sorted((*listed.split(", "), PLUGIN)))
                break
        return _INDEXED.sub(index, reason)

    def _profile(self, at: int, said: Any) -> Any:
        if not isinstance(said, Mapping):
            return said
        path, out = f"profiles[{at}]", dict(said)
        args: DefragmentationArgs | None = None
        if isinstance(entries := said.get("pluginConfig"), list):
            ours = [i for i, entry in enumerate(entries) if isinstance(entry, Mapping) and entry.get("name") == PLUGIN]
            out["pluginConfig"] = self._without(entries, ours, at, "pluginConfig", path)
            if ours:
                args = _args(entries[ours[0]], f"{path}.pluginConfig[{ours[0]}]")
        plugins: Any = said.get("plugins")
        key = next((k for k in plugins if isinstance(k, str) and k.lower() == POINT), "") if isinstance(plugins, Mapping) else ""
        if not key or not isinstance(sets := plugins[key], Mapping):
            return out
        found = dict(sets)
        for word in ("enabled", "disabled"):
            if isinstance(names := sets.get(word), list):
                ours = [i for i, name in enumerate(names) if name == PLUGIN]
                found[word] = self._without(names, ours, at, word, f"{path}.plugins.{key}")
                if ours and word == "enabled":
                    self._enable(at, args, ours[0])
        out["plugins"] = {**plugins, key: found}
        return out

    def _without(self, said: list[Any], ours: list[int], at: int, what: str, path: str) -> list[Any]:
        if len(ours) > 1:
            raise PolicyError([f"{path}.{what}[{ours[1]}]: {PLUGIN!r} is there twice; allowed: once"])
        kept = self._kept[at, what] = [i for i in range(len(said)) if i not in ours]
        return [said[i] for i in kept]

    def _enable(self, at: int, args: DefragmentationArgs | None, before: int) -> None:
        if self.own is not None:
            raise PolicyError([f"profiles[{at}]: enables {PLUGIN} again; allowed: one profile with {PLUGIN}"])
        self.own = Own(at, args if args is not None else DefragmentationArgs(), before)


def _args(entry: Mapping[str, Any], path: str) -> DefragmentationArgs:
    for key in entry:
        if key not in ("name", "args"):
            raise PolicyError([f"{path}.{key}: unknown; allowed: name, args"])
    path += ".args"
    said = entry.get("args")
    if said is not None and not isinstance(said, Mapping):
        raise PolicyError([f"{path}: {said!r}; allowed: a mapping"])
    args = {key: value for key, value in (said or {}).items() if key not in ("apiVersion", "kind")}
    if "ResourceType" in args:
        if "resourceType" in args:
            raise PolicyError([f"{path}: has ResourceType and resourceType; allowed: one of them"])
        args["resourceType"] = args.pop("ResourceType")
    try:
        read = msgspec.convert(args, DefragmentationArgs)
        defragmentation.check(read)
    except msgspec.ValidationError as error:
        raise PolicyError([_unfit(error, args, path)]) from None
    except defragmentation.ArgsError as error:
        raise PolicyError([f"{path}.{error}"]) from None
    return read


def _unfit(error: msgspec.ValidationError, said: Any, path: str) -> str:
    what, _, where = str(error).partition(" - at `$")
    for name, index in re.findall(r"\.?([^.\[\]`]+)|\[(\d+)\]", where):
        if isinstance(said, Mapping) and name in said:
            said = said[name]
        elif index and isinstance(said, list):
            said = said[int(index)]
    allowed = f"; allowed: {', '.join(DefragmentationArgs.__struct_encode_fields__)}" if "unknown field" in what and not where else ""
    return f"{path}{where.rstrip('`')}: {what}; found {repr(said)[:80]}{allowed}"
