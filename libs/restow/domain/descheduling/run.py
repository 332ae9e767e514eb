"""One run of a policy over a state: every profile's deschedule plugins, then every profile's balance plugins, as upstream does."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.samples import Samples
from restow.contracts.values import Move
from restow.domain.descheduling.default_evictor import Evictor
from restow.domain.descheduling.framework import Eviction, Handle, Places, Point, Says, Verdict
from restow.domain.descheduling.model import EVICTOR, Policy, Profile
from restow.domain.descheduling.node_fit import NodeFit
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.selection import cooling, selected_nodes, selecting_nothing
from restow.domain.maps import OVER
from restow.domain.state import ClusterState

LEAST_NODES = 2
"""With fewer there is nowhere to go; upstream skips the cycle."""

IN_THE_CLEAR = "prometheus.url is http: whoever is on the way can read the token; https keeps it"
REFUSED = "Refused: this run has asked for its eviction already"
TOTAL = "Limit: maxNoOfPodsToEvictTotal is reached"
PER_NODE = "Limit: maxNoOfPodsToEvictPerNode is reached"
PER_NAMESPACE = "Limit: maxNoOfPodsToEvictPerNamespace is reached"


Carry = Callable[[Eviction], str]


class Warned(msgspec.Struct, frozen=True, gc=False):
    """`profile` is empty where it is about the policy; `plugin` is then the part of it."""

    profile: str
    plugin: str
    text: str


class Outcome(msgspec.Struct, frozen=True):
    """`skipped`: why nothing was looked at; empty where plugins ran. Of each plugin and pod there is either an eviction or at
    most one verdict; of one whose eviction was refused there is neither."""

    evictions: tuple[Eviction, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[Warned, ...] = ()
    skipped: str = ""


def evaluate(state: ClusterState, policy: Policy, now: Millis, samples: Samples | None = None) -> Outcome:
    """What the policy evicts, in order. A pure function; `now` is what ages and metrics are measured against."""
    nodes = selected_nodes(state, policy.node_selector)
    if why := too_few(nodes):
        return Outcome(skipped=why)
    run = Run(state, policy, now, nodes, samples)
    for turn in turns(policy):
        run.carry(turn)
    return run.outcome()


def too_few(nodes: Sequence[NodeName]) -> str:
    """Why nothing is looked at; "" where there are nodes enough."""
    if len(nodes) >= LEAST_NODES:
        return ""
    return f"{len(nodes)} ready nodes are selected; at least {LEAST_NODES} are needed for a pod to go anywhere"


class Turn(msgspec.Struct, frozen=True):
    """One plugin's run in one profile, which is the policy's at `at`."""

    point: Point
    at: int
    profile: str
    plugin: str


def turns(policy: Policy) -> Iterator[Turn]:
    """In upstream's order: what all profiles deschedule, then what all balance."""
    points: tuple[Point, ...] = ("deschedule", "balance")
    for point in points:
        for at, profile in enumerate(policy.profiles):
            for plugin in profile.plugins.enabled(point):
                yield Turn(point, at, profile.name, plugin)


