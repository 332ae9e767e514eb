"""The framework on one screen: what a plugin is, and what it gets. Behaviour is that of kubernetes-sigs/descheduler.

A plugin is a module of `plugins/`, which has

    NAME    upstream's name, such as "PodLifeTime"
    POINTS  the extension points that it may be enabled at: ("deschedule",) or ("balance",)
    Args    its arguments, what a user may say: an `args.Args`
    run     run(handle, args): looks at pods and calls `handle.evict` or `handle.keep` for each

`plugins/__init__.py` lists them. What may be evicted at all is asked of the profile's filter plugins: DefaultEvictor, and those that have
("filter",), ("preEvictionFilter",) or both as their points. These have `says` instead of `run`: says(point, state, args, now) is called once a
run and returns the plugin's word on each pod, "" or `Word: why it stays`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain import policy_args as a
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.cooling import cooling
from restow.domain.state import ClusterState
from restow.domain.state_maps import OVER
from restow.domain.verdicts import TOGETHER

if TYPE_CHECKING:
    from restow.domain.descheduling.interpreter import Run

Point = Literal["presort", "sort", "deschedule", "balance", "filter", "preEvictionFilter"]
POINTS: tuple[Point, ...] = ("presort", "sort", "deschedule", "balance", "filter", "preEvictionFilter")


ALREADY = "Evicted: by this run already"
REFUSED = "Refused: this run has asked for its eviction already"


class Turn(msgspec.Struct, frozen=True):
    """One plugin's run in one profile, which is the policy's at `at`."""

    point: Point
    at: int
    profile: str
    plugin: str


class Eviction(msgspec.Struct, frozen=True, gc=False):
    """`reason` is the plugin's, a sentence; `grace` seconds, None for the pod's own."""

    pod: PodUid
    node: NodeName
    plugin: str
    profile: str
    point: Point
    reason: str
    grace: int | None = None


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Why a pod stays that this plugin has looked at."""

    pod: PodUid
    plugin: str
    profile: str
    point: Point
    why: str


