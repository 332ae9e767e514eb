"""What people ask the descheduler for over HTTP, read strictly: every refusal says what is allowed."""

import re
from typing import TypeVar

import msgspec
from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from restow.contracts.codec import BAD
from restow.contracts.ids import NodeName, PodUid
from restow.domain.evolve.bounces import BY_HAND
from restow.domain.evolve.demands import TRIGGER as DEMAND
from restow.domain.groups import UPSTREAM
from restow.domain.records import MODES
from restow.domain.state import ClusterState

TRIGGER = re.compile(r"[a-z][a-z0-9-]{0,39}")
OWN_TRIGGERS = ("interval", "cron", DEMAND, BY_HAND)
"""What plans are called that nobody has asked for over HTTP, or for one pod alone."""
LONGEST_REASON, LONGEST_NAME = 200, 100
PODS = "NAMESPACE/NAME of a pod, or its uid"
JOBS = "pod/NAMESPACE/NAME, podgroup/NAMESPACE/NAME, or the uid of a pod"


class Refused(Exception):
    """A request that cannot be served: status, and why with what is allowed."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Defragment(msgspec.Struct, forbid_unknown_fields=True):
    """`demand`: free capacity for this job."""

    trigger: str = "api"
    demand: str = ""


class Deschedule(msgspec.Struct, forbid_unknown_fields=True):
    trigger: str = "api"


class Move(msgspec.Struct, forbid_unknown_fields=True):
    pod: str = ""
    target: str = ""
    pod_group: str = msgspec.field(default="", name="podGroup")


class Cancel(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


class Pausing(msgspec.Struct, forbid_unknown_fields=True):
    by: str = ""
    reason: str = ""


class Approving(msgspec.Struct, forbid_unknown_fields=True):
    by: str = ""
    reason: str = ""
    moves: tuple[str, ...] = ()


class Mode(msgspec.Struct, forbid_unknown_fields=True):
    mode: str = ""
    by: str = ""
    reason: str = ""


B = TypeVar("B", Defragment, Deschedule, Move, Cancel, Pausing, Approving, Mode)


async def body(request: web.Request, kind: type[B]) -> B:
    """Raises Refused."""
    allowed = ", ".join(kind.__struct_fields__)
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except BAD as error:
        raise Refused(f"body: {error}; allowed: a JSON object with {allowed}") from None
    except web.HTTPRequestEntityTooLarge:
        raise Refused("body: too large; allowed: 64 KiB", 413) from None
    except (HttpProcessingError, ClientPayloadError, web.RequestPayloadError) as error:
        raise Refused(f"body: it cannot be read as its headers say ({type(error).__name__}); allowed: a JSON object with {allowed}") from None


def flag(request: web.Request, name: str) -> bool:
    said = request.query.get(name, "false").lower()
    if said not in ("true", "false"):
        raise Refused(f"{name} is {said!r}; allowed: true, false")
    return said == "true"


def one_of(request: web.Request, name: str, allowed: tuple[str, ...]) -> str:
    said = request.query.get(name, "")
    if said and said not in allowed:
        raise Refused(f"{name} is {said!r}; allowed: {', '.join(allowed)}")
    return said


def limit(request: web.Request, default: int, most: int) -> int:
    said = request.query.get("limit", str(default))
    if not (said.isascii() and said.isdecimal() and len(said) < 10 and 1 <= int(said) <= most):
        raise Refused(f"limit is {said!r}; allowed: 1 to {most}")
    return int(said)


def known_query(request: web.Request, *allowed: str) -> None:
    """A parameter that nobody reads is a mistake that would pass unseen, and so is one that is said twice: `dryRun=false&dryRun=true`."""
    for name in request.query:
        if name not in allowed:
            raise Refused(f"query {name!r}: unknown; allowed: {', '.join(allowed) or 'none'}")
        if len(request.query.getall(name)) > 1:
            raise Refused(f"query {name!r}: said more than once; allowed: once")


def trigger(said: str) -> str:
    if not TRIGGER.fullmatch(said):
        raise Refused(f"trigger is {said!r}; allowed: {TRIGGER.pattern}")
    if said in OWN_TRIGGERS:
        raise Refused(f"trigger is {said!r}, which is what the descheduler calls its own; allowed: any other, such as api")
    return said


def reason(said: str) -> str:
    if len(said) > LONGEST_REASON or not said.isprintable():
        raise Refused(f"reason: {len(said)} characters; allowed: up to {LONGEST_REASON}, printable")
    return said


async def pausing(request: web.Request) -> tuple[str, str]:
    """Who asks, and why. Without a name it would count as Restow's own."""
    known_query(request)
    said = await body(request, Pausing)
    return person(said.by), reason(said.reason)


