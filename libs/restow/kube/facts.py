"""Changes of the stream → contract events: a pure diff against what the fold knows (DESIGN 3).

Nothing comes out when nothing changed: resourceVersion, managed fields, heartbeats and our own status writes cause no
fact, and objects may be delivered again at any time.
"""

import traceback
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Protocol

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import NodeName, PodUid, ReservationUid, ShapeId
from restow.contracts.values import PodShape
from restow.kube import decode as d
from restow.kube import reflector as r
from restow.kube.describe import node_fact, pod_fact
from restow.kube.objects import OBJECTS
from restow.kube.requests import FactError
from restow.kube.reservations import ReservationApi, reservation_fact
from restow.kube.troubles import Plain, Told, tell
from restow.kube.workloads import workload_fact

_LONGEST = 500
"""Characters of a reason in a fact."""
_OVER = ("Succeeded", "Failed")
_APIS: dict[str, ReservationApi] = {d.VOLCANO_RESERVATIONS.name: "volcano", d.KOORDINATOR_RESERVATIONS.name: "koordinator"}


class Known(Protocol):
    """What the fold holds of the cluster's facts; None is "never seen, or gone". `known.StateKnown` is the usual one."""

    def shape(self, shape: ShapeId) -> bool: ...
    def ours(self, scheduler: str) -> bool:
        """Whether our session places the pods that name this scheduler: what it nominates the log knows before the API."""
        ...

    def node(self, name: NodeName) -> e.NodeObserved | None: ...
    def pod(self, uid: PodUid) -> tuple[e.PodObserved, e.PodChanged] | None:
        """The description that was logged last, and the latest moving part (which wins over the description's)."""
        ...

    def trouble(self, uid: PodUid) -> e.PodTroubled | None: ...
    def workload(self, uid: str) -> e.WorkloadObserved | None: ...
    def reservation(self, uid: ReservationUid) -> e.ReservationObserved | None: ...
    def fact(self, collection: str, key: str) -> e.Event | None:
        """Of a collection in `OBJECTS`."""
        ...

    def keys(self, collection: str) -> Iterable[str]:
        """Of everything that is known of this collection (`Collection.name`), as `Collection.key` makes them."""
        ...