class Handle:
    """One plugin's view of one run. The state is read only and stays as it is: what is evicted occupies its node until it is gone.

    `nodes` are the ready ones that the policy's nodeSelector selects, by name. `samples` are metrics, None where the policy names no source; they may say why
    there are none: ask `samples.missing` first. `holds`: pods are moved hold first, and nobody goes who was not promised a slot. `cooling` are nodes that a plan has
    touched lately: plugins that move load take nothing from them, and send nothing to them."""

    def __init__(self, run: "Run", port: "Port", turn: Turn) -> None:
        self._run, self._port, self._turn = run, port, turn
        self.state, self.now, self.nodes, self.samples = run.state, run.now, run.nodes, run.samples
        self.holds = port.holds
        self.cooling = cooling(run.state, run.now)
        self._filters = run.filters[turn.at]

    def pods(self, node: NodeName, finished: bool = False) -> list[PodUid]:
        """Pods whose spec names the node, by namespace and name; without those that this run evicts already, and without
        Succeeded and Failed ones unless `finished`. Terminating ones are among them."""
        evicted, pods = self._run.evictions, self.state.pods
        return [uid for uid in self._run.pods_on(node) if uid not in evicted and (finished or pods[uid].live.phase not in OVER)]

    def evictable(self, pod: PodUid) -> str:
        """The profile's filter plugins: "" or the first reason why not, which is kept as the verdict."""
        if pod in self._run.evictions:
            return ALREADY
        return self._kept(pod, REFUSED if pod in self._run.refused else self._filters.evictable(pod) or self._port.unmovable(pod))

    def fits(self, pod: PodUid) -> str:
        """The profile's preEvictionFilter plugins: "" or why not, which is kept as the verdict."""
        return self._kept(pod, self._filters.fits(pod))

    def fits_on(self, pod: PodUid, node: NodeName) -> str:
        """Whether a pod like this one would be let onto the node (upstream: NodeFit), whatever the policy says; "" or why not."""
        return self._run.fit.why_not(pod, node)

    def fits_any(self, pod: PodUid, nodes: Sequence[NodeName]) -> bool:
        """Whether `fits_on` lets it onto one of them."""
        return self._run.fit.any_of(pod, nodes)

    def evict(self, pod: PodUid, reason: str, skewed: bool = False, to: Sequence[NodeName] | None = None) -> bool:
        """Asks filter and preEvictionFilter, then the limits, then counts. False: refused, and why is the verdict. `skewed`: the
        plugin has asked itself whether topology spread lets it in elsewhere; nodeFit does not. Where pods are moved hold first, the pod
        stays unless it is promised a slot, on one of the nodes `to` if they are said. (Who only evicts has no say in that.)"""
        run, turn, live = self._run, self._turn, self.state.pods[pod].live
        node = live.node
        if node is None or self.evictable(pod) or self._kept(pod, self._filters.fits(pod, skewed)):
            return False
        company = self._port.company(pod)
        # With the annotation `evict` it passes the filter; but it cannot be evicted a second time.
        why = "Terminating: it is going away already" if live.deleting else self._stay_with(pod, company) or run.limit(company)
        if self._kept(pod, why) or self._kept(pod, self._port.promise(pod, to)):
            return False
        gone = False
        for one in company:
            on, said = self.state.pods[one].live.node, reason if one == pod else f"{reason} ({self.state.pods[pod].fact.name}, and its gang is moved as one)"
            assert on is not None, "nobody goes with it who is nowhere"
            gone |= run.evict(Eviction(one, on, turn.plugin, turn.profile, turn.point, said, run.policy.grace_period_seconds), self._port)
            run.verdicts.pop((turn.profile, turn.plugin, one), None)
        return gone

    def _stay_with(self, pod: PodUid, company: Sequence[PodUid]) -> str:
        """Whether the filters keep one of those who would go with it."""
        for one in company:
            if one != pod and (why := ALREADY if one in self._run.evictions else self._filters.evictable(one) or self._filters.fits(one)):
                return f"{TOGETHER}: its gang is moved as one or not at all, and pod {self.state.pods[one].fact.name} stays: {why}"
        return ""

    def lands_on(self, pod: PodUid) -> NodeName | None:
        """Where a pod that was evicted is promised a slot; None where nobody promises."""
        return self._port.lands_on(pod)

    def full(self, node: NodeName) -> bool:
        """Whether a limit (of the node, or in total) is reached: nothing more is evicted there, further pods need not be asked."""
        return self._run.full(node)

    def keep(self, pod: PodUid, why: str) -> None:
        """The verdict of a pod that the plugin looked at and leaves. The last one said counts; an eviction beats it."""
        self._run.keep(self._turn, pod, why)

    def defragment(self, args: DefragmentationArgs) -> None:
        """Defragmentation's own: plans, and lets the port carry the plan out."""
        self._port.defragment(self._run, self._turn, args)

    def warn(self, text: str) -> None:
        """What the user should know of this plugin: why it did nothing, which argument selects nothing."""
        self._run.warn(self._turn.profile, self._turn.plugin, text)

    def _kept(self, pod: PodUid, why: str) -> str:
        if why:
            self.keep(pod, why)
        return why


class Port(Protocol):
    """What becomes of those who are to go: there are two, `migration.deschedule` moves them hold first, `migration.once` only evicts."""

    holds: bool
    """Whether nobody goes who was not promised a slot."""

    def unmovable(self, pod: PodUid) -> str:
        """Why it stays whatever the policy says; "" where it may go."""
        ...

    def company(self, pod: PodUid) -> Sequence[PodUid]:
        """Who goes where it goes: all of its gang where that is moved as one, mostly itself alone."""
        ...

    def promise(self, pod: PodUid, to: Sequence[NodeName] | None) -> str:
        """Promises it, and its company, a slot, which counts as taken from now on, on another node than its own; or why there is none. A pod that
        nobody would make again needs none."""
        ...

    def evict(self, eviction: Eviction) -> str:
        """Evicts at once, where that is the port's way; or why the pod stays after all: then nothing is counted, as upstream has it."""
        ...

    def lands_on(self, pod: PodUid) -> NodeName | None:
        """Where a slot was promised."""
        ...

    def defragment(self, run: "Run", turn: Turn, args: DefragmentationArgs) -> None:
        """Makes a plan of Defragmentation, and carries it out."""
        ...


Says = Callable[[PodUid], str]
"""A filter plugin's word on a pod."""


class FilterPlugin(Protocol):
    """A module of `plugins/` that says who may go."""

    NAME: str
    POINTS: tuple[Point, ...]
    Args: type[a.Args]
    says: Callable[[Point, ClusterState, a.Args, Millis], Says]


class Plugin(Protocol):
    """A module of `plugins/`."""

    NAME: str
    POINTS: tuple[Point, ...]
    Args: type[a.Args]
    run: Callable[[Handle, a.Args], None]
