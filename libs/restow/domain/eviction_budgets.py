"""How many pods Restow may evict in a time: the policy's `budgets`, each for the whole cluster, some namespaces, queues or nodes, or for each of these by itself.

A budget is charged for a move from when it is planned: until its eviction is decided that is a reservation, which ends with the move; from then on it is spent for as long
as the budget says, unless the pod stays after all. What a move is charged to is settled once and kept in the state, as what is spent is, so that neither a restart nor a node
that is gone, or has other labels since, changes it.

Evictions count by the time at which they were decided. Those of a time that is still to come by more than `within` were decided before the clock was put back, and do not
count. Preemption and reclaim by the scheduler, and whoever else evicts, are not Restow's moves.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import msgspec

from restow.contracts.events import PodObserved
from restow.contracts.ids import MigrationId, Millis, NodeName, PodUid
from restow.contracts.times import rfc3339
from restow.contracts.values import Move
from restow.domain import windows
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.config import EvictionBudget, MigrationConfig, Selector
from restow.domain.duration import format_milliseconds
from restow.domain.groups import group_of, queue_annotation
from restow.domain.kueue import QUEUE_NAME
from restow.domain.policy_args import LabelSelector, Requirement
from restow.domain.promised_slots import order
from restow.domain.records import Migration, Step
from restow.domain.selectors import selects
from restow.domain.state import ClusterState
from restow.domain.verdicts import EVICTION_BUDGET

MOST = 50
"""Budgets of a policy."""
MOST_EVICTIONS = 100_000
SHORTEST, LONGEST = 60_000, 31 * 86_400_000
"""Milliseconds of `within`."""
DAY, MIDNIGHT = "day", "0 0 * * *"
_LONGEST_DAY = 50 * 3_600_000
"""Milliseconds: a zone that changes sides of the date line has a day twice."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
NAMESPACE, QUEUE = "namespace", "queue"
TOLD = 3
"""Budgets that a sentence names."""
BEFORE_EVICTION = (Step.PLANNED, Step.HOLDING, Step.HELD)


def check(config: MigrationConfig) -> None:
    """Raises ValueError with path, value and what is allowed."""
    budgets = config.budgets
    if len(budgets) > MOST:
        raise ValueError(f"budgets: {len(budgets)} of them; allowed: up to {MOST}")
    for i, budget in enumerate(budgets):
        try:
            _check(budget)
        except ValueError as error:
            raise ValueError(f"budgets[{i}].{error}") from None
        if any(other.name == budget.name for other in budgets[:i]):
            raise ValueError(f"budgets[{i}].name: {budget.name!r}; allowed: each name once")


def _check(budget: EvictionBudget) -> None:
    if not _NAME.fullmatch(budget.name):
        raise ValueError(f"name: {budget.name!r}; allowed: up to 63 lower-case letters, digits and -, such as training-per-day")
    if not 0 <= budget.evictions <= MOST_EVICTIONS:
        raise ValueError(f"evictions: {budget.evictions}; allowed: 0 (for none) to {MOST_EVICTIONS}")
    if budget.within != DAY and not (isinstance(budget.within, int) and SHORTEST <= budget.within <= LONGEST):
        raise ValueError(f"within: {budget.within!r}; allowed: {DAY} (from midnight to midnight in timeZone), or 1m to {format_milliseconds(LONGEST)}")
    if budget.per and budget.per_node_label:
        raise ValueError("perNodeLabel: set beside per; allowed: one of them")
    for name, said in (("namespaceSelector", budget.namespace_selector), ("nodeSelector", budget.node_selector)):
        if said is not None and (why := _selector(said).check()):
            raise ValueError(f"{name}.{why}")
    if budget.per_node_label and (why := LabelSelector(match_labels={budget.per_node_label: ""}).check()):
        raise ValueError(f"perNodeLabel: {why}")


# -- what a move is charged to ---------------------------------------------------------------------------------------------


Key = str
"""A budget's name; of one that is `per` something with `/` and what that is."""


