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


class TreeQueue:
    """A queue in the tree. `above` are its ancestors, the nearest first, the root last. `guarantee` and `deserved` are
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


def plant(queues: Mapping[str, QueueObserved], total: Mapping[str, int]) -> dict[str, TreeQueue]:
    """The tree of these queues in a cluster that has `total`. Never raises; depends on no order. O(queues · depth)."""
    names = sorted({ROOT, DEFAULT_QUEUE, *queues})
    tree_queues = {name: TreeQueue(name, queues.get(name)) for name in names}
    _link(tree_queues, queues)
    top_down = sorted(names, key=lambda name: (len(tree_queues[name].above), name))
    for name in reversed(top_down):
        _judge(tree_queues, tree_queues[name], total)
    for name in top_down:
        _inherit(tree_queues, tree_queues[name])
    _limit(tree_queues, top_down, total)
    return tree_queues


def _link(tree_queues: dict[str, TreeQueue], queues: Mapping[str, QueueObserved]) -> None:
    """Find everybody's ancestors. What is in a cycle, or below something that is or that does not exist, has none."""
    for name, tree_queue in tree_queues.items():
        if name == ROOT:
            continue
        path: list[str] = []
        at = name
        while at != ROOT:
            above = (queues[at].parent if at in queues else "") or ROOT
            if above not in tree_queues:
                whose = "its" if at == name else f"queue {at}'s"
                tree_queue.wrong = tree_queue.wrong or f"{whose} parent {above} does not exist"
                break
            if above == name or above in path:
                loop = [name, *path] if above == name else path[path.index(above) :]
                tree_queue.wrong = tree_queue.wrong or f"its parents go round in a circle: {_circle(loop)}"
                break
            path.append(above)
            at = above
        else:
            tree_queue.above = tuple(path)
            tree_queues[path[0]].below.append(name)


def _circle(names: list[str]) -> str:
    """Said alike by all in it, from the first name on."""
    first = names.index(min(names))
    return " → ".join([*names[first:], *names[:first], names[first]])


def _judge(tree_queues: dict[str, TreeQueue], tree_queue: TreeQueue, total: Mapping[str, int]) -> None:
    """Children first: what they are guaranteed counts for their parent, unless they are wrong."""
    asked: Amounts = {}
    for child in tree_queue.below:
        if not tree_queues[child].wrong:
            for resource, amount in tree_queues[child].guarantee.items():
                asked[resource] = asked.get(resource, 0) + amount
    wrong = ""
    for resource, amount in sorted(tree_queue.guarantee.items()):
        if amount > total.get(resource, 0):
            wrong = wrong or f"guarantee of {r.shown(resource, amount)} is above what the cluster has, {r.amount(resource, total.get(resource, 0))}"
    for resource, amount in sorted(asked.items()):
        if tree_queue.name == ROOT:
            continue  # more than the cluster has: each may use its own guarantee, and nobody else anything
        if resource in tree_queue.guarantee and amount > tree_queue.guarantee[resource]:
            wrong = wrong or f"its children's guarantees add up to {r.shown(resource, amount)}, above its own {r.amount(resource, tree_queue.guarantee[resource])}"
        tree_queue.guarantee.setdefault(resource, amount)
    for what, amounts in (("guarantee", tree_queue.guarantee), ("deserved", tree_queue.deserved)):
        for resource, amount in sorted(amounts.items()):
            if resource in tree_queue.capability and amount > tree_queue.capability[resource]:
                wrong = wrong or f"{what} of {r.shown(resource, amount)} is above its capability {r.amount(resource, tree_queue.capability[resource])}"
    tree_queue.wrong = tree_queue.wrong or wrong


def _inherit(tree_queues: dict[str, TreeQueue], tree_queue: TreeQueue) -> None:
    """Below a wrong queue all are wrong; below a closed one all are closed. Parents first."""
    if not tree_queue.above:
        return
    parent = tree_queues[tree_queue.above[0]]
    if parent.wrong and not tree_queue.wrong:
        tree_queue.wrong = parent.wrong if parent.wrong.startswith("queue ") else f"queue {parent.name}: {parent.wrong}"
    tree_queue.shut = tree_queue.shut or parent.shut


def _limit(tree_queues: dict[str, TreeQueue], top_down: Iterable[str], total: Mapping[str, int]) -> None:
    """`real` is the parent's without what its other children are guaranteed, and at most the capability; a resource of which
    nobody is guaranteed anything and nobody's capability says anything is not limited: nodes say what there is."""
    for name in top_down:
        tree_queue = tree_queues[name]
        right = [tree_queues[child] for child in tree_queue.below if not tree_queues[child].wrong]
        promised: Amounts = {}
        for child in right:
            for resource, amount in child.guarantee.items():
                promised[resource] = promised.get(resource, 0) + amount
        if name == ROOT:
            tree_queue.real = {resource: total.get(resource, 0) for resource, amount in promised.items() if amount}
            _cap(tree_queue.real, tree_queue.capability)
        for child in map(tree_queues.__getitem__, tree_queue.below):
            own = child.guarantee if not child.wrong else {}
            for resource, most in tree_queue.real.items():
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
