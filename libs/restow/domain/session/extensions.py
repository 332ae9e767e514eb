"""What plugins have registered for a session, and how several answers become one.

An *order*: the first plugin's key counts most. A *veto*: tier by tier, the first objection is the answer. A *score*: the sum. A filter removes
nodes, whatever others say.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from restow.contracts.ids import PodUid, ShapeId
from restow.contracts.values import DeviceShare
from restow.domain.config import PluginConfig
from restow.domain.protection import Allowance
from restow.domain.session.framework import (
    FILTER,
    NEWS,
    ORDERS,
    POINTS,
    SCORES,
    STAGES,
    VETOES,
    Answer,
    BlockChooser,
    CoreChooser,
    Filter,
    VolumeChooser,
)
from restow.domain.session.jobs import Job
from restow.domain.session.scoring import ContentScorer, DynamicScorer, StaticScorer
from restow.domain.state import ClusterState

Registered = tuple[str, Callable[..., Any]]
"""The plugin's name, and what it has to say."""


class Extensions:
    """What plugins have registered, for one session."""

    def __init__(self) -> None:
        self._tiers: dict[str, list[list[Registered]]] = {point: [] for point in POINTS}
        """By point, in order, of each tier that has anything to say."""
        self._flat: dict[str, list[Callable[..., Any]]] = {point: [] for point in POINTS}
        self._last: dict[str, int] = {}
        self._tier = -1
        self._plugin = PluginConfig("")
        self.allocated, self.charged = (self._flat[point] for point in NEWS)
        self._job_orders = self._flat["jobOrder"]
        self.filters: list[Filter] = []
        self.content: list[ContentScorer] = []
        self.static: list[StaticScorer] = []
        self.dynamic: list[DynamicScorer] = []
        self.volumes: VolumeChooser | None = None
        self.cores: CoreChooser | None = None
        self.blocks: BlockChooser | None = None
        self.devices: Callable[[ShapeId, int], tuple[DeviceShare, ...]] | None = None
        """Chooses the devices on a row, where a plugin has a say in that."""

    # -- what plugins register, each at most once at a point -----------------------------------------------------------

    def opening(self, tier: int, plugin: PluginConfig) -> None:
        """What is registered next is this plugin's."""
        self._tier, self._plugin = tier, plugin

    def order(self, point: str, function: Callable[[Any], Any]) -> None:
        """A key for a queue's name, a job or a pod: the smallest is first."""
        self._add(ORDERS, point, function)

    def veto(self, point: str, function: Callable[..., Any]) -> None:
        """Why not (`framework.Answer`). The three about victims answer as `framework.Victims` and `framework.Protection` say."""
        self._add(VETOES, point, function)

    def score(self, point: str, scorer: Any) -> None:
        """At `nodeOrder` a ContentScorer, StaticScorer or DynamicScorer; at `resourceNodeOrder` a function of a pod: `(nodes,) int64`, how well
        what each node has free suits it, whether it fits or not."""
        self._add(SCORES, point, scorer)
        if point == "nodeOrder" and self._on(SCORES[point]):
            form: list[Any] = self.content if hasattr(scorer, "many") else self.static if hasattr(scorer, "static") else self.dynamic
            form.append(scorer)

    def filter(self, rule: Filter) -> None:
        if self._on(FILTER["predicate"]):
            self.filters.append(rule)
            self.filters.sort(key=lambda f: STAGES.index(f.stage))

    def hear(self, point: str, function: Callable[..., None]) -> None:
        """News: something has changed in the session (`framework.NEWS`)."""
        self._add(NEWS, point, function)

    def _add(self, kind: dict[str, str], point: str, function: Callable[..., Any]) -> None:
        if not self._on(kind[point]):
            return
        if self._last.get(point) != self._tier:
            self._last[point] = self._tier
            self._tiers[point].append([])
        self._tiers[point][-1].append((self._plugin.name, function))
        self._flat[point].append(function)

    def _on(self, switch: str) -> bool:
        return not switch or self._plugin.on(switch)

    # -- how several answers become one ------------------------------------------------------------------------------

    def at(self, point: str) -> list[Callable[..., Any]]:
        """All functions of a point, tier by tier."""
        return self._flat[point]

    def key(self, point: str, item: Any) -> tuple:
        """An order: the first plugin's key counts most."""
        return tuple([function(item) for function in self._flat[point]])

    def turn(self, job: Job) -> tuple:
        """When a job is considered: migration holds first, then as plugins say, then what the log saw first."""
        return (job.kind, *[f(job) for f in self._job_orders], job.order)

    def task_turn(self, state: ClusterState, pod: PodUid) -> tuple:
        """When a pod of a job is considered."""
        return (*[f(state.pods[pod].fact) for f in self._flat["taskOrder"]], state.pods[pod].order)

    def answer(self, point: str, *args: Any) -> Answer:
        """A veto: tier by tier. The first objection ends it; where somebody permits, and nobody in that tier objects, later tiers are not asked.
        Nothing where nobody has said anything."""
        for tier in self._tiers[point]:
            permitted = False
            for _, function in tier:
                if answer := function(*args):
                    if answer is not True:
                        return answer
                    permitted = True
            if permitted:
                return True
        return None

    def refusal(self, point: str, *args: Any) -> str:
        """The objection; empty where there is none."""
        answer = self.answer(point, *args) if self._flat[point] else ""
        return answer if isinstance(answer, str) else ""

    def refusals(self, point: str, *args: Any) -> Iterator[str]:
        """What everybody objects, also after the first objection."""
        for function in self._flat[point]:
            if isinstance(answer := function(*args), str) and answer:
                yield answer

    def victims(self, point: str, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Who may be evicted for the claimer: nobody who is protected; of the others in a tier all plugins must agree, and the
        first tier that leaves anyone decides."""
        candidates = [pod for pod in candidates if all(left > 0 for _, left in self.allowances(pod))]
        for tier in self._tiers[point]:
            left = list(candidates)
            for _, function in tier:
                left = _agreed(function, claimer, left)
                if not left:
                    break
            if left:
                return left
        return []

    def reclaimable(self, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """`victims`, and what those say besides who know what a queue may reclaim (`preemptive`), in whatever tier: in Volcano's default tiers
        `gang` and `conformance` decide, and they are never asked. No queue is to lose what it deserves."""
        left = self.victims("reclaimable", claimer, candidates)
        know = {name for tier in self._tiers["preemptive"] for name, _ in tier}
        for tier in self._tiers["reclaimable"]:
            for name, function in tier:
                left = _agreed(function, claimer, left) if name in know else left
        return left

    def in_every_tier(self, point: str, plugin: str) -> bool:
        """Whether this plugin is heard in every tier that has anything to say."""
        return all(any(name == plugin for name, _ in tier) for tier in self._tiers[point])

    def allowances(self, pod: PodUid) -> list[Allowance]:
        """What all protections say of a pod."""
        return [allowance for protects in self._flat["protects"] for allowance in protects(pod)]


def _agreed(function: Callable[..., Iterable[PodUid]], claimer: PodUid, candidates: list[PodUid]) -> list[PodUid]:
    allowed = set(function(claimer, candidates))
    return [pod for pod in candidates if pod in allowed]


def jobs_in_order(extensions: Extensions, jobs: Iterable[Job]) -> list[Job]:
    """First things first."""
    return sorted(jobs, key=extensions.turn)
