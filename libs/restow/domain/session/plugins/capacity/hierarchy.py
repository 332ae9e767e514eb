"""Queues as a tree: who is below whom, what each may use at most, and which queues are wrong. Pure, by resource name.

The root is there without an object. What a queue's fact does not say of a resource does not limit it; what its children are
guaranteed it is guaranteed, too. A wrong queue takes no jobs, nor do those below it, and it keeps nothing from others."""

from collections.abc import Iterable, Mapping

from restow.contracts.events import QueueObserved
from restow.domain import resources as r
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.session.queues import SHUT

ROOT = "root"
Amounts = dict[str, int]
"""By resource."""


class Place:
    """A queue's place in the tree. `above` are its ancestors, the nearest first, the root last. `guarantee` and `deserved` are
    what counts, `real` is what it may use at most while nobody else uses anything, missing where nothing limits it. `wrong` says why it takes no jobs."""

    __slots__ = ("above", "below", "capability", "deserved", "guarantee", "name", "priority", "real", "reclaimable", "shut", "wrong")

    def __init__(self, name: str, fact: QueueObserved | None) -> None:
        self.name = name
        self.above: tuple[str, ...] = ()
        self.below: list[str] = []
        self.capability: Amounts = dict(fact.capability) if fact is not None else {}
        self.guarantee: Amounts = dict(fact.guarantee) if fact is not None else {}
        self.deserved: Amounts = dict(fact.deserved) if fact is not None else {}
        self.priority = fact.priority if fact is not None else 0
        self.reclaimable = fact.reclaimable if fact is not None else True
        self.shut = fact.state if fact is not None and fact.state in SHUT else ""
        self.wrong = fact.invalid if fact is not None else ""
        self.real: Amounts = {}


def plant(queues: Mapping[str, QueueObserved], total: Mapping[str, int]) -> dict[str, Place]:
    """The tree of these queues in a cluster that has `total`. Never raises; depends on no order. O(queues · depth)."""
    names = sorted({ROOT, DEFAULT_QUEUE, *queues})
    places = {name: Place(name, queues.get(name)) for name in names}
    _link(places, queues)
    top_down = sorted(names, key=lambda name: (len(places[name].above), name))
    for name in reversed(top_down):
        _judge(places, places[name], total)
    for name in top_down:
        _inherit(places, places[name])
    _limit(places, top_down, total)
    return places


def _link(places: dict[str, Place], queues: Mapping[str, QueueObserved]) -> None:
    """Find everybody's ancestors. What is in a cycle, or below something that is or that does not exist, has none."""
    for name, place in places.items():
        if name == ROOT:
            continue
        path: list[str] = []
        at = name
        while at != ROOT:
            above = (queues[at].parent if at in queues else "") or ROOT
            if above not in places:
                whose = "its" if at == name else f"queue {at}'s"
                place.wrong = place.wrong or f"{whose} parent {above} does not exist"
                break
            if above == name or above in path:
                loop = [name, *path] if above == name else path[path.index(above) :]
                place.wrong = place.wrong or f"its parents go round in a circle: {_circle(loop)}"
                break
            path.append(above)
            at = above
        else:
            place.above = tuple(path)
            places[path[0]].below.append(name)


def _circle(names: list[str]) -> str:
    """Said alike by all in it, from the first name on."""
    first = names.index(min(names))
    return " → ".join([*names[first:], *names[:first], names[first]])


def _judge(places: dict[str, Place], place: Place, total: Mapping[str, int]) -> None:
    """Children first: what they are guaranteed counts for their parent, unless they are wrong."""
    asked: Amounts = {}
    for child in place.below:
        if not places[child].wrong:
            for resource, amount in places[child].guarantee.items():
                asked[resource] = asked.get(resource, 0) + amount
    wrong = ""
    for resource, amount in sorted(place.guarantee.items()):
        if amount > total.get(resource, 0):
            wrong = wrong or f"guarantee of {r.shown(resource, amount)} is above what the cluster has, {r.amount(resource, total.get(resource, 0))}"
    for resource, amount in sorted(asked.items()):
        if place.name == ROOT:
            continue  # more than the cluster has: each may use its own guarantee, and nobody else anything
        if resource in place.guarantee and amount > place.guarantee[resource]:
            wrong = wrong or f"its children's guarantees add up to {r.shown(resource, amount)}, above its own {r.amount(resource, place.guarantee[resource])}"
        place.guarantee.setdefault(resource, amount)
    for what, amounts in (("guarantee", place.guarantee), ("deserved", place.deserved)):
        for resource, amount in sorted(amounts.items()):
            if resource in place.capability and amount > place.capability[resource]:
                wrong = wrong or f"{what} of {r.shown(resource, amount)} is above its capability {r.amount(resource, place.capability[resource])}"
    place.wrong = place.wrong or wrong


def _inherit(places: dict[str, Place], place: Place) -> None:
    """Below a wrong queue all are wrong; below a closed one all are closed. Parents first."""
    if not place.above:
        return
    parent = places[place.above[0]]
    if parent.wrong and not place.wrong:
        place.wrong = parent.wrong if parent.wrong.startswith("queue ") else f"queue {parent.name}: {parent.wrong}"
    place.shut = place.shut or parent.shut


def _limit(places: dict[str, Place], top_down: Iterable[str], total: Mapping[str, int]) -> None:
    """`real` is the parent's without what its other children are guaranteed, and at most the capability; a resource of which
    nobody is guaranteed anything and nobody's capability says anything is not limited: nodes say what there is."""
    for name in top_down:
        place = places[name]
        right = [places[child] for child in place.below if not places[child].wrong]
        promised: Amounts = {}
        for child in right:
            for resource, amount in child.guarantee.items():
                promised[resource] = promised.get(resource, 0) + amount
        if name == ROOT:
            place.real = {resource: total.get(resource, 0) for resource, amount in promised.items() if amount}
            _cap(place.real, place.capability)
        for child in map(places.__getitem__, place.below):
            own = child.guarantee if not child.wrong else {}
            for resource, most in place.real.items():
                child.real[resource] = min(max(most - promised.get(resource, 0), 0) + own.get(resource, 0), most)
            _cap(child.real, child.capability)
            for resource, amount in own.items():
                child.deserved[resource] = max(child.deserved.get(resource, 0), amount)
            for resource in child.deserved:
                if resource in child.real:
                    child.deserved[resource] = min(child.deserved[resource], max(child.real[resource], own.get(resource, 0)))


def _cap(real: Amounts, capability: Mapping[str, int]) -> None:
    for resource, most in capability.items():
        real[resource] = min(real.get(resource, most), most)
