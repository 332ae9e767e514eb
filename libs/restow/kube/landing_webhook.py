"""What the admission webhook reads and answers: `AdmissionReview`s about new pods, and the Landings that list whose pods are gated."""

from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from restow.domain.landing_gate import GATE, Listed, NewPod, Owners, gated_for
from restow.kube.decode import BAD_JSON, Collection, Undecodable, decoded
from restow.kube.reflector import Change, Delete, Replace, Upsert
from restow.kube.wire import Gate, Meta, Owner, Wire

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class OwnersOf(Wire):
    namespace: str = ""
    until: str = ""
    labels: list[dict[str, str]] | None = None


class Spec(Wire):
    open: dict[str, str] | None = None
    owners: dict[str, OwnersOf] | None = None


class Landing(Wire):
    metadata: Meta
    spec: Spec | None = None


LANDINGS = Collection("landings.restow.dev", "Landing", "/apis/restow.dev/v1/landings", Landing, by_name=True, optional=True)


class Lists:
    """Each installation's list, as the API tells it."""

    def __init__(self) -> None:
        self.known: dict[str, Listed] = {}

    def take(self, changes: Iterable[Change]) -> None:
        """One that cannot be read lists nobody: it fails open."""
        for change in changes:
            match change:
                case Upsert(Landing() as landing):
                    self.known[landing.metadata.name] = _listed(landing.spec or Spec())
                case Upsert(Undecodable(name=name)):
                    self.known.pop(name, None)
                case Delete(key):
                    self.known.pop(key, None)
                case Replace(keys):
                    self.known = {name: listed for name, listed in self.known.items() if name in keys}


def _listed(spec: Spec) -> Listed:
    return Listed(spec.open or {}, tuple(Owners(one.namespace, one.until, one.labels or ()) for one in (spec.owners or {}).values()))


class _Entry(Wire):
    time: Moment | None = None


class _Made(Wire):
    annotations: dict[str, Any] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    managed_fields: list[_Entry] | None = None


class _Spec(Wire):
    node_name: str | None = None
    scheduling_gates: list[Gate] | None = None


class _Pod(Wire):
    metadata: _Made
    spec: _Spec


class _Request(Wire):
    uid: str
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(Wire):
    request: _Request


_review = msgspec.json.Decoder(_Review)
_pod = msgspec.json.Decoder(_Pod)


def answer(body: bytes, lists: Lists) -> dict[str, Any]:
    """The review of an `AdmissionReview`: a pod is always allowed, and gets the gate where the rule says so. Raises ValueError for what is no review."""
    try:
        request = decoded(_review, body).request
    except BAD_JSON as error:
        raise ValueError(f"not an AdmissionReview: {error}") from error
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch := _patch(request, lists):
        response |= {"patchType": "JSONPatch", "patch": b64encode(msgspec.json.encode(patch)).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _patch(request: _Request, lists: Lists) -> list[dict[str, Any]]:
    """Nothing where the pod is left as it is, also where it cannot be read."""
    try:
        pod = decoded(_pod, request.object)
    except BAD_JSON:
        return []
    gates, fields = pod.spec.scheduling_gates or [], pod.metadata.managed_fields
    controllers = tuple(owner.uid for owner in pod.metadata.owner_references or () if owner.controller)
    at = None if fields is None or any(entry.time is None for entry in fields) else tuple(entry.time for entry in fields)
    said = gated_for(NewPod(pod.spec.node_name or "", controllers, at, request.namespace, pod.metadata.labels), lists.known)
    if not said:
        return []
    patch = [_added("/metadata/annotations", "/restow.dev~1landing", said) if pod.metadata.annotations else _added("/metadata/annotations", "", {GATE: said})]
    if not any(gate.name == GATE for gate in gates):
        patch.append(_added("/spec/schedulingGates", "/-", {"name": GATE}) if gates else _added("/spec/schedulingGates", "", [{"name": GATE}]))
    return patch


def _added(path: str, within: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path + within, "value": value}
