"""What a log says of the world around the deciders: what came, what ended and how, what users did. Everything that followed from a decision is left out."""

from __future__ import annotations

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.contracts.values import PodShape
from restow.replay.whatif.meter import Measured


class Life(msgspec.Struct):
    """A pod of ours with all that came in its place after evictions of ours: `pods` in their order, `facts` as first seen. Times in ms, 0 for never; all but `seen` are
    of the last of them. `running`: from its bind until it ended by itself in `phase`. `deleted`: somebody else deleted it then, at `deleting` with so many ms until it was gone."""

    pods: list[PodUid]
    facts: list[e.PodObserved]
    seen: Millis
    workload: str
    running: int = 0
    phase: str = ""
    tidied: int = -1
    """Milliseconds from its end, or its deletion, until it was gone; -1 where it stayed."""
    deleted: Millis = Millis(0)
    killed: bool = False
    """It was evicted and nothing came in its place."""
    nodes: list[NodeName] = []
    there: bool = False
    bound: bool = False
    readied: int = -1
    """Of the first of them, where it had its node when it was first seen and was not ready: after so many ms it was; -1 for not so."""


class Arrive(msgspec.Struct, frozen=True):
    life: int


class Delete(msgspec.Struct, frozen=True):
    life: int


class Describe(msgspec.Struct, frozen=True):
    """A pod of ours is described anew: labels, annotations, gates."""

    fact: e.PodObserved


class Ask(msgspec.Struct, frozen=True):
    """Somebody asked for that. Where it is about a plan: that one's `plugin` and the `pods` that it moved; of an approval in part those whose moves were `chosen`."""

    command: c.Command
    plugin: str = ""
    pods: frozenset[PodUid] = frozenset()
    chosen: frozenset[PodUid] = frozenset()


class Leave(msgspec.Struct, frozen=True):
    """The node went away in the record. Who of `there` was on it went, or stayed, as recorded; who is there in the model alone has no record."""

    node: NodeName
    there: frozenset[PodUid]


class Lose(msgspec.Struct, frozen=True):
    """The node is taken away with all that runs there, and its pods' controllers make them again."""

    node: NodeName


Item = e.Event | Arrive | Delete | Describe | Ask | Leave | Lose
"""One thing that happens; an event is folded as it is."""


class Step(msgspec.Struct):
    """One record, as far as it tells of the world."""

    time: Millis
    items: list[Item]


class Delays(msgspec.Struct, frozen=True, rename="camel"):
    """Medians of what the API, controllers and kubelets took, in ms: from a placement until the pod was seen on its node, from there until it was ready, from a move's begin until its
    slot's object was seen, from an eviction until the pod was seen to end, from there until it was gone, and until its successor was seen."""

    bind: int = 0
    ready: int = 0
    hold: int = 0
    evict: int = 0
    gone: int = 0
    successor: int = 0


DAEMON_SET = "DaemonSet"
"""The kind of controllers whose pods are of one node."""
Detail = e.CsiNodeObserved | e.NumaObserved | e.DeviceObserved


class Recorded(msgspec.Struct):
    """A stretch of a log. `begin`: what was there at its begin, as a snapshot, which `seq` commits had led to; empty and 0 where it begins with the log. `steps`: what happened, in order.
    `own_delays`: of a pod, from its placement to its node, and from there to ready (ms)."""

    name: str
    first: Millis
    last: Millis
    steps: list[Step]
    lives: list[Life]
    delays: Delays
    own_delays: dict[PodUid, tuple[int, int]]
    happened: Measured
    nodes: dict[NodeName, e.NodeObserved]
    others: int
    """Decisions of other versions of the deciders than ours."""
    begin: bytes = b""
    seq: int = 0
    there: frozenset[NodeName] = frozenset()
    """Nodes at the begin."""
    shapes: dict[ShapeId, PodShape] = {}
    details: dict[NodeName, dict[str, Detail]] = {}
    """What other objects say of a node, as last seen, by their kind."""
    of_nodes: dict[NodeName, list[tuple[Millis, e.PodObserved]]] = {}
    """Pods that each node has of its own, from when: those of DaemonSets, and static ones."""