async def approving(request: web.Request) -> Approving:
    known_query(request)
    said = await body(request, Approving)
    return Approving(person(said.by), reason(said.reason), said.moves)


async def rejecting(request: web.Request) -> tuple[str, str]:
    """Who asks, and why: whoever reads the log later must know."""
    by, why = await pausing(request)
    if not why.strip():
        raise Refused(f"reason: empty; allowed: why the plan is not to be carried out, up to {LONGEST_REASON} printable characters")
    return by, why


async def mode(request: web.Request) -> Mode:
    known_query(request)
    said = await body(request, Mode)
    if said.mode not in MODES:
        raise Refused(f"mode: {said.mode[:LONGEST_NAME]!r}; allowed: {', '.join(MODES)}")
    return Mode(said.mode, person(said.by), reason(said.reason))


def person(said: str) -> str:
    if not said.strip() or len(said) > LONGEST_NAME or not said.isprintable():
        raise Refused(f"by: {said[:LONGEST_NAME]!r}; allowed: who asks, 1 to {LONGEST_NAME} printable characters")
    return said


def pod(state: ClusterState, said: str) -> PodUid:
    """Raises Refused where there is none, or more than one."""
    if PodUid(said) in state.pods:
        return PodUid(said)
    namespace, slash, name = said.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise Refused(f"pod is {said!r}; allowed: {PODS}")
    found = [uid for uid, one in state.pods.items() if one.fact.name == name and one.fact.namespace == namespace]
    running = [uid for uid in found if not state.pods[uid].live.deleting] or found
    if not running:
        raise Refused(f"there is no pod {said!r}; allowed: {PODS}", 404)
    return running[-1]


def target(state: ClusterState, said: str) -> NodeName:
    if said and NodeName(said) not in state.nodes:
        raise Refused(f"target: there is no node {said!r}; allowed: a node of the cluster, or none to have the best chosen", 404)
    return NodeName(said)


def gang(state: ClusterState, said: Move) -> str:
    """The group as the log names it (`restow.domain.groups`); of two of that name the one that has pods. Empty where a pod is to be moved."""
    if bool(said.pod) == bool(said.pod_group) or (said.pod_group and said.target):
        raise Refused("a move is of a pod, or of a podGroup without a target; allowed: one of these")
    if not said.pod_group:
        return ""
    namespace, slash, name = said.pod_group.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise Refused(f"podGroup is {said.pod_group!r}; allowed: NAMESPACE/NAME")
    known = [group for group in ((namespace, name), (namespace, UPSTREAM + name)) if group in state.pod_groups or group in state.groups]
    if not known:
        raise Refused(f"there is no PodGroup {said.pod_group!r}; allowed: NAMESPACE/NAME of one that the log has", 404)
    return "/".join(next((group for group in known if state.groups.get(group)), known[0]))


def demand(state: ClusterState, said: str) -> str:
    """As `Defragment.demand` has it: a pod's uid, or `namespace/name` of a PodGroup."""
    if not said or PodUid(said) in state.pods:
        return said
    kind, _, name = said.partition("/")
    if kind == "pod" and "/" in name:
        return pod(state, name)
    namespace, slash, group = name.partition("/")
    if kind != "podgroup" or not slash or not group or "/" in group:
        raise Refused(f"demand is {said!r}; allowed: {JOBS}")
    if (namespace, group) not in state.pod_groups:
        raise Refused(f"demand: there is no PodGroup {name!r}; allowed: {JOBS}", 404)
    return name
