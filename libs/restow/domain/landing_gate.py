"""The rule by which a new pod gets our scheduling gate: it has no node, and a Landing lists its controller, or owners of a Reservation like it, for longer
than now.

The API server asks it of an admission policy (deploy/beside/landing.yaml, in CEL) or, where it has none, of a webhook (`restow webhook`), which calls
this. One table of cases holds both to each other, on a real API server (tests/kubernetes/test_beside_webhook.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from restow.contracts.ids import Millis
from restow.contracts.times import millis

GATE = "restow.dev/landing"
"""The scheduling gate; and the annotation that says for whom, and until when: `<log> <RFC 3339>`."""


def said_by(annotation: str) -> tuple[str, Millis]:
    """Whose Landing a pod was gated for (its log), and until when that listed its controller; nobody's where it does not say."""
    log, _, until = annotation.partition(" ")
    try:
        return log, millis(until)
    except ValueError:
        return "", Millis(0)


LEFT_OUT = "kube-system"
"""The namespace in which nobody is gated: what the cluster lives on (the policy's, and the webhook's, `namespaceSelector`)."""
PART_OF, RESTOW = "app.kubernetes.io/part-of", "restow"
"""Label of Restow's own pods, in whatever namespace: they are not gated either, for they are who lets go (`objectSelector`)."""

LEASE, RENEWED = 180_000, 30_000
"""Milliseconds for which an entry counts, and after which the session, which lets go what is gated, puts the ends of all entries off in one write, for as long as they are
needed. So whatever is gated while nobody is there to let it go was made within `LEASE` from the last such write, and a session has more than two minutes to come back, or to be
followed by another."""


class NewPod(NamedTuple):
    """What counts of a pod that is being made. `controllers`: uids of the owners that control it. `at`: the times of its managedFields, the one clock that
    an admission policy has; it is the API server's, in whole seconds."""

    node: str
    controllers: tuple[str, ...]
    at: tuple[datetime, ...] | None
    namespace: str = ""
    labels: Mapping[str, str] | None = None


class Owners(NamedTuple):
    """Of a Reservation: pods in this namespace ("" for any) with all labels of one of these sets."""

    namespace: str
    until: str
    labels: Sequence[Mapping[str, str]]


class Listed(NamedTuple):
    """By one installation: controllers' uids, each with the instant until which it counts, and owners of Reservations."""

    open: Mapping[str, str]
    owners: Sequence[Owners] = ()


def left_out(namespace: str, labels: Mapping[str, str]) -> str:
    """Of whom a pod is like this one, who is never gated; empty where it may be."""
    if namespace == LEFT_OUT:
        return f"namespace {namespace}"
    return "Restow itself" if labels.get(PART_OF) == RESTOW else ""


def gated_for(pod: NewPod, lists: Mapping[str, Listed]) -> str:
    """What the annotation is to say; empty where the pod gets no gate. `lists`: by installation (its log)."""
    if pod.node or pod.at is None:
        return ""
    for log, listed in lists.items():
        for said in _instants(pod, listed):
            if (until := _instant(said)) is not None and all(at < until for at in pod.at):
                return f"{log} {said}"
    return ""


def _instants(pod: NewPod, listed: Listed) -> Iterator[str]:
    """Until when it is listed: by its controller, by its labels."""
    yield from (listed.open[uid] for uid in pod.controllers if uid in listed.open)
    labels = pod.labels
    if labels is not None:
        for owners in listed.owners:
            if owners.namespace in ("", pod.namespace) and any(all(labels.get(k) == v for k, v in wanted.items()) for wanted in owners.labels):
                yield owners.until


def _instant(text: str) -> datetime | None:
    """None for what is none, or says no time zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
