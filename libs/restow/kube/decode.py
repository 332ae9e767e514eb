"""Bytes of a list page or of a watch line → wire forms.

The usual case is one pass. When something in a page does not fit, the page is decoded again object by object, so that one
broken object never hides the others: it becomes an `Undecodable`.
"""

import re
from copy import copy
from typing import Any, Generic, Literal, TypeVar

import msgspec

from restow.kube import wire
from restow.kube import wire_dynamic_resources as dynamic
from restow.kube import wire_objects as objects

W = TypeVar("W")

BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be: also for broken UTF-8 and for absurd nesting."""

_DEEPEST = 100
"""No wire form reads anything that is nested deeper than this."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


class DecodeError(ValueError):
    """The bytes are not a page or a line at all: cut off, garbled, or from something that is not a Kubernetes API."""


class Undecodable(msgspec.Struct, frozen=True):
    """An object that could not be read: it is logged, counted and otherwise left alone. `trace`: the traceback, where nobody foresaw that."""

    kind: str
    namespace: str
    name: str
    uid: str
    message: str
    version: str = ""
    trace: str = ""


class Page(msgspec.Struct, Generic[W]):
    items: list[W | Undecodable]
    version: str
    more: str
    """The continue token, empty on the last page."""


LineType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class Line(msgspec.Struct, Generic[W]):
    type: str
    object: W | Undecodable | None = None
    status: wire.Status | None = None
    version: str = ""


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[W]):
    metadata: _ListMeta
    items: list[W] | None = None


class _Event(msgspec.Struct, Generic[W]):
    type: str
    object: W


class _Any(msgspec.Struct):
    """Just enough to say which object it was."""

    metadata: Any = None


class Collection(Generic[W]):
    """One collection of the API: where it is and how its objects are read, whatever version serves them.

    `name` is kubectl's full name of the resource (`pods`, `reservations.batch.volcano.sh`) and identifies the collection
    in the log; `kind` is its objects' kind. What others refer to by name is known by it (`namespace/name` where it has a
    namespace), everything else by uid. An `optional` collection is not served everywhere: its CRD may be installed later, or never. Where a
    `discovered` one is, the server says; `path` is where it is looked for first.
    """

    __slots__ = ("_event", "_events", "_list", "_lists", "_one", "by_name", "discovered", "kind", "name", "optional", "path")

    def __init__(
        self, name: str, kind: str, path: str, form: type[W], by_name: bool = False, optional: bool = False, discovered: bool = False
    ):
        self.discovered = discovered
        self.name, self.kind, self.path, self.by_name, self.optional = name, kind, path, by_name, optional
        self._list: msgspec.json.Decoder[_List[W]] = msgspec.json.Decoder(_List[form])  # type: ignore[valid-type]
        self._lists = msgspec.json.Decoder(_List[msgspec.Raw])
        self._event: msgspec.json.Decoder[_Event[W]] = msgspec.json.Decoder(_Event[form])  # type: ignore[valid-type]
        self._events = msgspec.json.Decoder(_Event[msgspec.Raw])
        self._one: msgspec.json.Decoder[W] = msgspec.json.Decoder(form)

    def __repr__(self) -> str:
        return f"<collection {self.name}>"

    def at(self, version: str) -> "Collection[W]":
        """The same at another version (`group/version`)."""
        other: Collection[W] = copy(self)
        other.path = f"/apis/{version}/{self.path.rpartition('/')[2]}"
        return other

    def page(self, body: bytes) -> Page[W]:
        """Raises DecodeError where the body is not a list."""
        items: list[W | Undecodable]
        try:
            listed = decoded(self._list, body)
            items, meta = list(listed.items or ()), listed.metadata
        except BAD_JSON:
            try:
                raw = decoded(self._lists, body)
            except BAD_JSON as error:
                raise DecodeError(f"not a page of {self.name}: {error}") from error
            items, meta = [self.object(one) for one in raw.items or ()], raw.metadata
        return Page(items, meta.resourceVersion, meta.continue_)

    def line(self, body: bytes) -> Line[W]:
        """Raises DecodeError where the line is not a watch event."""
        try:
            event = decoded(self._event, body)
            if event.type != "ERROR":
                return Line(event.type, event.object, version=_version(event.object))
        except BAD_JSON:
            pass
        try:
            raw = decoded(self._events, body)
            if raw.type == "ERROR":
                return Line("ERROR", status=_status.decode(raw.object))
        except BAD_JSON as error:
            raise DecodeError(f"not a watch event of {self.name}: {error}") from error
        one = self.object(raw.object)
        return Line(raw.type, one, version=_version(one))

    def object(self, raw: bytes | msgspec.Raw) -> W | Undecodable:
        """One object on its own, as GET answers with."""
        try:
            return decoded(self._one, raw)
        except BAD_JSON as error:
            return self._undecodable(raw, str(error))

    def key(self, one: W | Undecodable) -> str:
        meta: Any = one if isinstance(one, Undecodable) else one.metadata  # type: ignore[attr-defined]
        if not self.by_name:
            return str(meta.uid)
        return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)

    def _undecodable(self, raw: bytes | msgspec.Raw, message: str) -> Undecodable:
        try:
            meta = decoded(_any, raw).metadata
        except BAD_JSON:
            meta = None
        said = meta if isinstance(meta, dict) else {}

        def text(field: str) -> str:
            value = said.get(field, "")
            return value if isinstance(value, str) else ""

        return Undecodable(
            self.kind, text("namespace"), text("name"), text("uid"), message, text("resourceVersion")
        )


