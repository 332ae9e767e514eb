"""Prometheus metrics: under upstream's names (kubernetes-sigs/descheduler, metrics/metrics.go) where the meaning is equal, and ours
beside them."""

import platform
from collections import Counter as Counts
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from restow.contracts.ids import NodeName, PlanId
from restow.domain import eviction_budgets
from restow.domain.defragmentation import PLUGIN
from restow.domain.migration import open_hours, search
from restow.domain.migration.deschedule import PLANNER as POLICY
from restow.domain.migration.deschedule import cycle_of
from restow.domain.records import FINAL, Migration, Plan, Step
from restow.domain.state import ClusterState
from restow.runtime.service import Context
from restow.runtime.telemetry import Labelled

LOOP = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
STRATEGY = LOOP[:-2]
LANDED = (0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
EVICTED = ("result", "strategy", "profile", "namespace", "node")
OTHERS, MOST_PLACES, MOST_TRIGGERS = "others", 1_000, 50
"""What is counted by itself: so many places, nodes in namespaces, that pods were evicted from, and so many triggers, which whoever asks over HTTP calls as they like. Autoscalers
name no two nodes alike, and a label set stays for the life of the process: 50,000 take 2 CPU seconds of every scrape."""
GAINS = ("free_nodes", "free_devices", "fragmented")
LEFT = "Evictions that an eviction budget has left, neither spent nor planned: where the least is left, if it is for each namespace, queue or node label"
T = TypeVar("T")
MILLI = ("fragmented",)
"""Said in thousandths of a device."""


class DeschedulerMetrics:
    """A `progress.Listener`."""

    def __init__(self, context: Context) -> None:
        registry = context.metrics.registry
        more: dict[str, Any] = {"registry": registry}
        self._evicted = Counter("descheduler_pods_evicted", "Pods evicted, by result: success, or error where one could not be", EVICTED, **more)
        self._loop = Histogram("descheduler_loop_duration_seconds", "From a plan to the end of its last migration", buckets=LOOP, **more)
        self._strategy = Histogram(
            "descheduler_strategy_duration_seconds", "The same by strategy, pods moved by hand too", ("strategy", "profile"), buckets=STRATEGY, **more
        )
        _build_info(registry)
        registry.register(_Unsuffixed(self._evicted))
        ours = {"labelnames": ("strategy", "result", "reason"), **more}
        self._ended = Counter("restow_migrations_ended", "Migrations that ended: landed, removed, failed (rolled back) or not_recreated", **ours)
        self._took = Histogram("restow_migration_duration_seconds", "From plan to landed", ("strategy",), buckets=LANDED, **more)
        # From zero on, as landings: whoever asks for a rate would miss the moves of the first plan.
        self._took.labels(PLUGIN)
        self._landings = Counter("restow_landings", "Evicted pods: landed in their slot, or missed it (what autoPause counts)", ("result",), **more)
        for result in ("landed", "missed"):
            self._landings.labels(result)
        self._plans = Counter("restow_plans", "Plans, with the moves they have: some or none", ("trigger", "planner", "moves"), **more)
        self._moves = Counter("restow_planned_moves", "Moves of these plans", ("trigger", "planner"), **more)
        self._gain = Gauge("restow_last_plan_gain", "What the last plan of all nodes promised to gain", ("what",), **more)
        self._before = Gauge("restow_last_plan_before", "What there was when the last plan of all nodes was made", ("what",), **more)
        self._emptied = Counter("restow_nodes_emptied", "Nodes that plans have emptied for somebody to take away (policy emptied)", **more)
        self._returned = Counter("restow_nodes_returned", "Of these, those that nobody took away in time, or that somebody was on again", **more)
        self._places: set[tuple[str, str]] = set()
        self._triggers: set[str] = set()
        self._cycles: dict[str, tuple[int, float]] = {}
        """Triggers of a whole policy whose plans are under way: how many, and seconds of the longest that is over."""
        self._state, self._now = lambda: context.state, lambda: context.clock.now()
        context.metrics.labelled(self.read)

    def read(self) -> Iterable[Labelled]:
        state = self._state()
        counts = Counts(str(state.migrations[id].step) for id in (*state.backlog, *state.active))
        steps = [((str(step),), float(counts[str(step)])) for step in Step if step not in FINAL]
        empty = sum(known.at > 0 for known in state.emptied.values())
        yield Labelled.one("plans_proposed", "Plans that wait for a person to approve or reject them", len(state.proposals))
        yield Labelled.one("moves_paused", "1 while no plan is made and nobody is evicted by one (`restow pause`, autoPause)", state.pause.since > 0)
        yield Labelled.one("moves_closed", "1 while no pod is moved by the clock (policy windows, blackouts)", not open_hours.is_open(state.migration_config, self._now()))
        yield Labelled.one("plans_failing", "Plugins of the policy whose last plan a fault of Restow's own has ended, and 1 more if the last plan came to no end", search.failing(state, self._now()))
        yield Labelled("eviction_budget_left", LEFT, ("budget",), self._left(state))
        yield Labelled.one("nodes_empty", "Nodes that plans have emptied, and that nobody has taken away yet", empty)
        yield Labelled("migrations", "Migrations that are not over, by step", ("step",), steps)
        asked = Counts("given" if known.given else "waited for" for known in state.consents.values())
        yield Labelled("consents", "Migrations whose workload was asked, by its word", ("word",), [((word,), float(asked[word])) for word in ("given", "waited for")])

    def _left(self, state: ClusterState) -> list[tuple[tuple[str, ...], float]]:
        """One sample a budget, however many namespaces, queues or nodes it is for."""
        left = {budget.name: float(budget.evictions) for budget in state.migration_config.budgets}
        for one in eviction_budgets.accounts(state, self._now()) if left else ():
            left[one.budget] = max(min(left[one.budget], one.left), 0)
        return [((name,), many) for name, many in left.items()]

    # -- what happened -------------------------------------------------------------------------------------------------

    def planned(self, state: ClusterState, plan: Plan) -> None:
        planned = plan.planned
        if (cycle := cycle_of(planned.plan)) and (planned.planner == POLICY or planned.plugin == PLUGIN):
            left, longest = self._cycles.get(cycle, (0, 0.0))
            self._cycles[cycle] = left + 1, longest
        trigger = planned.trigger if _is_one_of(self._triggers, planned.trigger, MOST_TRIGGERS) else OTHERS
        self._plans.labels(trigger, planned.planner, "some" if planned.moves else "none").inc()
        self._moves.labels(trigger, planned.planner).inc(len(planned.moves))
        if planned.plugin != PLUGIN or planned.demand:
            return
        for what in GAINS:
            before, after = getattr(planned.before, what), getattr(planned.after, what)
            scale = 1000 if what in MILLI else 1
            self._before.labels(what).set(before / scale)
            # Less fragmentation is a gain.
            self._gain.labels(what).set(((before - after) if what == "fragmented" else (after - before)) / scale)

    def evicted(self, state: ClusterState, migration: Migration) -> None:
        self._evicted.labels(*self._labels(state, migration, "success")).inc()

    def ended(self, state: ClusterState, migration: Migration, evicted: bool) -> None:
        strategy = _strategy(state, migration)
        self._ended.labels(strategy, str(migration.step), migration.reason).inc()
        if migration.id in state.missed:
            self._landings.labels("missed").inc()
        elif evicted and migration.step is Step.LANDED:
            self._landings.labels("landed").inc()
        if migration.step is Step.LANDED:
            self._took.labels(strategy).observe((migration.since - migration.planned) / 1000)
        elif migration.step is Step.FAILED and migration.evicting and not evicted:
            self._evicted.labels(*self._labels(state, migration, "error")).inc()

    def over(self, state: ClusterState, plan: Plan) -> None:
        records = [state.migrations.get(move.migration) for move in plan.planned.moves]
        last = max((record.since for record in records if record is not None), default=plan.at)
        seconds = (last - plan.at) / 1000
        if plan.planned.plugin == PLUGIN or plan.planned.planner == POLICY:
            self._cycle(PlanId(plan.planned.plan), plan.planned.planner, seconds)
        self._strategy.labels(plan.planned.plugin, _profile(state, plan)).observe(seconds)

    def emptied(self, state: ClusterState, node: NodeName, plan: PlanId) -> None:
        self._emptied.inc()

    def returned(self, state: ClusterState, node: NodeName, plan: PlanId) -> None:
        self._returned.inc()

    def _cycle(self, plan: PlanId, planner: str, seconds: float) -> None:
        """Of a whole policy all plans of one trigger are one loop; it ends with the last of them."""
        cycle = cycle_of(plan)
        if cycle not in self._cycles:
            self._loop.observe(seconds)
            return
        left, longest = self._cycles.pop(cycle)
        if left > 1:
            self._cycles[cycle] = left - 1, max(longest, seconds)
        else:
            self._loop.observe(max(longest, seconds))

    def _labels(self, state: ClusterState, migration: Migration, result: str) -> tuple[str, ...]:
        move = migration.move
        plan = state.plans.get(migration.plan)  # type: ignore[call-overload]
        place = move.namespace, str(move.source)
        return result, _strategy(state, migration), _profile(state, plan), *(place if _is_one_of(self._places, place, MOST_PLACES) else (OTHERS, OTHERS))


def _is_one_of(known: set[T], one: T, most: int) -> bool:
    """Whether it is counted by itself: it was, or there are fewer than `most`."""
    if one not in known and len(known) >= most:
        return False
    known.add(one)
    return True


def _strategy(state: ClusterState, migration: Migration) -> str:
    plan = state.plans.get(migration.plan)  # type: ignore[call-overload]
    return plan.planned.plugin if plan is not None else PLUGIN


def _profile(state: ClusterState, plan: Plan | None) -> str:
    """The plan's own; where it says none, that of Defragmentation."""
    return (plan.planned.profile if plan is not None else "") or state.migration_config.profile


def _build_info(registry: CollectorRegistry) -> None:
    """With upstream's labels; there is no Go here."""
    try:
        own = version("restow")
    except PackageNotFoundError:
        own = "unknown"
    names = ("GoVersion", "AppVersion", "DeschedulerVersion", "GitBranch", "GitSha1", "PythonVersion")
    info = Gauge("descheduler_build_info", "Build info", names, registry=registry)
    info.labels("", ".".join(own.split(".")[:2]), f"restow-{own}", "", "", platform.python_version()).set(1)


class _Unsuffixed(Collector):
    """`descheduler_pods_evicted` as dashboards from before upstream's 0.34 have it; the client library adds `_total`."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        metric = Metric("descheduler_pods_evicted", "Deprecated: descheduler_pods_evicted_total", "unknown")
        for family in self._counter.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    metric.add_sample("descheduler_pods_evicted", sample.labels, sample.value)
        yield metric
