"""A second, slow reading of the events: what the status of each Reservation says, without the fold, its indexes or its table.

It is for worlds with capacity for everybody: nothing is ever over-committed, so a place on its node has all its capacity at once.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from restow.contracts import events as e

ON_NODE = ("Available", "Waiting")


class Reader:
    """Feed it every event with its time; `said(uid)` is what a user should read."""

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, int]] = {}
        self.nodes: set[str] = set()
        self.pods: dict[str, e.PodObserved] = {}
        self.live: dict[str, Any] = {}
        self.meant: dict[str, str] = {}
        self.all: dict[str, SimpleNamespace] = {}
        self.slots: dict[str, dict[str, SimpleNamespace]] = {}
        self.back: dict[tuple[str, str], str] = {}
        """Places that the session is asked to release, and why."""
        self.anew = ""
        """Which Reservation has just been accepted."""
        self.allocations: dict[str, SimpleNamespace] = {}

    def read(self, event: e.Event, time: int) -> None:
        self.anew = ""
        getattr(self, f"_{type(event).__name__}", lambda event: None)(event)
        for uid in list(self.all):
            self._judge(uid, time, self.anew == uid)
        for uid, one in list(self.all.items()):
            if one.gone and not any(place.phase in ON_NODE for place in self.slots[uid].values()):
                del self.all[uid], self.slots[uid]

    # -- what is said ----------------------------------------------------------------------------------------------------

    def said(self, uid: str) -> dict[str, Any]:
        one, places = self.all[uid], self.slots[uid]
        owners, held, used = [], Counter(), Counter()
        for name, place in places.items():
            pods = [pod for pod, draw in self.allocations.items() if draw.key == (uid, name)]
            if place.phase == "Succeeded":
                owners.append(place.owner)
                used.update(place.taken)
            else:
                owners += [(self.pods[pod].namespace, self.pods[pod].name, pod) for pod in pods]
                for pod in pods:
                    used.update(self.allocations[pod].amounts)
            if place.phase in (*ON_NODE, "Succeeded") or pods:
                held.update(self.requests[place.shape])
        return {
            "phase": one.phase,
            "reason": one.reason,
            "counts": Counter(place.phase for place in places.values()),
            "owners": sorted(owners),
            "allocatable": {name: amount for name, amount in held.items() if amount and name != "pods"},
            "allocated": {name: amount for name, amount in used.items() if amount and name != "pods"},
            "nodes": sorted(place.node for place in places.values() if place.node),
            "history": sorted(one.times.items()),
        }

    def _judge(self, uid: str, time: int, anew: bool) -> None:
        one, places = self.all[uid], self.slots[uid].values()
        phase, reason = self._phase(one, places, anew)
        if phase == "Failed":
            for place in places:
                if place.phase == "Pending":
                    place.phase, place.reason = "Failed", reason
            phase, reason = self._phase(one, places, anew)
        if phase != one.phase or not one.times:
            one.times[phase] = time
        one.phase, one.reason = phase, reason

    def _phase(self, one: SimpleNamespace, places: Any, anew: bool) -> tuple[str, str]:
        of = Counter(place.phase for place in places)
        held, waiting, used, pending = (of[phase] for phase in ("Available", "Waiting", "Succeeded", "Pending"))
        if one.refused > one.accepted:
            return "Failed", one.why
        if used and used == len(places):
            return "Succeeded", "AllHandedOver"
        if self._over(one):
            if one.phase == "Failed":
                return one.phase, one.reason
            if held + waiting:
                return (one.phase, one.reason) if one.phase == "Succeeded" else (one.phase, "Ending")
            if used and one.phase == "Succeeded":
                return "Succeeded", "HandedOver"
            return "Failed", self._end(one)
        if not one.accepted:
            return "Pending", ""
        if held + used >= one.least and held + pending:
            return "Available", self._use(one, places)
        if waiting and held + used + waiting >= one.least:
            return "Waiting", next(place.reason for place in places if place.phase == "Waiting")
        if held + waiting:
            lost = of["Failed"] or (one.phase in ("Available", "Waiting") and not anew)
            return ("Waiting", "HoldLost") if lost else ("Pending", self._why(places))
        if of["Failed"]:
            reasons = {place.reason for place in places if place.phase == "Failed"}
            if not used:
                return "Failed", "Expired" if reasons & {"NodeLost", "Expired"} else min(reasons)
            if not pending:
                return "Succeeded", "HandedOver"
        return "Pending", self._why(places)

    def _use(self, one: SimpleNamespace, places: Any) -> str:
        if one.spec.allocate_once:
            return "Held"
        pods = [draw for draw in self.allocations.values() if draw.key[0] == one.uid and draw.key[1] in self.slots[one.uid]]
        if not pods:
            return "Held"
        left = [amount for place in places if place.phase in ON_NODE for amount in self._left(one.uid, place).values()]
        return "PartlyAllocated" if any(left) else "FullyAllocated"

    @staticmethod
    def _why(places: Any) -> str:
        waits = sorted((place for place in places if place.phase == "Pending" and place.unfit), key=lambda place: place.name)
        return waits[0].unfit if waits else ""

    # -- rules -----------------------------------------------------------------------------------------------------------

    @staticmethod
    def _over(one: SimpleNamespace) -> bool:
        return bool(one.gone or one.expired or one.collected or one.fact.deleting)

    def _end(self, one: SimpleNamespace) -> str:
        if one.gone or one.collected or one.fact.deleting:
            return "Deleted"
        return "Expired" if one.expired else one.why

    def _lives(self, one: SimpleNamespace) -> bool:
        return one.accepted >= one.refused and one.accepted > 0 and not self._over(one)

    def _left(self, uid: str, place: SimpleNamespace) -> Counter:
        left = Counter(self.requests[place.shape])
        for draw in self.allocations.values():
            if draw.key == (uid, place.name):
                left = left - Counter(draw.amounts)
        return left

    def _cancel(self, uid: str, reason: str) -> None:
        for name, place in self.slots[uid].items():
            if place.phase == "Pending":
                place.phase, place.reason = "Failed", reason
            elif place.phase in ON_NODE:
                self.back.setdefault((uid, name), reason)

    def _asked(self, spec: Any) -> dict[str, SimpleNamespace]:
        return {f"{t.name}-{i}": _place(f"{t.name}-{i}", t.shape) for t in spec.tasks for i in range(t.replicas)}

    def _settle(self, pod: str) -> None:
        draw, live = self.allocations.get(pod), self.live.get(pod)
        if draw is None:
            return
        draw.bound |= live is not None and live.node == draw.node
        node = None if live is None or live.phase in ("Succeeded", "Failed") else live.node or self.meant.get(pod)
        if node == draw.node and node in self.nodes:
            return
        del self.allocations[pod]
        uid, name = draw.key
        place = self.slots.get(uid, {}).get(name)
        if place is None or place.node != draw.node or place.phase != "Succeeded" or place.owner[2] != pod or draw.bound:
            return
        one = self.all[uid]
        if not self._lives(one):
            place.owner, place.phase, place.reason = None, "Failed", self._end(one)
            return
        asked = self._asked(one.spec).get(name)
        if asked is None:
            return  # a later generation does not ask for it: it stays as it is
        place.owner, place.phase, place.reason = None, "Waiting", "GivenBack"
        place.asked = asked.shape * (asked.shape != place.shape)
        if place.node not in self.nodes:
            self.back[draw.key] = "NodeLost"

    # -- facts -----------------------------------------------------------------------------------------------------------

    def _ShapeDeclared(self, event: e.ShapeDeclared) -> None:
        self.requests[event.shape] = event.spec.requests

    def _NodeObserved(self, event: e.NodeObserved) -> None:
        self.nodes.add(event.name)

    def _NodeGone(self, event: e.NodeGone) -> None:
        self.nodes.discard(event.name)
        for uid, places in self.slots.items():
            for name, place in places.items():
                if place.phase in ON_NODE and place.node == event.name:
                    self.back[uid, name] = "NodeLost"

    def _PodObserved(self, event: e.PodObserved) -> None:
        self.pods[event.pod] = event
        self.live[event.pod] = event
        self._settle(event.pod)

    def _PodChanged(self, event: e.PodChanged) -> None:
        if event.pod in self.pods:
            self.live[event.pod] = event
            self._settle(event.pod)

    def _PodGone(self, event: e.PodGone) -> None:
        self.live.pop(event.pod, None)
        self._settle(event.pod)
        self.meant.pop(event.pod, None)
        self.pods.pop(event.pod, None)

    def _ReservationObserved(self, event: e.ReservationObserved) -> None:
        uid = event.reservation
        one = self.all.get(uid)
        if one is None:
            one = self.all[uid] = SimpleNamespace(
                uid=uid, fact=event, accepted=0, refused=0, spec=None, least=0, why="", expired=False, gone=False, collected=False,
                revision=0, phase="Pending", reason="", times={},
            )  # fmt: skip
            self.slots[uid] = {}
        elif one.fact.generation != event.generation:
            one.revision = 0
        else:
            one.revision += one.fact.spec != event.spec
        one.fact = event
        if event.deleting:
            self._cancel(uid, "Deleted")

    def _ReservationGone(self, event: e.ReservationGone) -> None:
        if event.reservation in self.all:
            self.all[event.reservation].gone = True
            self._cancel(event.reservation, "Deleted")

    def _Expired(self, event: e.Expired) -> None:
        one = self.all.get(event.reservation)
        if one is not None and not one.expired:
            one.expired = True
            self._cancel(event.reservation, "Expired")

    def _Collected(self, event: e.Collected) -> None:
        if event.reservation in self.all:
            self.all[event.reservation].collected = True
            self._cancel(event.reservation, "Deleted")

    # -- decisions -------------------------------------------------------------------------------------------------------

    def _ReservationAccepted(self, event: e.ReservationAccepted) -> None:
        uid = event.reservation
        one = self.all.get(uid)
        if one is None or self._over(one) or (event.generation, event.revision) != (one.fact.generation, one.revision):
            return
        again, one.accepted, one.spec, one.least = one.accepted == event.generation, event.generation, one.fact.spec, event.min_available
        wanted, places, self.anew = self._asked(one.spec), self.slots[uid], uid
        for name, place in list(places.items()):
            asked = wanted.get(name)
            if place.phase in ON_NODE:
                if self.back.get((uid, name)) == "NodeLost":
                    continue
                if asked is None:
                    self.back[uid, name] = "Superseded"
                else:
                    self.back.pop((uid, name), None)
                    place.asked = "" if asked.shape == place.shape else asked.shape
            elif (place.phase == "Pending" and (asked is None or asked.shape != place.shape)) or (place.phase == "Failed" and not again):
                del places[name]
        for name, place in wanted.items():
            places.setdefault(name, place)

    def _ReservationRefused(self, event: e.ReservationRefused) -> None:
        one = self.all.get(event.reservation)
        if one is not None and (event.generation, event.revision) == (one.fact.generation, one.revision):
            one.accepted, one.refused, one.why = min(one.accepted, event.generation - 1), event.generation, event.reason
            self._cancel(event.reservation, event.reason)

    def _at(self, event: Any, *phases: str) -> SimpleNamespace | None:
        place = self.slots.get(event.reservation, {}).get(event.slot)
        return place if place is not None and place.phase in phases else None

    def _lost(self, event: Any) -> bool:
        return self.back.get((event.reservation, event.slot)) == "NodeLost"

    def _HoldPlaced(self, event: e.HoldPlaced) -> None:
        place = self._at(event, "Pending")
        if place is None or not self._lives(self.all[event.reservation]) or event.shape not in ("", place.shape):
            return
        key = (event.reservation, event.slot)
        self.allocations = {pod: draw for pod, draw in self.allocations.items() if draw.key != key}
        place.phase, place.reason = ("Waiting", "PreAllocation") if event.waiting else ("Available", "")
        place.node = event.node
        if event.node not in self.nodes:
            self.back[key] = "NodeLost"

    def _HoldReady(self, event: e.HoldReady) -> None:
        place = self._at(event, "Waiting")
        if place is not None and (event.reservation, event.slot) not in self.back:
            place.phase, place.reason = "Available", ""

    def _HoldResized(self, event: e.HoldResized) -> None:
        place = self._at(event, *ON_NODE)
        if place is not None and not self._lost(event) and place.asked == event.shape:
            place.shape, place.asked = event.shape, ""

    def _HandedOver(self, event: e.HandedOver) -> None:
        place, live = self._at(event, "Available"), self.live.get(event.pod)
        if place is None or self._lost(event) or place.node != event.node or live is None:
            return
        if live.node is not None or live.phase != "Pending" or live.deleting or event.pod in self.meant:
            return
        key, pod = (event.reservation, event.slot), self.pods[event.pod]
        wanted, left = self.requests[pod.shape], self._left(event.reservation, place)
        amounts = {name: min(amount, left[name]) for name, amount in wanted.items()}
        if self.all[event.reservation].spec.allocate_once:
            amounts = {name: min(amount, self.requests[place.shape].get(name, 0)) for name, amount in wanted.items()}
            place.phase, place.owner, place.taken = "Succeeded", (pod.namespace, pod.name, pod.pod), amounts
            self.back.pop(key, None)
        self.allocations[event.pod] = SimpleNamespace(key=key, node=place.node, amounts=amounts, bound=False)
        self.meant[event.pod] = event.node
        self._settle(event.pod)

    def _HoldReleased(self, event: e.HoldReleased) -> None:
        place = self._at(event, *ON_NODE)
        if place is None:
            return
        uid, name = event.reservation, event.slot
        one = self.all[uid]
        self.back.pop((uid, name), None)
        if event.reason in ("Preempted", "Unavailable") and self._lives(one):
            self.slots[uid][name] = _place(name, place.asked or place.shape)
        elif event.reason == "Superseded" and self._lives(one):
            del self.slots[uid][name]
            asked = self._asked(one.spec).get(name)
            if asked is not None:
                self.slots[uid][name] = asked
        else:
            place.phase, place.reason = "Failed", event.reason

    def _HoldUnfit(self, event: e.HoldUnfit) -> None:
        place = self._at(event, "Pending")
        if place is not None and (event.reasons or event.message):
            place.unfit = event.reason if event.message else "Unschedulable"

    def _PodReleased(self, event: e.PodReleased) -> None:
        if self.meant.pop(event.pod, None) is not None:
            self._settle(event.pod)


def _place(name: str, shape: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, shape=shape, phase="Pending", node="", reason="", asked="", owner=None, unfit="", taken={})
