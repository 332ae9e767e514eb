"""Hooks of a workload: who is asked before its pod is moved, and told after it, and what a workload says of itself in annotations.

A hook is a *way* to reach the workload: `annotation` (Restow writes on the pod, the workload answers on the pod), `:8080/path` (HTTP to the
pod's own address), or a URL. An annotation, which whoever makes pods can write, names the first two; a URL is named by the policy alone.
"""

import re
from typing import NamedTuple

from restow.contracts.events import PodObserved
from restow.contracts.ids import MigrationId, Millis
from restow.contracts.times import stamped
from restow.domain.config import HookConfig, Selector
from restow.domain.duration import DurationError, format_milliseconds, milliseconds
from restow.domain.policy_args import LabelSelector, Requirement
from restow.domain.selectors import selects
from restow.domain.state import ClusterState
from restow.domain.verdicts import BAD_HOOK

BEFORE, AFTER = "restow.dev/before-move", "restow.dev/after-move"
"""On a pod, or its controller: the way to ask before a move, and to tell after it."""
DEADLINE, ON_SILENCE = "restow.dev/move-deadline", "restow.dev/on-silence"
DECLARED = (BEFORE, AFTER, DEADLINE, ON_SILENCE)
REQUESTED, UNTIL = "restow.dev/move-requested", "restow.dev/move-requested-until"
"""What Restow asks with, on the pod: the migration, and until when an answer counts."""
ACKNOWLEDGED, REFUSED = "restow.dev/move-acknowledged", "restow.dev/move-refused"
"""What the workload answers with: the migration; where it refuses, `retry-after=10m` and a reason may follow."""
MOVED_FROM, MOVED_BY = "restow.dev/moved-from", "restow.dev/moved-by"
"""What Restow tells a successor: the node that its predecessor was on, and the migration."""
CHECKPOINTED = "restow.dev/checkpointed-at"
"""When the workload has saved its work last, RFC 3339."""

RESPONDERS = "lifecycle.k8s.io/eviction-responders"
"""In a pod's fact, where an annotation would be: the names in `spec.evictionResponders` (Kubernetes 1.37, alpha), who answer EvictionRequests (KEP-4563)."""

ANNOTATION = "annotation"
STAY, EVICT = "stay", "evict"
LONGEST = 24 * 3_600_000
"""Milliseconds that a workload may take for its word."""
DEFAULT = 300_000
_OWN = re.compile(r"(?:(https?)://)?:([0-9]{1,5})(/[!-~]*)?", re.ASCII)
_URL = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?:/[!-~]*)?", re.ASCII)
_RETRY = "retry-after="
_OWN_WAYS = f"{ANNOTATION}, or a port and a path of the pod, such as :8080/checkpoint or https://:8443/checkpoint"
LONGEST_SAID = 300
"""Characters of what a workload says that are kept."""


class Hook(NamedTuple):
    """`name`: of the policy's entry, "" where an annotation says so. `deadline`: milliseconds to answer. `evicts_on_silence`: that nobody
    answers is an answer."""

    way: str
    name: str = ""
    deadline: int = DEFAULT
    evicts_on_silence: bool = False


class Word(NamedTuple):
    """An answer by annotation. `again`: milliseconds for which the pod is to be left alone, 0 where it does not say."""

    agrees: bool
    message: str = ""
    again: int = 0


class HookError(ValueError):
    """What is declared cannot be read. Says the value and what is allowed."""


# -- what is declared ------------------------------------------------------------------------------------------------------


def before(state: ClusterState, pod: PodObserved) -> Hook | None:
    """Whom to ask before it is moved. Raises HookError."""
    return _declared(state, pod, BEFORE)


def after(state: ClusterState, pod: PodObserved) -> Hook | None:
    """Whom to tell when it has landed. Raises HookError."""
    return _declared(state, pod, AFTER)


def is_asked(state: ClusterState, pod: PodObserved) -> bool:
    """Whether somebody is to be asked, readably or not."""
    try:
        return before(state, pod) is not None
    except HookError:
        return True


def objection(state: ClusterState, pod: PodObserved) -> str:
    """Why it must stay, `Word: sentence`: who is to be asked cannot be read; empty where it can."""
    try:
        before(state, pod)
    except HookError as error:
        return f"{BAD_HOOK}: {error}"
    return ""


def _declared(state: ClusterState, pod: PodObserved, key: str) -> Hook | None:
    said = annotated(state, pod, key)
    if way := said.get(key, "").strip():
        if way != ANNOTATION:
            own_way(key, way)
        return Hook(way, "", _deadline(said.get(DEADLINE, "")), _evicts(said.get(ON_SILENCE, "")))
    for one in state.migration_config.hooks:
        if (way := one.before if key == BEFORE else one.after) and _is_about(one, pod):
            return Hook(way, one.name, one.deadline, one.on_silence == EVICT)
    return None


def annotated(state: ClusterState, pod: PodObserved, key: str) -> dict[str, str]:
    """What is declared on the pod; where it says nothing of this hook, on its controller."""
    if pod.owner is None or key in pod.annotations:
        return pod.annotations
    declared = (known.hooks for known in state.controllers(pod.owner.uid) if key in known.hooks)
    return {**next(declared, {}), **pod.annotations}


def _is_about(one: HookConfig, pod: PodObserved) -> bool:
    if one.namespaces and pod.namespace not in one.namespaces:
        return False
    if one.kinds:
        group = pod.owner.api_version.rpartition("/")[0] if pod.owner is not None else ""
        if pod.owner is None or f"{pod.owner.kind}.{group}".rstrip(".") not in one.kinds:
            return False
    return one.selector is None or selects(_selector(one.selector).selects, pod.labels)