def keys(state: ClusterState, namespace: str, queue: str, node: NodeName) -> tuple[Key, ...]:
    """Which budgets the eviction of such a pod from such a node is charged to."""
    found = []
    for budget in state.migration_config.budgets:
        labels = known.labels if (known := state.nodes.get(node)) is not None else {}
        if not _is_about(state, budget, namespace, queue, labels):
            continue
        if budget.per_node_label:
            found.append(f"{budget.name}/{labels.get(budget.per_node_label, '')}")
        elif budget.per:
            found.append(f"{budget.name}/{namespace if budget.per == NAMESPACE else queue}")
        else:
            found.append(budget.name)
    return tuple(found)


def keys_of(state: ClusterState, move: Move) -> tuple[Key, ...]:
    """Of a move that is planned. One that moves on a pod which another move brings is of that one's queue."""
    if not state.migration_config.budgets:
        return ()
    pod = state.fact_of(move.pod)
    if pod is None and move.follows and (first := state.migrations.get(move.follows)) is not None:
        pod = state.fact_of(first.successor) or state.fact_of(first.move.pod)
    return keys(state, move.namespace, queue_of(state, pod) if pod is not None else "", move.source)


def queue_of(state: ClusterState, pod: PodObserved) -> str:
    """The queue that it is in, whoever places it: its PodGroup's, the one that it names, or Kueue's; `default` where it names none and Restow places it."""
    group = group_of(pod)
    known = state.pod_groups.get(group) if group is not None else None
    said = known.queue if known is not None else queue_annotation(pod)
    return said or pod.labels.get(QUEUE_NAME, "") or (DEFAULT_QUEUE if state.ours(pod) else "")


def _is_about(state: ClusterState, budget: EvictionBudget, namespace: str, queue: str, labels: dict[str, str]) -> bool:
    if budget.namespaces and namespace not in budget.namespaces:
        return False
    if budget.queues and queue not in budget.queues:
        return False
    if budget.namespace_selector is not None:
        known = state.namespaces.get(namespace)
        if known is None or not selects(_selector(budget.namespace_selector).selects, known.labels):
            return False
    return budget.node_selector is None or selects(_selector(budget.node_selector).selects, labels)


def _selector(said: Selector) -> LabelSelector:
    expressions = tuple(Requirement(key=one.key, operator=one.operator, values=one.values) for one in said.match_expressions)
    return LabelSelector(match_labels=said.match_labels, match_expressions=expressions)


# -- what is spent ---------------------------------------------------------------------------------------------------------


def of_key(config: MigrationConfig, key: Key) -> EvictionBudget | None:
    """None for one of a budget that the policy has not any more."""
    name = key.partition("/")[0]
    return next((budget for budget in config.budgets if budget.name == name), None)


def spent(state: ClusterState, key: Key, now: Millis) -> list[Millis]:
    """When the evictions were decided that count now, in order."""
    budget, times = of_key(state.migration_config, key), state.budget_spent.get(key)
    if budget is None or not times:
        return []
    if isinstance(budget.within, int):
        return sorted(at for at in times.values() if abs(now - at) < budget.within)
    begin, end = day_of(state.migration_config.time_zone, now)
    return sorted(at for at in times.values() if begin <= at < end)


def reserved(state: ClusterState) -> Counter[Key]:
    """How many evictions are planned and not decided yet."""
    return Counter(key for id, charged in state.budgeted.items() if is_waiting(state, state.migrations[id]) for key in charged)


def is_waiting(state: ClusterState, migration: Migration) -> bool:
    """Whether its eviction is still to be decided, as far as nobody has called it off."""
    return migration.step in BEFORE_EVICTION and not migration.reason and migration.plan not in state.cancelled


def is_stale(config: MigrationConfig, key: Key, at: Millis, now: Millis) -> bool:
    """Whether an eviction will never count again, unless the clock is put back."""
    budget = of_key(config, key)
    return budget is None or at <= now - (budget.within if isinstance(budget.within, int) else _LONGEST_DAY)


