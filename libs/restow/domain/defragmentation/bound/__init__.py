"""A proven bound beside a plan: whatever is searched for, nothing gains more beyond its cost.

The problem is relaxed (`problem`), its relaxation is solved for prices (`relaxed`), and the prices are made good ones: by a linear program where the solver
is there (`lp`), otherwise by what pods ask for (`volume`). Each value on the way is a bound; the lowest counts. No plan depends on any of it.
"""

from typing import Literal

import msgspec
import numpy as np

from restow.contracts.events import Planned
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.defragmentation.bound import lp, volume
from restow.domain.defragmentation.bound.problem import ONE, Problem, problems
from restow.domain.defragmentation.demand_mix import Wanted, WantedGang
from restow.domain.defragmentation.optimizing.gangs import able, as_gangs
from restow.domain.defragmentation.optimizing.plan import least
from restow.domain.defragmentation.optimizing.world import Rows, World, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.prices import Prices

__all__ = ["OBJECTIVES", "ONE", "Bound", "bound", "countable", "judged"]

Kind = Literal["LP", "volume"]
WORK = 120_000_000
"""Steps are fewer where each is more work: units of all bins, times who is at home in one."""
OBJECTIVES = ("devices", "nodes", "capacity", "value")
LARGEST = 1 << 59
"""What all nodes are worth in millionths of thousandths, at most."""
STEPS = {"LP": 200, "volume": 300}


class Bound(msgspec.Struct, frozen=True):
    """Of one plan, all but `gap` in millionths of one of the objective (of `value`: of a thousandth of the `unit`). `gained` and `cost` are the plan's. `net`: no plan gains more beyond its cost. `most`: so no
    plan that costs no more than this one gains more than that. `gap`: thousandths of `most` that this one misses."""

    kind: Kind
    objective: str
    gained: int
    cost: int
    net: int
    most: int
    gap: int
    unit: str = ""


def bound(task: Task, kind: Kind | None = None) -> int:
    """No plan of the optimizing planner for this task gains more beyond its cost; millionths of one of the objective, of which `OBJECTIVES` have a bound. `kind` is the
    better one that can be had unless it is said."""
    return _net(task, _rows(task), kind or _best())


def countable(task: Task) -> bool:
    """Whether the amounts are small enough to be added up: prices may be millions a day."""
    prices = Prices(task.state, task.args.prices)
    return task.args.objective in OBJECTIVES and sum(prices.per_hour) * task.args.horizonHours * 1000 < LARGEST


def _rows(task: Task) -> Rows:
    """With the pods of gangs that may be moved as one as if each might go alone, for its own part of the cost."""
    rows = Rows(task)
    as_gangs(rows, able(task.state, rows.evictable), "")
    return rows


def _apart(task: Task, rows: Rows) -> int:
    """From now on each place for a pod of a gang that is to be near to others counts, whether it makes up a whole gang or not; the most that plans gain less by that than they do, in millionths."""
    known = rows.appraisal.blocks
    if task.args.objective != "value" or not known.classes:
        return 0
    state, usable = task.state, rows.appraisal.usable
    before = rows.appraisal.total(only=rows.counted)
    rows.appraisal = Appraisal(state, task.args, task.time, _one_by_one(usable.wanted, known.gangs), ())
    rounded = sum(rows.appraisal.usable.rounded(row, 1) for row in np.flatnonzero(rows.counted).tolist())
    return ONE * (rows.appraisal.total(only=rows.counted) - before + rounded)


def _one_by_one(wanted: tuple[Wanted, ...], gangs: tuple[WantedGang, ...]) -> tuple[Wanted, ...]:
    """The demands with what the pods of gangs count besides."""
    parts = {(one.v.items, one.v.devices, one.rules): one for one in wanted}
    for gang in gangs:
        one = gang.one
        key = one.v.items, one.v.devices, one.rules
        parts[key] = one._replace(part=one.part + (parts[key].part if key in parts else 0))
    return tuple(parts.values())


def _best() -> Kind:
    return "LP" if lp.installed() else "volume"


def _net(task: Task, rows: Rows, kind: Kind) -> int:
    more = _apart(task, rows)
    with opened(task, task.args.objective, rows) as world:
        return _bound(world, task, kind) + more


def _bound(world: World, task: Task, kind: Kind) -> int:
    limit = min(task.max_moves, len(task.state.pods))
    if not limit:
        return 0
    lowest: int | None = None
    root: int | None = None
    for of in problems(world, max(least(task.args), 1), limit):
        steps = min(STEPS[kind], max(WORK // _work(of), 10))
        if kind == "LP":
            value, low = lp.solved(of, limit, steps, root)
            root = low if root is None else min(low, root)
        else:
            value = volume.descended(of, limit, steps)
        lowest = value if lowest is None else min(value, lowest)
    return max(lowest or 0, 0)


def _work(of: Problem) -> int:
    return (int((of.bins.kind >= 0).sum()) + len(of.bins.many)) * (int(of.bins.capacity.max(initial=0)) + 1) + 1


def judged(task: Task, planned: Planned, kind: Kind | None = None) -> Bound:
    """The plan of this task beside its bound."""
    kind = kind or _best()
    rows = _rows(task)
    with opened(task, task.args.objective, rows) as world:
        gained = ONE * _gain(world, planned)
    net = _net(task, rows, kind)
    unit = rows.appraisal.prices.unit if task.args.objective == "value" else ""
    cost = sum(move.cost for move in planned.moves) * max(least(task.args), 1)
    # What is gained is a whole number of the objective.
    most = (net + cost) // ONE * ONE
    return Bound(kind, task.args.objective, gained, cost, net, most, (most - gained) * 1000 // most if most else 0, unit)


def _gain(world: World, planned: Planned) -> int:
    """What the nodes are worth more once every move has landed."""
    table = world.state.table
    pods = {move.migration: move.pod for move in planned.moves}
    ends = {move.pod or pods[move.follows]: move for move in planned.moves}
    nodes: dict[int, tuple[list[int], list[int], int]] = {}
    for pod, end in ends.items():
        home = world.home(pod)
        for row, devices, sign in ((home.row, home.devices, 1), (table.rows[end.target], end.devices, -1)):
            free, shares, loads = nodes.get(row) or ([*world.free(row)[0]], [*world.free(row)[1]], int(world.loads[row]))
            for column, amount in world.vector(pod).items:
                free[column] += amount * sign
            for d in devices:
                if d.index < len(shares):
                    shares[d.index] += d.milli * sign
            nodes[row] = free, shares, loads - sign
    gain = sum(world.value.worth(row, *has) - world.worth[row] for row, has in nodes.items() if world.counted[row])
    return gain + (0 if world.tally is None else world.tally.would(nodes))
