"""A plan is made smaller for as long as the same promise breaks first."""

from simulation.draw import draw
from simulation.runner import Options
from simulation.shrink import shrink
from simulation.world import Result


def played(needed):
    """A run that breaks where the plan has all that is needed."""

    def run(plan, options):
        parts = [*plan.faults, *plan.users, *plan.workloads, *plan.nodes]
        broken = [(1.0, 1, "one", "")] if all(part in parts for part in needed) else [(1.0, 1, "other", "")]
        return Result(seed=plan.seed, broken=broken)

    return run


def test_only_what_is_needed_stays():
    plan = draw(11)
    needed = [plan.faults[3], plan.faults[-1], plan.users[5], plan.workloads[2], plan.nodes[1]]
    run = played(needed)
    small, result = shrink(plan, run(plan, Options()), Options(), tries=2000, run=run)
    assert result.promise == "one"
    assert [*small.faults, *small.users, *small.workloads, *small.nodes] == needed


def test_the_runs_are_bounded():
    plan, count = draw(11), 0

    def run(smaller, options):
        nonlocal count
        count += 1
        return Result(seed=1, broken=[(1.0, 1, "one" if len(smaller.faults) % 2 else "other", "")])

    shrink(plan, Result(seed=1, broken=[(1.0, 1, "one", "")]), Options(), tries=30, run=run)
    assert count <= 30