def _selector(said: Selector) -> LabelSelector:
    expressions = tuple(Requirement(key=one.key, operator=one.operator, values=one.values) for one in said.match_expressions)
    return LabelSelector(match_labels=said.match_labels, match_expressions=expressions)


def _deadline(text: str) -> int:
    if not text:
        return DEFAULT
    try:
        said = milliseconds(text.strip())
    except DurationError as error:
        raise HookError(f"{DEADLINE}: {error}") from None
    if not 1 <= said <= LONGEST:
        raise HookError(f"{DEADLINE}: {text[:LONGEST_SAID]!r}; allowed: up to {format_milliseconds(LONGEST)}")
    return said


def _evicts(text: str) -> bool:
    if text.strip() not in ("", STAY, EVICT):
        raise HookError(f"{ON_SILENCE}: {text[:LONGEST_SAID]!r}; allowed: {STAY} or {EVICT}")
    return text.strip() == EVICT


# -- ways ------------------------------------------------------------------------------------------------------------------


def own_way(where: str, way: str) -> tuple[str, int, str]:
    """Scheme, port and path of `:8080/path`. Raises HookError."""
    match = _OWN.fullmatch(way)
    if match is None or not 1 <= int(match[2]) <= 65_535 or len(way) > LONGEST_SAID:
        raise HookError(f"{where}: {way[:LONGEST_SAID]!r}; allowed: {_OWN_WAYS}")
    return match[1] or "http", int(match[2]), match[3] or "/"


def is_own(way: str) -> bool:
    """Whether it leads to the pod's own address."""
    return _OWN.fullmatch(way) is not None


def is_secure(way: str) -> bool:
    return way.startswith("https://")


def check(hooks: tuple[HookConfig, ...]) -> None:
    """Of the policy. Raises ValueError with path, value and what is allowed."""
    names: list[str] = []
    for i, one in enumerate(hooks):
        path = f"hooks[{i}]"
        if not one.name or one.name in names:
            raise ValueError(f"{path}.name: {one.name!r}; allowed: names that tell hooks apart")
        names.append(one.name)
        if not (one.before or one.after):
            raise ValueError(f"{path}: neither before nor after; allowed: at least one of them")
        for key, way in (("before", one.before), ("after", one.after)):
            _check_way(f"{path}.{key}", way)
        ways = [way for way in (one.before, one.after) if way not in ("", ANNOTATION)]
        for key, file in (("tokenFile", one.token_file), ("caFile", one.ca_file)):
            if file and not file.startswith("/"):
                raise ValueError(f"{path}.{key}: {file!r}; allowed: an absolute path")
            if file and (not ways or not all(map(is_secure, ways))):
                raise ValueError(f"{path}.{key}: set, and {', '.join(ways) or ANNOTATION} is not https; allowed: with https alone")
        if one.server_name and not any(map(is_secure, ways)):
            raise ValueError(f"{path}.serverName: {one.server_name!r}; allowed: with https alone")
        if not 1 <= one.deadline <= LONGEST:
            raise ValueError(f"{path}.deadline: {one.deadline}; allowed: 1 to {LONGEST} (milliseconds; {format_milliseconds(LONGEST)})")
        if one.selector is not None and (why := _selector(one.selector).check()):
            raise ValueError(f"{path}.selector.{why}")


def _check_way(where: str, way: str) -> None:
    if way in ("", ANNOTATION) or is_own(way):
        if is_own(way):
            own_way(where, way)
        return
    match = _URL.fullmatch(way)
    if match is None or "?" in way or "#" in way or len(way) > LONGEST_SAID or not 1 <= int(match[1] or 1) <= 65_535:
        raise ValueError(
            f"{where}: {way[:LONGEST_SAID]!r}; allowed: {_OWN_WAYS}, or an http or https URL without user, query and fragment (a token is read from tokenFile)"
        )


# -- what workloads say ----------------------------------------------------------------------------------------------------


def word(pod: PodObserved, migration: MigrationId) -> Word | None:
    """Its answer to this migration, by annotation. A refusal counts more than an assent."""
    id, _, rest = pod.annotations.get(REFUSED, "").strip().partition(" ")
    if id == migration:
        return _refusal(rest)
    if pod.annotations.get(ACKNOWLEDGED, "").strip() == migration:
        return Word(True)
    return None


def _refusal(rest: str) -> Word:
    first, _, reason = rest.strip().partition(" ")
    if not first.startswith(_RETRY):
        return Word(False, said(rest))
    try:
        return Word(False, said(reason), min(max(milliseconds(first.removeprefix(_RETRY)), 0), LONGEST))
    except DurationError:
        return Word(False, said(rest))


def said(text: str) -> str:
    """One bounded line of what somebody else has written."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * LONGEST_SAID]).split())[:LONGEST_SAID]


def checkpointed(pod: PodObserved, now: Millis) -> Millis:
    """When its work was saved last; 0 where it does not say, says so unreadably, or of a time that is still to come."""
    text = pod.annotations.get(CHECKPOINTED)
    if not text:
        return Millis(0)
    try:
        at = stamped(text.strip())
    except ValueError:
        return Millis(0)
    return at if 0 < at <= now else Millis(0)


def work_since(pod: PodObserved, now: Millis) -> Millis:
    """Since when the work was done that an eviction loses."""
    return max(pod.created, checkpointed(pod, now))
