"""The arguments of the actions, as Volcano's `configurations` or seed 002's list of actions give them."""

import msgspec

from restow.domain.session import args
from restow.domain.session.args import Arguments, NoArgs


class SearchArgs(Arguments, frozen=True):
    """Volcano's switch for keeping what was found unfitting. Read so that its files are accepted; it changes nothing, since
    what was computed is always kept here, and exact."""

    predicate_error_cache: bool = msgspec.field(name="predicateErrorCacheEnable", default=True)


class PreemptArgs(SearchArgs, frozen=True):
    """Volcano's limits of its search for nodes. Read, and without effect: every node is always considered."""

    topology_aware: bool = msgspec.field(name="enableTopologyAwarePreemption", default=False)
    workers: int = msgspec.field(name="topologyAwarePreemptWorkerNum", default=16)
    percentage: int = msgspec.field(name="minCandidateNodesPercentage", default=10)
    least: int = msgspec.field(name="minCandidateNodesAbsolute", default=1)
    most: int = msgspec.field(name="maxCandidateNodesAbsolute", default=100)


class ReserveArgs(Arguments, frozen=True):
    """For `reserve` after `allocate` (seed 002, RULES 002-1). `starvingJobTimeThreshold`: seconds that a job waits before it
    starves; two days where nothing is said, as in the seed. `reservedNodePercent`: of the nodes, rounded up."""

    starving_job_time_threshold: int = msgspec.field(name="starvingJobTimeThreshold", default=172_800)
    reserved_node_percent: int = msgspec.field(name="reservedNodePercent", default=100)

    def check(self) -> str:
        if not 0 <= self.starving_job_time_threshold <= args.MAX_FACTOR * 1000:
            return f"starvingJobTimeThreshold: {self.starving_job_time_threshold}; allowed: 0 to {args.MAX_FACTOR * 1000} (seconds)"
        if not 1 <= self.reserved_node_percent <= 100:
            return f"reservedNodePercent: {self.reserved_node_percent}; allowed: 1 to 100"
        return ""


ARGS: dict[str, type[Arguments]] = {
    "enqueue": NoArgs,
    "reserve": ReserveArgs,
    "allocate": SearchArgs,
    "backfill": SearchArgs,
    "preempt": PreemptArgs,
    "reclaim": SearchArgs,
}
