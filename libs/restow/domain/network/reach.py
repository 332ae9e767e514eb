"""Which blocks the pods of a group may be in: what its PodGroup or Kueue's annotations ask for, as the session's configuration lets it be kept."""

from typing import Final, NamedTuple

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName
from restow.contracts.values import NetworkTopology
from restow.domain.changes import Seen
from restow.domain.config import SessionConfig
from restow.domain.groups import Group, group_of
from restow.domain.kueue import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY
from restow.domain.memo import kept
from restow.domain.network.blocks import NO_BLOCK, Blocks, Labels, Source
from restow.domain.network.hyper_nodes import HyperNodes
from restow.domain.state import ClusterState

PLUGIN, LEVELS = "network-topology-aware", "levels"
"""The plugin that keeps all of this, and its argument: node labels, the widest level first."""
HARD: Final = "hard"


class _Configured(NamedTuple):
    config: SessionConfig
    levels: tuple[str, ...] | None


def levels(state: ClusterState) -> tuple[str, ...] | None:
    """The labels of the levels; None where the configuration has not the plugin, and nothing of this is kept."""
    config = state.session_config
    known = state.memo.find(_Configured)
    if known is None or known.config is not config:
        found = next((plugin for tier in config.tiers for plugin in tier if plugin.name == PLUGIN), None)
        known = state.memo.keep(_Configured(config, None if found is None else tuple(found.arguments.get(LEVELS, ()))))
    return known.levels


def asked(state: ClusterState, group: Group, pod: PodObserved | None = None) -> NetworkTopology | None:
    """What is asked for a group: by its PodGroup, else by Kueue's annotations of the pod."""
    spec = state.pod_groups.get(group)
    if spec is None or spec.topology is not None or pod is None:
        return None if spec is None else spec.topology
    if label := pod.annotations.get(REQUIRED_TOPOLOGY):
        return NetworkTopology(HARD, label=label)
    if label := pod.annotations.get(PREFERRED_TOPOLOGY):
        return NetworkTopology("soft", label=label)
    return None


def spokesman(state: ClusterState, group: Group) -> PodObserved | None:
    """Whose annotations count for all of a group: the member that the log saw first."""
    uid = min(state.groups.get(group, ()), key=state.order_of, default=None)
    return None if uid is None else state.pods[uid].fact


def of_pod(state: ClusterState, pod: PodObserved) -> NetworkTopology | None:
    """What is asked for a pod's group; None for a pod on its own."""
    group = group_of(pod) if pod.annotations else None
    return None if group is None else asked(state, group, pod)


class _Kept:
    """The blocks by who says so, for as long as these are asked for."""

    def __init__(self) -> None:
        self.blocks: dict[Source, tuple[Blocks, list[int]]] = {}


MOST_KEPT = 16
"""Sources of blocks that are remembered: every label that somebody's group names is one."""


def blocks(state: ClusterState, topology: NetworkTopology | None = None) -> Blocks:
    """The blocks that this is about, as nodes are now: those of the session's levels, or of a label that is none of them."""
    remembered = state.memo.make(_Kept).blocks
    source = _source(state, topology)
    known = remembered.pop(source, None)
    if known is None:
        while len(remembered) >= MOST_KEPT:
            del remembered[next(iter(remembered))]
        known = Blocks(source), [-1]
    remembered[source] = known  # used last
    _follow(state, *known)
    return known[0]


class _Said:
    """What HyperNodes say, as long as none of them changes; None where there are none."""

    def __init__(self, state: ClusterState) -> None:
        self.source: HyperNodes | None = None
        self._seen = Seen(state.objects)

    def refresh(self, state: ClusterState) -> None:
        [news] = self._seen.news() if not self._seen.all() else [()]
        if news is None or any(name == "hyper_nodes" for name, _ in news):
            self.source = HyperNodes(state.hyper_nodes.values()) if state.hyper_nodes else None


def _source(state: ClusterState, topology: NetworkTopology | None) -> Source:
    """HyperNodes, where there are any, come before the levels, as in Volcano. Who names a label means the label."""
    keys = levels(state) or ()
    if topology is not None and topology.label:
        return Labels(keys if topology.label in keys else (topology.label,))
    return kept(state, _Said).source or Labels(keys)


def _follow(state: ClusterState, found: Blocks, seen: list[int]) -> None:
    size, position = len(state.table.names), state.changed_rows.position
    known = found.at.shape[1]
    if seen[0] == position and size == known:
        return
    changed = state.changed_rows.since(seen[0]) if known else None
    seen[0] = position
    rows = range(size) if changed is None else sorted({*changed, *range(known, size)})
    for row in rows:
        name = state.table.names[row]
        node = state.nodes.get(NodeName(name)) if name else None
        found.set(row, "" if node is None else node.name, {} if node is None else node.labels)


class Reach(NamedTuple):
    """Where a group may be. `top`: the place of the widest tier that will do, NO_BLOCK where no tier does. `hard`: nowhere else."""

    blocks: Blocks
    hard: bool
    top: int

    def among(self, rows: list[int]) -> list[tuple[int, int]]:
        """The blocks that it may be in beside members on these rows, the narrowest first."""
        return [one for one in self.blocks.around(rows) if one[0] <= self.top]

    def beside(self, rows: list[int]) -> np.ndarray:
        """`(nodes,) bool`: where it may be beside members on these rows; with none, in whichever block."""
        if not rows:
            return np.asarray((self.blocks.at[: self.top + 1] != NO_BLOCK).any(axis=0))
        found = self.among(rows)
        return self.blocks.inside(*found[-1]) if found else np.zeros(self.blocks.at.shape[1], bool)


def reach(state: ClusterState, topology: NetworkTopology) -> Reach:
    found = blocks(state, topology)
    if topology.mode != HARD:
        return Reach(found, False, len(found.tiers) - 1)
    if topology.tier is not None:
        return Reach(found, True, found.tier_of(topology.tier))
    return Reach(found, True, found.tier_named(topology.name or topology.label))


NO_TIER = "NoNetworkTopology"
"""Why pods wait whose group names a tier that the cluster does not have."""


def unknown_tier(state: ClusterState, topology: NetworkTopology) -> str:
    """What is said of a group that asks for such a tier."""
    found = blocks(state, topology).tiers
    known = ", ".join(f"{tier.number} ({tier.name})" for tier in found) or "none; there is no HyperNode, and the plugin's levels name no node label"
    said = f"highestTierName {topology.name}" if topology.name else f"highestTierAllowed {topology.tier}"
    return f"networkTopology: {said}; tiers: {known}"


def not_kept(state: ClusterState, topology: NetworkTopology | None) -> str:
    """Why the configuration does not let a hard one be kept; empty where it does, or nothing hard is asked for."""
    if topology is None or topology.mode != HARD or levels(state) is not None:
        return ""
    return f"a hard network topology is kept by the plugin {PLUGIN}, which the configuration does not have"
