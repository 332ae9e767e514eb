"""`descheduler/v1alpha2` DeschedulerPolicy → MigrationConfig. Upstream's keys and plugins, seed 000's `Defragmentation`, and a block
`restow:` for what upstream gives as flags (interval) or does not have (cron, deadlines, limits).

All but Defragmentation is read by the rules of `restow descheduler run` (`domain/descheduling/policy.py`). What the service would not
follow is refused, for nothing is worse than a rule that is passed over in silence.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from restow.domain import defragmentation
from restow.domain.config import Config, DefragmentationArgs, MigrationConfig
from restow.domain.descheduling.evictor.args import DefaultEvictorArgs
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import (
    API_VERSION,
    EVICTOR,
    KIND,
    Policy,
    PolicyError,
    unusable,
    written,
)
from restow.domain.descheduling.policy import read as read_upstream
from restow.domain.migration import check
from restow.runtime.config_source import BadConfig, convert, with_durations

PLUGIN = "Defragmentation"
POINT = "balance"
DURATIONS = ("interval", "holdDeadline", "evictDeadline", "landDeadline", "budgetPatience", "abortDeadline")
_TOTAL = "maxNoOfPodsToEvictTotal"
_NOT_WITH_IT = {
    "nodeSelector": "it plans for all nodes",
    "maxNoOfPodsToEvictPerNode": "restow.perNode bounds how many of a node are under way at once",
    "maxNoOfPodsToEvictPerNamespace": "restow.perNamespace bounds how many of a namespace are under way at once",
}
"""Upstream's keys that Defragmentation does not follow: what to do instead."""
_TOP = (
    "apiVersion", "kind", "profiles", _TOTAL, *_NOT_WITH_IT, "gracePeriodSeconds", "evictionFailureEventNotification", "metricsCollector",
    "metricsProviders", "restow",
)  # fmt: skip
NOT_HERE = ("defragmentation", "profile", "policy", "grace", "defragmentAt")
"""Keys of the configuration that follow from the rest of the policy."""
_LISTED = (", ".join(sorted((EVICTOR, *PLUGINS))), ", ".join(sorted(n for n, p in PLUGINS.items() if POINT in p.POINTS)))
"""How upstream's reader says which plugins there are."""
_INDEXED = re.compile(r"profiles\[(\d+)\]\.(pluginConfig|plugins\.balance\.enabled|plugins\.balance\.disabled)\[(\d+)\]")


class _Own(msgspec.Struct, frozen=True):
    """Defragmentation, where a profile (its index) enables it; `before`: balance plugins of the profile that come first."""

    at: int
    args: DefragmentationArgs
    before: int


def read(said: Any) -> Config:
    """Raises BadConfig with path, value and what is allowed."""
    document = _mapping(said, "$")
    for key, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != allowed:
            raise BadConfig(f"$.{key}: {document.get(key)!r}; allowed: {allowed}")
    _known(document, "$", _TOP)
    split = _Split(document.get("profiles"))
    policy = _upstream({k: v for k, v in document.items() if k != "restow"} | {"profiles": split.profiles}, split)
    own = with_durations(document.get("restow") or {}, DURATIONS, "$.restow")
    for key in NOT_HERE:
        if key in own:
            raise BadConfig(f"$.restow.{key}: set; allowed: profiles[], with {PLUGIN} and other plugins in pluginConfig")
    config = replace(convert(MigrationConfig, own, "$.restow"), grace=policy.grace_period_seconds)
    if any(profile.plugins.enabled("deschedule") or profile.plugins.enabled("balance") for profile in policy.profiles):
        config = replace(config, policy=written(policy))
    if (ours := split.own) is not None:
        _alone(document, policy, ours)
        config = replace(config, defragmentation=ours.args, profile=policy.profiles[ours.at].name)
        if config.policy:
            config = replace(config, defragment_at=ours.before)
    config = _limited(config, policy.max_no_of_pods_to_evict_total)
    try:
        check(config)
    except ValueError as error:
        raise BadConfig(f"$: {error}") from None
    return config


def _limited(config: MigrationConfig, total: int | None) -> MigrationConfig:
    """Upstream's limit of a cycle is ours of a plan. None at all are allowed only where Defragmentation plans nothing."""
    if total is None:
        return config
    if total == 0 and config.defragmentation is not None:
        raise BadConfig(f"$.{_TOTAL}: 0; allowed: 1 or more with {PLUGIN}, which is disabled by leaving it out")
    return replace(config, max_moves=min(config.max_moves, max(total, 1)))


def _upstream(document: Mapping[str, Any], split: "_Split") -> Policy:
    """By upstream's own rules. Raises BadConfig."""
    try:
        policy = read_upstream(document)
    except PolicyError as error:
        raise BadConfig("\n".join(f"$.{split.restored(reason)}" for reason in error.reasons)) from None
    reasons = unusable(policy) if policy.profiles else []
    if reasons:
        raise BadConfig("\n".join(f"$.{split.restored(reason)}" for reason in reasons))
    return policy


def _alone(document: Mapping[str, Any], policy: Policy, own: _Own) -> None:
    """What does not go together with Defragmentation. Raises BadConfig."""
    for key, instead in _NOT_WITH_IT.items():
        if document.get(key) not in (None, ""):
            raise BadConfig(f"$.{key}: {document[key]!r}; allowed: nothing with {PLUGIN}, for {instead}")
    # That a pod fits elsewhere is what its hold promises.
    args = replace(policy.profiles[own.at].evictor_args, node_fit=False)
    if args != replace(DefaultEvictorArgs().defaulted(), node_fit=False):
        raise BadConfig(
            f"$.profiles[{own.at}]: enables {PLUGIN} and gives {EVICTOR} other arguments than the defaults; allowed: nodeFit alone, for {PLUGIN} "
            f"has rules of its own about who may move (evictableNamespaces, labelSelector); it can have a profile of its own"
        )


class _Split:
    """The profiles without Defragmentation, as upstream's reader takes them, and Defragmentation by itself. What is no list or mapping
    where one should be is left for that reader to refuse."""

    def __init__(self, profiles: Any) -> None:
        self.own: _Own | None = None
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
        path, out = f"$.profiles[{at}]", dict(said)
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
            raise BadConfig(f"{path}.{what}[{ours[1]}]: {PLUGIN!r} is there twice; allowed: once")
        kept = self._kept[at, what] = [i for i in range(len(said)) if i not in ours]
        return [said[i] for i in kept]

    def _enable(self, at: int, args: DefragmentationArgs | None, before: int) -> None:
        if self.own is not None:
            raise BadConfig(f"$.profiles[{at}]: enables {PLUGIN} again; allowed: one profile with {PLUGIN}")
        self.own = _Own(at, args if args is not None else DefragmentationArgs(), before)


def _args(entry: Mapping[str, Any], path: str) -> DefragmentationArgs:
    _known(entry, path, ("name", "args"))
    path += ".args"
    args = dict(_mapping(entry.get("args") or {}, path))
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


def _known(said: Mapping[str, Any], path: str, allowed: tuple[str, ...]) -> None:
    for key in said:
        if key not in allowed:
            raise BadConfig(f"{path}.{key}: unknown; allowed: {', '.join(allowed)}")


def _mapping(said: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise BadConfig(f"{path}: {said!r}; allowed: a mapping")
    return said