def day_of(zone: str, now: Millis) -> tuple[Millis, Millis]:
    """From its midnight until before the next one, by the wall clock. Where the clock skips midnight, the day begins when it would have been."""
    begin, end = Millis(0), windows.next_firing(MIDNIGHT, zone, Millis(now - _LONGEST_DAY))
    while end <= now:
        begin, end = end, windows.next_firing(MIDNIGHT, zone, end)
    return begin, end


class Account(msgspec.Struct, frozen=True, rename="camel"):
    """What a budget has: `of` is the namespace, queue or label's value that it is about, empty where it is about no single one. `left` is below zero where the policy has
    made it smaller. `again`: when it has one more, RFC 3339; empty where it has, or never will."""

    budget: str
    of: str
    within: str
    evictions: int
    spent: int
    planned: int
    left: int
    again: str


def accounts(state: ClusterState, now: Millis) -> list[Account]:
    """In the policy's order; of one that is `per` something those of which anything is spent or planned, by name."""
    planned, found = reserved(state), list[Account]()
    for budget in state.migration_config.budgets:
        if not (budget.per or budget.per_node_label):
            found.append(_account(state, budget, budget.name, now, planned))
            continue
        known = dict.fromkeys(key for key in (*state.budget_spent, *planned) if key.startswith(f"{budget.name}/"))
        several = (_account(state, budget, key, now, planned) for key in sorted(known))
        found += [one for one in several if one.spent or one.planned]
    return found


def _account(state: ClusterState, budget: EvictionBudget, key: Key, now: Millis, planned: Mapping[Key, int]) -> Account:
    used, coming = len(spent(state, key, now)), planned.get(key, 0)
    left = budget.evictions - used - coming
    again = frees_at(state, key, now, coming + 1) if left <= 0 else None
    return Account(
        budget.name, key.partition("/")[2], DAY if budget.within == DAY else format_milliseconds(int(budget.within)),
        budget.evictions, used, coming, left, rfc3339(again) if again is not None and again > now else "",
    )  # fmt: skip


def nothing_left(state: ClusterState, now: Millis) -> str:
    """Which budgets allow no further move, for people; empty where none is used up. (Of one that allows none at all there is nothing to tell.)"""
    used_up = [one for one in accounts(state, now) if one.left <= 0 and one.evictions]
    if not used_up:
        return ""
    told = [f"{one.budget}{f' ({one.of})' * bool(one.of)}{f' until {one.again}' * bool(one.again)}" for one in used_up[:TOLD]]
    more = f" and {len(used_up) - TOLD} more" if len(used_up) > TOLD else ""
    return f"eviction budgets are used up: {', '.join(told)}{more}"


# -- what is left ----------------------------------------------------------------------------------------------------------


def refused(state: ClusterState, now: Millis, unit: Callable[[Migration], Hashable]) -> dict[MigrationId, str]:
    """Moves for whose evictions nothing is left, and why. In the order of the plans: who was planned first has it. Moves of the same `unit` go together or not at all."""
    waiting = [state.migrations[id] for id in state.budgeted]
    waiting = [one for one in waiting if is_waiting(state, one)]
    wanted = Counter(key for one in waiting for key in state.budgeted[one.id])
    left = {key: _most(state, key) - len(spent(state, key, now)) for key in wanted}
    if all(many <= left[key] for key, many in wanted.items()):
        return {}
    units = defaultdict[Hashable, list[Migration]](list)
    for one in sorted(waiting, key=order):
        units[unit(one)].append(one)
    found: dict[MigrationId, str] = {}
    given = Counter[Key]()
    for members in units.values():
        needed = Counter(key for one in members for key in state.budgeted[one.id])
        if (key := next((key for key, many in needed.items() if given[key] + many > left[key]), None)) is None:
            given.update(needed)
        else:
            found.update(dict.fromkeys((one.id for one in members), why(state, key, now, given[key], needed[key])))
    return found


def objection(state: ClusterState, now: Millis, moves: Iterable[Sequence[Key]]) -> str:
    """Why not all of these can be planned beside what is planned already; empty where they can."""
    before = reserved(state)
    for key, many in Counter(key for charged in moves for key in charged).items():
        if len(spent(state, key, now)) + before[key] + many > _most(state, key):
            return why(state, key, now, before[key], many)
    return ""


