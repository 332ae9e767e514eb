"""Plugin `network-topology-aware`: a gang is placed in the narrowest block of nodes that holds it, as its PodGroup's `networkTopology` says (hard or soft).

Volcano's name. Blocks come from HyperNodes, or from node labels (`levels`, the widest first). What Volcano says of filling HyperNodes has no effect: of blocks that do the one is
taken that holds the least besides."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.contracts.events import PodObserved
from restow.domain.network.blocks import NO_BLOCK
from restow.domain.network.reach import LEVELS, NO_TIER, of_pod, reach, unknown_tier
from restow.domain.session.args import Arguments, weights_wrong, without_prefix
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import Job
from restow.domain.session.plugins.network_topology_aware.choice import Choice
from restow.domain.session.plugins.network_topology_aware.groups import Groups
from restow.domain.session.plugins.network_topology_aware.rule import Near, Nearest
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

BINPACK = "hypernode."
_MAX_KEY = 317
"""Characters of a label's key: a prefix of 253, a slash, and a name of 63."""


class Args(Arguments, frozen=True):
    """`levels`: node labels, the widest level first. `weight` is that of the score for nodes that are near to those of the group that are there."""

    weight: int = 1
    levels: tuple[str, ...] = msgspec.field(name=LEVELS, default=())

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        own = without_prefix(said, BINPACK)
        if isinstance(keys := own.get(LEVELS), str):
            own[LEVELS] = [key.strip() for key in keys.split(",") if key.strip()]
        return super().read(own)

    def check(self) -> str:
        shown = ", ".join(self.levels)
        if any(not key or len(key) > _MAX_KEY for key in self.levels) or len(set(self.levels)) < len(self.levels):
            return f"{LEVELS}: {shown}; allowed: keys of node labels, each once, the widest level first"
        return weights_wrong({"weight": self.weight})


def open(session: Session, args: Args) -> None:
    groups = Groups(session.state)
    session.extensions.filter(Near(session, groups))
    session.extensions.score("nodeOrder", Nearest(session, groups, args.weight))
    session.extensions.blocks = Choice(session, groups)
    session.extensions.veto("jobValid", lambda job: _valid(session.state, job))


def _valid(state: ClusterState, job: Job) -> Refusal | None:
    """Where no block is of a tier that will do, whatever becomes free."""
    return _refused(state, state.pods[job.tasks[0]].fact) if job.group is not None and job.tasks else None


def turns_away(state: ClusterState, args: Args, pod: PodObserved) -> Refusal | None:
    return _refused(state, pod)


def _refused(state: ClusterState, pod: PodObserved) -> Refusal | None:
    topology = of_pod(state, pod)
    if topology is None or reach(state, topology).top != NO_BLOCK:
        return None
    return Refusal(NO_TIER, unknown_tier(state, topology)) if topology.mode == "hard" else None