class Run:
    """What all profiles share: the limits, and what was evicted. With `places` nobody is evicted who has none. `carry` evicts at once, where
    that is the caller's way: it says "" or why the pod stays after all, and then nothing is counted, as upstream has it."""

    def __init__(
        self, state: ClusterState, policy: Policy, now: Millis, nodes: list[NodeName], samples: Samples | None, carry: Carry | None = None
    ):
        self.state, self.policy, self.now, self.nodes, self.samples = state, policy, now, nodes, samples
        self.places: Places | None = None
        self._carry = carry
        self.refused: dict[PodUid, str] = {}
        """Pods that `carry` has not evicted, and why."""
        self.evictions: dict[PodUid, Eviction] = {}
        self.verdicts: dict[tuple[str, str, PodUid], Verdict] = {}
        self.warnings: dict[Warned, None] = {}
        self.again = 0
        """Evictions of pods that were evicted already, in plans with places in between."""
        self.per_node: Counter[NodeName] = Counter()
        self.per_namespace: Counter[str] = Counter()
        self.fit = NodeFit(state, now)
        self._on: dict[NodeName, list[PodUid]] | None = None
        for provider in policy.metrics_providers:
            if provider.prometheus is not None and provider.prometheus.in_the_clear:
                self.warnings[Warned("", "metricsProviders", IN_THE_CLEAR)] = None
        self.profiles = [_Profile(self, profile) for profile in policy.profiles]

    def carry(self, turn: Turn) -> None:
        """Let the plugin look, and evict."""
        self.profiles[turn.at].carry(turn)

    def evict(self, eviction: Eviction) -> bool:
        """Whether it was evicted, and counted."""
        why = self._carry(eviction) if self._carry is not None else ""
        if why:
            self.refused[eviction.pod] = why
            return False
        self.count(eviction.pod, eviction)
        return True

    def count(self, pod: PodUid, eviction: Eviction) -> None:
        """It is evicted, by whomever."""
        self.evictions[pod] = eviction
        self.per_node[eviction.node] += 1
        self.per_namespace[self.state.pods[pod].namespace] += 1

    def count_plan(self, moves: Sequence[Move], turn: Turn, reason: str) -> None:
        """All of a plan's moves: who moves on from a place in between is evicted once more."""
        for move in moves:
            if move.pod:
                self.count(move.pod, Eviction(move.pod, move.source, turn.plugin, turn.profile, turn.point, reason))
            else:
                self.again += 1
                self.per_node[move.source] += 1
                self.per_namespace[move.namespace] += 1

    @property
    def taken(self) -> int:
        return len(self.evictions) + self.again

    def on(self, node: NodeName) -> list[PodUid]:
        """Facts only: a pod that is placed and not bound has no node that an eviction could take it from."""
        if self._on is None:
            pods = self.state.pods
            self._on = {}
            for uid, live in self.state.live.items():
                if live.node is not None:
                    self._on.setdefault(live.node, []).append(uid)
            for there in self._on.values():
                there.sort(key=lambda uid: (pods[uid].namespace, pods[uid].name, uid))
        return self._on.get(node, [])

    def limit(self, node: NodeName, namespace: str) -> str:
        """The limit that one more eviction would break, in upstream's order."""
        policy = self.policy
        if _reached(self.taken, policy.max_no_of_pods_to_evict_total):
            return TOTAL
        if _reached(self.per_node[node], policy.max_no_of_pods_to_evict_per_node):
            return PER_NODE
        if _reached(self.per_namespace[namespace], policy.max_no_of_pods_to_evict_per_namespace):
            return PER_NAMESPACE
        return ""

    def full(self, node: NodeName) -> bool:
        policy = self.policy
        return _reached(self.taken, policy.max_no_of_pods_to_evict_total) or _reached(
            self.per_node[node], policy.max_no_of_pods_to_evict_per_node
        )

    def outcome(self) -> Outcome:
        return Outcome(tuple(self.evictions.values()), tuple(self.verdicts.values()), tuple(self.warnings))


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


class Filters:
    """A profile's filter plugins, DefaultEvictor among them, in the order in which they are enabled: the first that refuses counts."""

    def __init__(self, run: Run, profile: Profile, evictor: Evictor):
        self._evictor = evictor
        self._filter = [self._asked("filter", name, profile, run) for name in profile.plugins.enabled("filter")]
        self._before = [self._asked("preEvictionFilter", name, profile, run) for name in profile.plugins.enabled("preEvictionFilter")]

    def _asked(self, point: Point, name: str, profile: Profile, run: Run) -> Says | None:
        """None for DefaultEvictor, which has more to say."""
        if name == EVICTOR:
            return None
        return cast(Says, PLUGINS[name].says(point, run.state, profile.args(name), run.now))

    def evictable(self, uid: PodUid) -> str:
        for says in self._filter:
            if why := self._evictor.evictable(uid) if says is None else says(uid):
                return why
        return ""

    def fits(self, uid: PodUid, skewed: bool = False, elsewhere: bool = True) -> str:
        for says in self._before:
            if why := self._evictor.fits(uid, skewed, elsewhere) if says is None else says(uid):
                return why
        return ""