class Batch:
    """Gathers the events of one commit. What the batch itself has said is known to it, so changes may depend on each
    other; after the commit was folded a new batch begins."""

    def __init__(self, known: Known):
        self._known = known
        self._said: dict[tuple[str, str], Any] = {}
        self._shapes: set[ShapeId] = set()
        self._versions: dict[str, str] = {}
        self._events: list[e.Event] = []
        self._left: list[e.Event] = []
        """Pods that had gone or ended before a list. They are told first: a list has another order than what has happened, and where it names who
        has come in their place before them, the node would have both for a moment, so that holds gave way."""
        self._troubles: dict[PodUid, e.PodTroubled] = {}
        self._ended: set[PodUid] = set()
        """Pods that were gone in between, with all that was known of them."""
        self.undecodable: list[d.Undecodable] = []
        """Objects that could not be read. They stay as the log knows them until they can be read, or are gone; a node takes no more pods meanwhile."""

    def __len__(self) -> int:
        return len(self._left) + len(self._events) + len(self._troubles)

    def add(self, collection: d.Collection[Any], change: r.Change, most: int = 1 << 62, *, listed: bool = False) -> bool:
        """Whether all of the change is in. `listed`: it is of a list, whose order means nothing. A list that finds more gone than `most` is the only one that is not: it says so many, not how
        far the collection is, and is to be added again when they are folded."""
        match change:
            case r.Upsert(one):
                self._upsert(collection, one, listed)
            case r.Delete(key):
                self._gone(collection, key)
            case r.Replace(keys, version):
                gone = sorted(self._all_keys(collection).difference(keys))
                for key in gone[: max(1, most)]:
                    # Whoever the batch has said something of goes after that.
                    self._gone(collection, key, first=collection is d.PODS and (collection.name, key) not in self._said)
                if len(gone) > max(1, most):
                    return False
                if version:
                    self._versions[collection.name] = version
            case r.Bookmark(version):
                self._versions[collection.name] = version
            case r.Restart():
                pass
        return True

    def synced(self, collection: d.Collection[Any], version: str) -> None:
        """The stream has handed on everything up to here (`Reflector.version`)."""
        self._versions[collection.name] = version

    def events(self) -> tuple[e.Event, ...]:
        """Who had gone or ended before a list, the facts in order, then what troubles pods, then how far each collection is."""
        return (*self._left, *self._events, *self._troubles.values(), *(e.Synced(kind, version) for kind, version in sorted(self._versions.items())))

    # -- one object ----------------------------------------------------------------------------------------------------

    def _upsert(self, collection: d.Collection[Any], one: Any, listed: bool) -> None:
        if isinstance(one, d.Undecodable):
            self._unreadable(collection, one)
            return
        try:
            if collection is d.PODS:
                told = tell(one)
                self._pod(*pod_fact(one, told=told), told, listed)
            elif collection is d.NODES:
                self._node(node_fact(one))
            elif (api := _APIS.get(collection.name)) is not None:
                self._reservation(collection, *reservation_fact(one, api))
            elif (form := OBJECTS.get(collection.name)) is not None:
                self._object(collection, collection.key(one), form.describe(one))
            else:
                self._workload(collection, workload_fact(one, collection))
        except Exception as error:
            # Not only FactError: one object that nobody has foreseen must not keep all others from being read, at every list anew.
            meta = one.metadata
            foreseen = isinstance(error, FactError)
            why = str(error) if foreseen else f"{type(error).__name__}: {error}"
            trace = "" if foreseen else "".join(traceback.format_exception(error))
            self._unreadable(collection, d.Undecodable(collection.kind, meta.namespace, meta.name, meta.uid, why, meta.resource_version, trace))

    def _unreadable(self, collection: d.Collection[Any], one: d.Undecodable) -> None:
        self.undecodable.append(one)
        known = self._lookup(d.NODES, one.name) if collection is d.NODES else None
        if known is None:
            return
        if one.uid and known.uid != one.uid:
            self._gone(d.NODES, one.name)
        else:
            # What it has now is not known: who is there stays, and nobody else comes.
            self._node(replace(known, unschedulable=True, unreadable=one.message[:_LONGEST]))

    def _pod(self, shape: PodShape, shape_id: ShapeId, fact: e.PodObserved, told: Told, listed: bool) -> None:
        if fact.nominated and self._known.ours(shape.scheduler):
            fact = replace(fact, nominated=NodeName(""))
        known = self._lookup(d.PODS, fact.pod)
        if known is not None and fact.deleting and known[1].deleting:
            # A kubelet's last request brings the end forward; that it ends is known.
            fact = replace(fact, deleting=known[1].deleting)
        moving = fact.moving()
        if known is None or not _same_description(known[0], fact):
            self._declare(shape_id, shape)
            self._say(d.PODS, fact.pod, (fact, moving), fact)
        elif known[1] != moving and (told.plain is not None or _MOVED(known[1]) != _MOVED(moving)):
            # Where the status is not plain, what is known of a plain one means nothing, and may stay.
            ended = listed and fact.phase in _OVER and (d.PODS.name, fact.pod) not in self._said
            self._say(d.PODS, fact.pod, (known[0], moving), moving, first=ended)
        if told.troubles is not None:
            self._troubled(e.PodTroubled(fact.pod, *told.troubles))
        else:
            self._troubles.pop(fact.pod, None)

    def _troubled(self, fact: e.PodTroubled) -> None:
        """Only the last of a batch is told, and nothing of a pod that the batch has seen being deleted: an eviction sets a condition
        just before that. Of most pods there is nothing to say, and nothing was."""
        known = None if fact.pod in self._ended else self._known.trouble(fact.pod)
        if fact == (known or e.PodTroubled(fact.pod)):
            self._troubles.pop(fact.pod, None)
        else:
            self._troubles[fact.pod] = fact

    def _node(self, fact: e.NodeObserved) -> None:
        known = self._lookup(d.NODES, fact.name)
        if known == fact:
            return
        if known is not None and known.uid != fact.uid:
            # Another machine under the same name: what was held on the first one is lost (RULES G-1).
            self._events.append(e.NodeGone(fact.name))
        self._say(d.NODES, fact.name, fact, fact)

    def _object(self, collection: d.Collection[Any], key: str, fact: e.Event) -> None:
        known = self._lookup(collection, key)
        if known == fact:
            return
        if known is not None and getattr(known, "uid", "") != getattr(fact, "uid", ""):
            # Another object under the same name: what was decided for the first one does not count for it.
            self._events.append(OBJECTS[collection.name].gone(key))
        self._say(collection, key, fact, fact)

    def _workload(self, collection: d.Collection[Any], fact: e.WorkloadObserved) -> None:
        if self._lookup(collection, fact.uid) != fact:
            self._say(collection, fact.uid, fact, fact)

    def _reservation(
        self, collection: d.Collection[Any], shapes: dict[ShapeId, PodShape], fact: e.ReservationObserved
    ) -> None:
        if self._lookup(collection, fact.reservation) == fact:
            return
        for shape_id, shape in shapes.items():
            self._declare(shape_id, shape)
        self._say(collection, fact.reservation, fact, fact)

    def _gone(self, collection: d.Collection[Any], key: str, *, first: bool = False) -> None:
        if self._lookup(collection, key) is None:
            return
        if collection is d.PODS:
            self._troubles.pop(PodUid(key), None)
            self._ended.add(PodUid(key))
            event: e.Event = e.PodGone(PodUid(key))
        elif collection is d.NODES:
            event = e.NodeGone(NodeName(key))
        elif collection.name in _APIS:
            event = e.ReservationGone(ReservationUid(key))
        elif (form := OBJECTS.get(collection.name)) is not None:
            event = form.gone(key)
        else:
            event = e.WorkloadGone(key)
        self._say(collection, key, None, event, first=first)

    # -- what is known ---------------------------------------------------------------------------------------------------

    def _declare(self, shape_id: ShapeId, shape: PodShape) -> None:
        if shape_id not in self._shapes and not self._known.shape(shape_id):
            self._shapes.add(shape_id)
            self._events.append(e.ShapeDeclared(shape_id, shape))

    def _say(self, collection: d.Collection[Any], key: str, fact: Any, event: e.Event, *, first: bool = False) -> None:
        self._said[collection.name, key] = fact
        (self._left if first else self._events).append(event)

    def _lookup(self, collection: d.Collection[Any], key: str) -> Any:
        place = collection.name, key
        if place in self._said:
            return self._said[place]
        if collection is d.PODS:
            return self._known.pod(PodUid(key))
        if collection is d.NODES:
            return self._known.node(NodeName(key))
        if collection.name in _APIS:
            return self._known.reservation(ReservationUid(key))
        if collection.name in OBJECTS:
            return self._known.fact(collection.name, key)
        return self._known.workload(key)

    def _all_keys(self, collection: d.Collection[Any]) -> set[str]:
        keys = set(self._known.keys(collection.name))
        for (name, key), fact in self._said.items():
            if name == collection.name:
                keys.add(key) if fact is not None else keys.discard(key)
        return keys


_DESCRIPTION = attrgetter(*(name for name in e.PodObserved.__struct_fields__ if name not in e.PodChanged.__struct_fields__))


_MOVED = attrgetter(*(name for name in e.PodChanged.__struct_fields__ if name not in Plain._fields))
"""What a pod's moving part says of any pod."""


def _same_description(known: e.PodObserved, fact: e.PodObserved) -> bool:
    """Equal but for the moving part."""
    return _DESCRIPTION(known) == _DESCRIPTION(fact)
