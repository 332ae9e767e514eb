"""What plugins have registered for a session, and how several answers become one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from restow.contracts.ids import PodUid, ShapeId
from restow.contracts.values import DeviceShare
from restow.domain.config import PluginConfig
from restow.domain.protection import Allowance
from restow.domain.session.framework import POINTS, STAGES, CoreChooser, DynamicScorer, Filter, VolumeChooser
from restow.domain.session.jobs import Job
from restow.domain.session.scoring import ContentScorer, StaticScorer


class Extensions:
    """What plugins have registered, for one session."""

    def __init__(self) -> None:
        self._tiers: dict[str, list[list[tuple[str, Callable[..., Any]]]]] = {point: [] for point in POINTS}
        self._flat: dict[str, list[Callable[..., Any]]] = {point: [] for point in POINTS}
        self.allocated, self.charged = self._flat["allocated"], self._flat["charged"]
        self.waits = self._flat["podWaits"]
        self._tier = -1
        self._plugin = PluginConfig("")
        self.filters: list[Filter] = []
        self.content: list[ContentScorer] = []
        self.static: list[StaticScorer] = []
        self.dynamic: list[DynamicScorer] = []
        self.volumes: VolumeChooser | None = None
        self.cores: CoreChooser | None = None
        self.devices: Callable[[ShapeId, int], tuple[DeviceShare, ...]] | None = None
        """Chooses the devices on a row, where a plugin has a say in that."""

    def opening(self, tier: int, plugin: PluginConfig) -> None:
        """What is registered next is this plugin's."""
        self._tier, self._plugin = tier, plugin

    def add(self, point: str, function: Callable[..., Any]) -> None:
        """Register a function, unless the plugin is switched off there."""
        if not self._on(point):
            return
        tiers = self._tiers[point]
        while len(tiers) <= self._tier:
            tiers.append([])
        tiers[self._tier].append((self._plugin.name, function))
        self._flat[point].append(function)

    def add_filter(self, rule: Filter) -> None:
        if self._on("predicate"):
            self.filters.append(rule)
            self.filters.sort(key=lambda f: STAGES.index(f.stage))

    def add_scorer(
        self,
        content: ContentScorer | None = None,
        static: StaticScorer | None = None,
        dynamic: DynamicScorer | None = None,
    ) -> None:
        if not self._on("nodeOrder"):
            return
        if content is not None:
            self.content.append(content)
        if static is not None:
            self.static.append(static)
        if dynamic is not None:
            self.dynamic.append(dynamic)

    def _on(self, point: str) -> bool:
        switch = POINTS[point]
        return not switch or self._plugin.on(switch)

    # -- how several answers become one ------------------------------------------------------------------------------

    def at(self, point: str) -> list[Callable[..., Any]]:
        """All functions of a point, tier by tier."""
        return self._flat[point]

    def key(self, point: str, item: Any) -> tuple:
        """An order: the first plugin's key counts most."""
        return tuple([function(item) for function in self._flat[point]])

    def all(self, point: str, *args: Any) -> bool:
        """Whether no plugin objects (False); True where none has anything to say."""
        return all(function(*args) is not False for function in self._flat[point])

    def agreed(self, point: str, *args: Any) -> bool:
        """The same tier by tier, as Volcano asks at jobPipelined: False ends it, None abstains, and after a tier in which
        somebody says True later ones are not asked."""
        for tier in self._tiers[point]:
            answers = [function(*args) for _, function in tier]
            if False in answers:
                return False
            if True in answers:
                return True
        return True

    def agree(self, point: str, *args: Any) -> bool:
        """The first tier that has anything to say decides: all of it must agree. False where nobody has."""
        for tier in self._tiers[point]:
            if tier:
                return all(function(*args) for _, function in tier)
        return False

    def every_tier(self, point: str, plugin: str) -> bool:
        """Whether this plugin is heard in every tier that has anything to say."""
        return all(any(name == plugin for name, _ in tier) for tier in self._tiers[point] if tier)

    def who_knows(self, point: str, other: str) -> list[Callable[..., Any]]:
        """The functions at a point of those plugins that have something to say at another one, too."""
        names = {name for tier in self._tiers[other] for name, _ in tier}
        return [function for tier in self._tiers[point] for name, function in tier if name in names]

    def first(self, point: str, *args: Any) -> Any:
        """The first answer that is not empty: a reason why not."""
        for function in self._flat[point]:
            if answer := function(*args):
                return answer
        return None

    def vote(self, point: str, *args: Any) -> str:
        """Votes tier by tier: a reason is a veto and ends it; True permits, and later tiers are not asked; None abstains.
        Returns the veto's reason, empty where it is permitted."""
        for tier in self._tiers[point]:
            permitted = False
            for _, function in tier:
                answer = function(*args)
                if isinstance(answer, str):
                    return answer
                permitted = permitted or answer is True
            if permitted:
                return ""
        return ""

    def victims(self, point: str, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Who may be evicted for the claimer: nobody who is protected; of the others in a tier all plugins must agree, and the
        first tier that leaves anyone decides."""
        candidates = [pod for pod in candidates if all(left > 0 for _, left in self.allowances(pod))]
        for tier in self._tiers[point]:
            if not tier:
                continue
            left = list(candidates)
            for _, function in tier:
                allowed = set(function(claimer, left))
                left = [pod for pod in left if pod in allowed]
                if not left:
                    break
            if left:
                return left
        return []

    def allowances(self, pod: PodUid) -> list[Allowance]:
        """What all protections say of a pod."""
        return [allowance for protects in self._flat["protects"] for allowance in protects(pod)]

    def turn(self, job: Job) -> tuple:
        """When a job is considered: migration holds first, then as plugins say, then what the log saw first."""
        return (job.kind, *[f(job) for f in self._flat["jobOrder"]], job.order)


def jobs_in_order(extensions: Extensions, jobs: Iterable[Job]) -> list[Job]:
    """First things first."""
    return sorted(jobs, key=extensions.turn)