_status = msgspec.json.Decoder(wire.Status)
_any = msgspec.json.Decoder(_Any)


def status(body: bytes) -> wire.Status | None:
    """The Status in the body of an error response, None where there is none (a proxy's HTML, say)."""
    try:
        return _status.decode(body)
    except BAD_JSON:
        return None


def decoded(decoder: Any, body: bytes | msgspec.Raw) -> Any:
    """Custom resources may nest as deep as a user likes, and one of them must not hide its neighbours, nor keep us from writing to it. What
    is deeper than anything that we read is null. Raises one of BAD_JSON."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(pruned(bytes(body)))


def pruned(body: bytes) -> bytes:
    """The JSON with `null` for whatever is nested deeper than any wire form reads."""
    parts: list[bytes] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(body):
        match body[token.start()]:
            case 0x7B | 0x5B:
                depth += 1
                if depth == _DEEPEST + 1:
                    parts += (body[begin : token.start()], b"null")
            case 0x7D | 0x5D:
                if depth == _DEEPEST + 1:
                    begin = token.end()
                depth -= 1
    return b"".join(parts) + body[begin:]


def _version(one: Any) -> str:
    return one.version if isinstance(one, Undecodable) else one.metadata.resource_version


NODES = Collection("nodes", "Node", "/api/v1/nodes", wire.Node, by_name=True)
PODS = Collection("pods", "Pod", "/api/v1/pods", wire.Pod)
REPLICASETS = Collection("replicasets.apps", "ReplicaSet", "/apis/apps/v1/replicasets", wire.ReplicaSet)
DEPLOYMENTS = Collection("deployments.apps", "Deployment", "/apis/apps/v1/deployments", wire.Deployment)
STATEFULSETS = Collection("statefulsets.apps", "StatefulSet", "/apis/apps/v1/statefulsets", wire.StatefulSet)
JOBS = Collection("jobs.batch", "Job", "/apis/batch/v1/jobs", wire.Job)
VOLCANO_JOBS = Collection("jobs.batch.volcano.sh", "Job", "/apis/batch.volcano.sh/v1alpha1/jobs", wire.VolcanoJob, optional=True)
WORKLOADS: dict[str, tuple[str, str]] = {
    one.name: (one.kind, "batch.volcano.sh" if one is VOLCANO_JOBS else "")
    for one in (REPLICASETS, DEPLOYMENTS, STATEFULSETS, JOBS, VOLCANO_JOBS)
}
"""Of each collection of controllers its kind, and its group where that is not Kubernetes' own (`WorkloadObserved.group`)."""
VOLCANO_RESERVATIONS = Collection(
    "reservations.batch.volcano.sh",
    "Reservation",
    "/apis/batch.volcano.sh/v1alpha1/reservations",
    wire.Reservation,
    optional=True,
)
KOORDINATOR_RESERVATIONS = Collection(
    "reservations.scheduling.koordinator.sh",
    "Reservation",
    "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
    wire.Reservation,
    optional=True,
)
NAMESPACES = Collection("namespaces", "Namespace", "/api/v1/namespaces", objects.Named, by_name=True)
PRIORITY_CLASSES = Collection(
    "priorityclasses.scheduling.k8s.io",
    "PriorityClass",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    objects.PriorityClass,
    by_name=True,
)
QUEUES = Collection(
    "queues.scheduling.volcano.sh",
    "Queue",
    "/apis/scheduling.volcano.sh/v1beta1/queues",
    objects.Custom,
    by_name=True,
    optional=True,
)
POD_GROUPS = Collection(
    "podgroups.scheduling.volcano.sh",
    "PodGroup",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    objects.Custom,
    by_name=True,
    optional=True,
)
UPSTREAM_GROUPS = Collection(
    "podgroups.scheduling.k8s.io",
    "PodGroup",
    "/apis/scheduling.k8s.io/v1beta1/podgroups",
    objects.Custom,
    by_name=True,
    optional=True,
    discovered=True,
)
STORAGE_CLASSES = Collection(
    "storageclasses.storage.k8s.io",
    "StorageClass",
    "/apis/storage.k8s.io/v1/storageclasses",
    objects.StorageClass,
    by_name=True,
)
CLAIMS = Collection(
    "persistentvolumeclaims", "PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", objects.Claim, by_name=True
)
VOLUMES = Collection(
    "persistentvolumes", "PersistentVolume", "/api/v1/persistentvolumes", objects.Volume, by_name=True
)
CSI_NODES = Collection("csinodes.storage.k8s.io", "CSINode", "/apis/storage.k8s.io/v1/csinodes", objects.CsiNode, by_name=True)
NUMA = Collection(
    "noderesourcetopologies.topology.node.k8s.io",
    "NodeResourceTopology",
    "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    objects.Topology,
    by_name=True,
    optional=True,
)
DEVICES = Collection(
    "devices.scheduling.koordinator.sh",
    "Device",
    "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    objects.Device,
    by_name=True,
    optional=True,
)
HYPER_NODES = Collection(
    "hypernodes.topology.volcano.sh",
    "HyperNode",
    "/apis/topology.volcano.sh/v1alpha1/hypernodes",
    objects.Custom,
    by_name=True,
    optional=True,
)
RESOURCE_SLICES = Collection(
    "resourceslices.resource.k8s.io",
    "ResourceSlice",
    "/apis/resource.k8s.io/v1/resourceslices",
    dynamic.ResourceSlice,
    by_name=True,
    optional=True,
    discovered=True,
)
RESOURCE_CLAIMS = Collection(
    "resourceclaims.resource.k8s.io",
    "ResourceClaim",
    "/apis/resource.k8s.io/v1/resourceclaims",
    dynamic.ResourceClaim,
    by_name=True,
    optional=True,
    discovered=True,
)
DEVICE_CLASSES = Collection(
    "deviceclasses.resource.k8s.io",
    "DeviceClass",
    "/apis/resource.k8s.io/v1/deviceclasses",
    dynamic.DeviceClass,
    by_name=True,
    optional=True,
    discovered=True,
)
BUDGETS = Collection(
    "poddisruptionbudgets.policy",
    "PodDisruptionBudget",
    "/apis/policy/v1/poddisruptionbudgets",
    objects.Budget,
    by_name=True,
)
QUOTAS = Collection("resourcequotas", "ResourceQuota", "/api/v1/resourcequotas", objects.Quota, by_name=True)
COLLECTIONS: tuple[Collection[Any], ...] = (
    NODES,
    PODS,
    REPLICASETS,
    DEPLOYMENTS,
    STATEFULSETS,
    JOBS,
    VOLCANO_JOBS,
    VOLCANO_RESERVATIONS,
    KOORDINATOR_RESERVATIONS,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    POD_GROUPS,
    UPSTREAM_GROUPS,
    STORAGE_CLASSES,
    CLAIMS,
    VOLUMES,
    CSI_NODES,
    NUMA,
    DEVICES,
    HYPER_NODES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    DEVICE_CLASSES,
    BUDGETS,
    QUOTAS,
)