class Left:
    """What one run of planners may take: what is neither spent nor planned, less what the run has taken already. What is planned is counted now, for the run may
    apply its own plans to the state as it goes on."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state, self._now = state, now
        self.bounds = bool(state.migration_config.budgets)
        self._planned = reserved(state) if self.bounds else Counter[Key]()
        self._left: dict[Key, int] = {}
        self._charged: dict[tuple[PodUid, NodeName], tuple[Key, ...]] = {}
        self._said: dict[Key, str] = {}
        self._taken = Counter[Key]()

    def copy(self) -> "Left":
        new = Left.__new__(Left)
        new.__dict__.update(self.__dict__)
        new._taken = self._taken.copy()
        return new

    def charged(self, uid: PodUid, node: NodeName) -> tuple[Key, ...]:
        """Which budgets are charged where it leaves this node."""
        known = self._charged.get((uid, node))
        if known is None:
            pod = self._state.pods[uid].fact
            known = self._charged[uid, node] = keys(self._state, pod.namespace, queue_of(self._state, pod), node) if self.bounds else ()
        return known

    def take(self, charged: Iterable[Key]) -> None:
        self._taken.update(charged)

    def exceeded(self, more: Mapping[Key, int]) -> str:
        """Why so many more are too many, `Word: sentence`, by the first budget of which that is so; empty where they are not."""
        key = next((key for key, many in more.items() if self._taken[key] + many > self._of(key)), None)
        return "" if key is None else self._why(key)

    def reached(self, charged: Iterable[Key]) -> str:
        """The same of one more eviction."""
        return self.exceeded(dict.fromkeys(charged, 1))

    def _of(self, key: Key) -> int:
        """At the beginning of the run."""
        left = self._left.get(key)
        if left is None:
            left = self._left[key] = _most(self._state, key) - len(spent(self._state, key, self._now)) - self._planned[key]
        return left

    def _why(self, key: Key) -> str:
        known = self._said.get(key)
        if known is None:
            all_of_it = why(self._state, key, self._now, self._planned[key], 1)
            known = self._said[key] = f"{EVICTION_BUDGET}: {all_of_it}{f'; this plan may take {left}' if (left := self._of(key)) > 0 else ''}"
        return known


def why(state: ClusterState, key: Key, now: Millis, planned: int, needed: int) -> str:
    """That so many more evictions are too many for a budget of which so many are `planned` before, and when they would not be."""
    budget = of_key(state.migration_config, key)
    assert budget is not None, "asked of what the policy has"
    used = len(spent(state, key, now))
    then = frees_at(state, key, now, planned + needed)
    return (
        f"the eviction budget {said(budget, key)}: {used} spent{f', {planned} planned' * bool(planned)}"
        f"{f'; {needed} more needed at once' * (needed > 1)}{f'; there is enough from {rfc3339(then)} on' if then is not None and then > now else ''}"
    )


def said(budget: EvictionBudget, key: Key) -> str:
    """What it allows, for people."""
    within = "a day" if budget.within == DAY else f"within {format_milliseconds(int(budget.within))}"
    return f"{key} allows {budget.evictions} {within}"


def frees_at(state: ClusterState, key: Key, now: Millis, many: int) -> Millis | None:
    """When so many evictions are left, if nothing else is spent meanwhile: `now` where they are already, None for never."""
    config = state.migration_config
    budget = of_key(config, key)
    if budget is None:
        return now
    if many > budget.evictions:
        return None
    times = spent(state, key, now)
    too_many = len(times) + many - budget.evictions
    if too_many <= 0:
        return now
    if isinstance(budget.within, int):
        return Millis(times[too_many - 1] + budget.within)
    return day_of(config.time_zone, now)[1]


def _most(state: ClusterState, key: Key) -> int:
    budget = of_key(state.migration_config, key)
    return budget.evictions if budget is not None else MOST_EVICTIONS
