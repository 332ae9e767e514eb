"""Which pod, PodGroup, reservation, migration, node or queue somebody means."""

from __future__ import annotations

import msgspec

from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain.accounts import DEFAULT_QUEUE
from restow.replay.source import Source
from restow.replay.state_at import decode_record

KINDS = ("pod", "podgroup", "reservation", "migration", "node", "queue")
_SHORT = {"po": "pod", "pg": "podgroup", "rsv": "reservation", "resv": "reservation", "mig": "migration", "no": "node", "q": "queue", "plan": "migration"}
_ALIASES = {alias: kind for kind in KINDS for alias in (kind, kind + "s")} | _SHORT
_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_SHORT_WORKLOADS = {"deploy": "Deployment", "rs": "ReplicaSet", "sts": "StatefulSet", "ds": "DaemonSet"}
_OWNERS = {alias: kind for kind in _WORKLOADS for alias in (kind.lower(), kind.lower() + "s")} | _SHORT_WORKLOADS
"""Kinds that have no story of their own: their pods have."""
_UID_PREFIX = 8
"""Letters of a uid that suffice to name it."""


class Subject(msgspec.Struct, frozen=True):
    """One thing that the log tells about. `first` is the sequence where it first appears, `gone` where its end is told (0:
    never). `earlier` are uids of former ones of the same name."""

    kind: str
    id: str
    namespace: str
    name: str
    first: int
    gone: int = 0
    earlier: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """`pod shop/web-1`."""
        return self.path.replace("/", " ", 1)

    @property
    def path(self) -> str:
        """`pod/shop/web-1`: what names it alone, with no namespace where it has none."""
        return "/".join(part for part in (self.kind, self.namespace * (self.kind != "migration"), self.name) if part)


CLUSTERED = ("node", "queue")
"""Kinds without a namespace."""


class Ambiguous(ValueError):
    """Several things have that name."""

    def __init__(self, text: str, candidates: list[Subject]) -> None:
        self.candidates = candidates
        super().__init__(f"{text!r} may be any of {len(candidates)}")


class NotFound(ValueError):
    """Nothing in the log has that name. Says what can be asked for."""


class Query(msgspec.Struct, frozen=True):
    """What was asked for; empty kind or namespace mean any. `owner` is the kind of a workload whose pods are meant."""

    kind: str
    namespace: str
    name: str
    owner: str = ""


def parse(text: str) -> Query:
    """`web-1`, `shop/web-1`, `pod/web-1`, `pod/shop/web-1`, `node/n-3`, `deploy/shop/web`, a uid, a migration's id. Raises NotFound."""
    parts = [part.strip() for part in text.split("/")]
    kind = owner = ""
    if len(parts) > 1:
        first = parts[0].lower().partition(".")[0]
        kind, owner = _ALIASES.get(first, ""), _OWNERS.get(first, "")
        if kind or owner:
            parts.pop(0)
    if not 1 <= len(parts) <= (1 if kind in CLUSTERED else 2) or not all(parts):
        allowed = "[pod/|podgroup/|reservation/|migration/|deployment/...][namespace/]name, node/name, queue/name, or a uid"
        raise NotFound(f"{text!r} names nothing; allowed: {allowed}")
    return Query(kind or ("pod" if owner else ""), parts[0] if len(parts) == 2 else "", parts[-1], owner)


def kind_of(text: str) -> str:
    """The kind that a word alone names, or empty."""
    return _ALIASES.get(text.lower(), "")


def find(source: Source, text: str) -> Subject:
    """The one thing that is meant; of several with the same name in time, the latest. Raises NotFound, Ambiguous."""
    query = parse(text)
    found = _scan(source, query)
    latest: dict[tuple[str, str, str], Subject] = {}
    for subject in found.values():
        key = (subject.kind, subject.namespace, subject.name)
        before = latest.get(key)
        earlier = (*before.earlier, before.id) if before else ()
        latest[key] = msgspec.structs.replace(subject, earlier=earlier)
    if not latest and query.kind in ("", "queue") and not query.namespace and query.name == DEFAULT_QUEUE:
        # It is there without an object, and pods wait in it.
        return Subject("queue", DEFAULT_QUEUE, "", DEFAULT_QUEUE, source.first)
    if not latest:
        raise NotFound(_missing(source, query))
    if len(latest) > 1:
        exact = [subject for subject in latest.values() if query.name in (subject.id, subject.name)]
        if len(exact) != 1:
            raise Ambiguous(text, list(latest.values()))
        return exact[0]
    return next(iter(latest.values()))


