"""One run of a policy over a state: every profile's deschedule plugins, then every profile's balance plugins, as upstream does. What becomes of
whoever is to go is the port's business (`framework.Port`): moved hold first, or evicted at once."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

import msgspec

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.samples import Samples
from restow.contracts.values import Move
from restow.domain.defragmentation.scope import Quota, Scope
from restow.domain.descheduling.default_evictor import Evictor
from restow.domain.descheduling.framework import ALREADY, Eviction, Handle, Point, Port, Says, Turn, Verdict
from restow.domain.descheduling.model import DEFRAGMENTATION, EVICTOR, Policy, Profile
from restow.domain.descheduling.node_fit import NodeFit
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.selection import selected_nodes, selecting_nothing
from restow.domain.eviction_budgets import Left
from restow.domain.state import ClusterState

LEAST_NODES = 2
"""With fewer there is nowhere to go; upstream skips the cycle."""

IN_THE_CLEAR = "prometheus.url is http: whoever is on the way can read the token; https keeps it"
TOTAL = "Limit: maxNoOfPodsToEvictTotal is reached"
PER_NODE = "Limit: maxNoOfPodsToEvictPerNode is reached"
PER_NAMESPACE = "Limit: maxNoOfPodsToEvictPerNamespace is reached"


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


class Run:
    """What all profiles share: the limits, and what was evicted. `skipped`: why nothing is to be looked at, empty where there are nodes enough."""

    def __init__(self, state: ClusterState, policy: Policy, now: Millis, samples: Samples | None = None) -> None:
        self.state, self.policy, self.now, self.samples = state, policy, now, samples
        self.nodes = selected_nodes(state, policy.node_selector)
        self.skipped = ""
        if len(self.nodes) < LEAST_NODES:
            self.skipped = f"{len(self.nodes)} ready {'node is' if len(self.nodes) == 1 else 'nodes are'} selected; at least {LEAST_NODES} are needed for a pod to go anywhere"
        self.refused: set[PodUid] = set()
        """Pods that the port has not evicted after all."""
        self.evictions: dict[PodUid, Eviction] = {}
        self.verdicts: dict[tuple[str, str, PodUid], Verdict] = {}
        self.warnings: dict[Warned, None] = {}
        self.again = 0
        """Evictions of pods that were evicted already, in plans with places in between."""
        self.per_node: Counter[NodeName] = Counter()
        self.per_namespace: Counter[str] = Counter()
        self.budgets = Left(state, now)
        self.fit = NodeFit(state, now)
        self._on: dict[NodeName, list[PodUid]] | None = None
        for provider in policy.metrics_providers:
            if provider.prometheus is not None and provider.prometheus.in_the_clear:
                self.warn("", "metricsProviders", IN_THE_CLEAR)
        if (own := policy.own) is not None and own.warning:
            self.warn(policy.profiles[own.at].name, DEFRAGMENTATION, own.warning)
        self.filters = [Filters(self, profile) for profile in policy.profiles]

    def carry(self, turn: Turn, port: Port) -> None:
        """Let the plugin look, and evict."""
        PLUGINS[turn.plugin].run(Handle(self, port, turn), self.policy.profiles[turn.at].args(turn.plugin))

    def evict(self, eviction: Eviction, port: Port) -> bool:
        """Whether it was evicted, and counted."""
        if port.evict(eviction):
            self.refused.add(eviction.pod)
            return False
        self.count(eviction.pod, eviction)
        return True

    def count(self, pod: PodUid, eviction: Eviction) -> None:
        """It is evicted, by whomever."""
        self.evictions[pod] = eviction
        self.per_node[eviction.node] += 1
        self.per_namespace[self.state.pods[pod].fact.namespace] += 1
        self.budgets.take(self.budgets.charged(pod, eviction.node))

    def count_plan(self, moves: Sequence[Move], turn: Turn, reason: str) -> None:
        """All of a plan's moves: who moves on from a place in between is evicted once more."""
        who = dict[str, PodUid]()
        for move in moves:
            who[move.migration] = move.pod or who[move.follows]
            if move.pod:
                self.count(move.pod, Eviction(move.pod, move.source, turn.plugin, turn.profile, turn.point, reason))
            else:
                self.again += 1
                self.per_node[move.source] += 1
                self.per_namespace[move.namespace] += 1
                self.budgets.take(self.budgets.charged(who[move.migration], move.source))

    @property
    def taken(self) -> int:
        return len(self.evictions) + self.again

    def keep(self, turn: Turn, pod: PodUid, why: str) -> None:
        """The verdict of a pod that stays; an eviction beats it."""
        if pod not in self.evictions:
            self.verdicts[turn.profile, turn.plugin, pod] = Verdict(pod, turn.plugin, turn.profile, turn.point, why)

    def warn(self, profile: str, plugin: str, text: str) -> None:
        self.warnings[Warned(profile, plugin, text)] = None

    def pods_on(self, node: NodeName) -> list[PodUid]:
        """Facts only: a pod that is placed and not bound has no node that an eviction could take it from."""
        if self._on is None:
            pods = self.state.pods
            self._on = {}
            for uid, pod in pods.items():
                if pod.live.node is not None:
                    self._on.setdefault(pod.live.node, []).append(uid)
            for there in self._on.values():
                there.sort(key=lambda uid: (pods[uid].fact.namespace, pods[uid].fact.name, uid))
        return self._on.get(node, [])

    def limit(self, pods: Sequence[PodUid]) -> str:
        """The limit that their evictions would break, in upstream's order."""
        policy, known = self.policy, [self.state.pods[uid] for uid in pods]
        if _exceeded(self.taken + len(pods), policy.max_no_of_pods_to_evict_total):
            return TOTAL
        nodes, namespaces = Counter(pod.live.node for pod in known), Counter(pod.fact.namespace for pod in known)
        if any(_exceeded(self.per_node[node] + count, policy.max_no_of_pods_to_evict_per_node) for node, count in nodes.items() if node is not None):
            return PER_NODE
        if any(_exceeded(self.per_namespace[name] + count, policy.max_no_of_pods_to_evict_per_namespace) for name, count in namespaces.items()):
            return PER_NAMESPACE
        return self.budgets.exceeded(Counter(key for uid, pod in zip(pods, known, strict=True) if pod.live.node for key in self.budgets.charged(uid, pod.live.node)))

    def full(self, node: NodeName) -> bool:
        policy = self.policy
        return _reached(self.taken, policy.max_no_of_pods_to_evict_total) or _reached(
            self.per_node[node], policy.max_no_of_pods_to_evict_per_node
        )

    def scope(self, profile: str) -> Scope:
        """What the policy lets Defragmentation do in this profile: its filter plugins, nodeSelector, and the limits, of which what other plugins have
        taken is used up. That a pod fits elsewhere (nodeFit) is what a plan promises; but where DefaultEvictor asks for it, its nodeSelector says where pods may go."""
        policy = self.policy
        home = next((one for one in self.filters if one.profile == profile), None)
        selected = None if policy.node_selector is None else frozenset(self.nodes)
        targets: frozenset[NodeName] | None = selected
        if home is not None and home.args.node_fit and home.args.node_selector:
            among = frozenset(home.evictor.nodes)
            targets = among if selected is None else selected & among

        def why_not(uid: PodUid) -> str:
            if uid in self.evictions:
                return ALREADY
            return home.evictable(uid) or home.fits(uid, elsewhere=False) if home is not None else ""

        quota = Quota(
            policy.max_no_of_pods_to_evict_per_node, policy.max_no_of_pods_to_evict_per_namespace, self.per_node, self.per_namespace, self.budgets
        )
        return Scope(why_not, selected, targets, quota)

    def outcome(self) -> Outcome:
        return Outcome(tuple(self.evictions.values()), tuple(self.verdicts.values()), tuple(self.warnings))


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