class _Profile:
    def __init__(self, run: Run, profile: Profile):
        self._run, self._profile = run, profile
        self.name, self.evictor_args = profile.name, profile.evictor_args
        self.evictor = Evictor(run.state, profile.evictor_args, run.now, run.fit)
        self.filters = Filters(run, profile, self.evictor)
        for text in self.evictor.warnings():
            run.warnings[Warned(profile.name, EVICTOR, text)] = None
        for name in dict.fromkeys((*profile.plugins.deschedule.enabled, *profile.plugins.balance.enabled)):
            for text in selecting_nothing(run.state, profile.args(name)):
                run.warnings[Warned(profile.name, name, text)] = None

    def carry(self, turn: Turn) -> None:
        handle: Any = _Handle(self._run, self._profile.name, self.filters, turn.plugin, turn.point)
        PLUGINS[turn.plugin].run(cast(Handle, handle), self._profile.args(turn.plugin))


class _Handle:
    """`framework.Handle`."""

    def __init__(self, run: Run, profile: str, filters: Filters, plugin: str, point: Point):
        self._run, self._profile, self._filters, self._plugin, self._point = run, profile, filters, plugin, point
        self.state, self.now, self.nodes, self.samples = run.state, run.now, run.nodes, run.samples
        self.holds = run.places is not None
        self.cooling = cooling(run.state, run.now)

    def pods(self, node: NodeName, finished: bool = False) -> list[PodUid]:
        evicted, live = self._run.evictions, self.state.live
        return [
            uid for uid in self._run.on(node) if uid not in evicted and (finished or live[uid].phase not in OVER)
        ]

    def evictable(self, pod: PodUid) -> str:
        run = self._run
        why = "Evicted: by this run already" if pod in run.evictions else REFUSED if pod in run.refused else self._filters.evictable(pod)
        if not why and self._run.places is not None:
            why = self._run.places.unmovable(pod)
        return self._kept(pod, why)

    def fits(self, pod: PodUid) -> str:
        return self._kept(pod, self._filters.fits(pod))

    def fits_on(self, pod: PodUid, node: NodeName) -> str:
        return self._run.fit.why_not(pod, node)

    def fits_any(self, pod: PodUid, nodes: Sequence[NodeName]) -> bool:
        return self._run.fit.any_of(pod, nodes)

    def evict(self, pod: PodUid, reason: str, skewed: bool = False, to: Sequence[NodeName] | None = None) -> bool:
        run, live = self._run, self.state.live[pod]
        node = live.node
        if node is None or self.evictable(pod) or self._kept(pod, self._filters.fits(pod, skewed)):
            return False
        if live.deleting:
            # With the annotation `evict` it passes the filter; but it cannot be evicted a second time.
            self._kept(pod, "Terminating: it is going away already")
            return False
        namespace = self.state.pods[pod].namespace
        if self._kept(pod, run.limit(node, namespace)):
            return False
        if run.places is not None and self._kept(pod, run.places.promise(pod, to)):
            return False
        grace = run.policy.grace_period_seconds
        gone = run.evict(Eviction(pod, node, self._plugin, self._profile, self._point, reason, grace))
        run.verdicts.pop((self._profile, self._plugin, pod), None)
        return gone

    def lands_on(self, pod: PodUid) -> NodeName | None:
        return None if self._run.places is None else self._run.places.of(pod)

    def full(self, node: NodeName) -> bool:
        return self._run.full(node)

    def keep(self, pod: PodUid, why: str) -> None:
        self._kept(pod, why)

    def warn(self, text: str) -> None:
        self._run.warnings[Warned(self._profile, self._plugin, text)] = None

    def _kept(self, pod: PodUid, why: str) -> str:
        if why and pod not in self._run.evictions:
            self._run.verdicts[self._profile, self._plugin, pod] = Verdict(pod, self._plugin, self._profile, self._point, why)
        return why