def _missing(source: Source, query: Query) -> str:
    where = f" in namespace {query.namespace}" if query.namespace else ""
    if query.owner:
        return f"no pod of {query.owner} {query.name!r}{where} in {source.name}. `restow get pods` lists what there is"
    hint = ""
    if query.namespace and not query.kind:
        hint = f". {query.namespace!r} was read as a namespace: kinds are {', '.join(KINDS)}, deployment and other workloads"
    if query.kind == "migration":
        hint = f". A plan itself, also one without moves: `restow describe plan/{query.name}`"
    return (
        f"no {query.kind or 'pod, podgroup, reservation, migration, node or queue'} {query.name!r}{where} in {source.name}{hint}. "
        "`restow get nodes|pods|podgroups|queues|reservations|plans|migrations` lists what there is; what kubectl shows beyond that may be what cannot be read: `restow doctor` names it"
    )


Found = dict[tuple[str, str], Subject]
"""By kind and id: the ids of nodes and queues are their names, and one of each may have the same."""


def _scan(source: Source, query: Query) -> Found:
    needle = query.name.encode(errors="replace")  # an argument may be any bytes; the log is UTF-8
    found: Found = {}
    ends: set[bytes] = set()
    for batch in source.batches():
        for record in batch:
            body = record.body
            # Most bodies do not even contain the letters: only the others are worth decoding.
            if needle not in body and not any(end in body for end in ends):
                continue
            for decision in decode_record(record, source.log_id):
                for event in decision.events:
                    _meet(event, record.seq, query, found)
            # The end of a PodGroup is told by its name, all others' by their uid.
            alive = [subject for subject in found.values() if not subject.gone]
            ends = {(subject.name if subject.kind == "podgroup" else subject.id).encode() for subject in alive}
    return found


def _meet(event: object, seq: int, query: Query, found: Found) -> None:
    match event:
        case e.PodObserved(pod=uid, namespace=namespace, name=name, owner=owner):
            _take(found, query, Subject("pod", uid, namespace, name, seq), bool(query.owner) and _made_by(owner, query))
        case e.ReservationObserved(reservation=uid, namespace=namespace, name=name):
            _take(found, query, Subject("reservation", uid, namespace, name, seq))
        case e.PodGroupObserved(uid=uid, namespace=namespace, name=name):
            _take(found, query, Subject("podgroup", uid, namespace, name, seq))
        case e.PodGroupGone(namespace=namespace, name=name):
            for id, subject in found.items():
                if (subject.kind, subject.namespace, subject.name) == ("podgroup", namespace, name) and not subject.gone:
                    found[id] = msgspec.structs.replace(subject, gone=seq)
        case e.NodeObserved(name=name):
            _take(found, query, Subject("node", name, "", name, seq))
        case e.QueueObserved(name=name):
            _take(found, query, Subject("queue", name, "", name, seq))
        case e.NodeGone(name=name):
            _end(found, ("node", name), seq)
        case e.QueueGone(name=name):
            _end(found, ("queue", name), seq)
        case e.Planned(moves=moves, plan=plan):
            for move in moves:
                subject = Subject("migration", move.migration, move.namespace, move.migration, seq)
                _take(found, query, subject, plan == query.name)
        case e.PodGone(pod=id):
            _end(found, ("pod", id), seq)
        case e.ReservationGone(reservation=id):
            _end(found, ("reservation", id), seq)


def _end(found: Found, key: tuple[str, str], seq: int) -> None:
    if key in found:
        found[key] = msgspec.structs.replace(found[key], gone=seq)


def _take(found: Found, query: Query, subject: Subject, also: bool = False) -> None:
    if (subject.kind, subject.id) in found or (query.kind and query.kind != subject.kind):
        return
    if query.namespace and query.namespace != subject.namespace:
        return
    short = len(query.name) >= _UID_PREFIX and subject.id.startswith(query.name) and subject.kind not in CLUSTERED
    if also or (not query.owner and (short or query.name in (subject.id, subject.name))):
        found[subject.kind, subject.id] = subject


def _made_by(owner: OwnerRef | None, query: Query) -> bool:
    """A Deployment's pods are its ReplicaSets', whose names are its own and a hash."""
    if owner is None:
        return False
    if query.owner == "Deployment":
        return owner.kind == "ReplicaSet" and owner.name.rpartition("-")[0] == query.name
    return owner.kind == query.owner and owner.name == query.name