def _exceeded(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit


class Filters:
    """A profile's filter plugins, DefaultEvictor among them, in the order in which they are enabled: the first that refuses counts."""

    def __init__(self, run: Run, profile: Profile):
        self.profile, self.args = profile.name, profile.evictor_args
        self.evictor = Evictor(run.state, self.args, run.now, run.fit)
        self._filter = [self._says("filter", name, profile, run) for name in profile.plugins.enabled("filter")]
        self._before = [self._says("preEvictionFilter", name, profile, run) for name in profile.plugins.enabled("preEvictionFilter")]
        for text in self.evictor.warnings():
            run.warn(profile.name, EVICTOR, text)
        for name in dict.fromkeys((*profile.plugins.deschedule.enabled, *profile.plugins.balance.enabled)):
            for text in selecting_nothing(run.state, profile.args(name)):
                run.warn(profile.name, name, text)

    def _says(self, point: Point, name: str, profile: Profile, run: Run) -> Says | None:
        """None for DefaultEvictor, which has more to say."""
        if name == EVICTOR:
            return None
        return cast(Says, PLUGINS[name].says(point, run.state, profile.args(name), run.now))

    def evictable(self, uid: PodUid) -> str:
        for says in self._filter:
            if why := self.evictor.evictable(uid) if says is None else says(uid):
                return why
        return ""

    def fits(self, uid: PodUid, skewed: bool = False, elsewhere: bool = True) -> str:
        for says in self._before:
            if why := self.evictor.fits(uid, skewed, elsewhere) if says is None else says(uid):
                return why
        return ""
