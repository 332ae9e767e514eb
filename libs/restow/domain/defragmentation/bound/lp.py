"""The bound with a solver: the best prices there are, by a linear program (`program`). Needs HiGHS, the extra `restow[bound]`."""

from importlib.util import find_spec

from restow.domain.defragmentation.bound.contents import Contents
from restow.domain.defragmentation.bound.filled import Whole
from restow.domain.defragmentation.bound.paired import Paired, Pairs
from restow.domain.defragmentation.bound.priced import Priced
from restow.domain.defragmentation.bound.problem import Problem
from restow.domain.defragmentation.bound.program import Program


def installed() -> bool:
    return find_spec("highspy") is not None


def solved(of: Problem, limit: int, steps: int, ceiling: int | None = None) -> int:
    """The lowest value found in so many steps, or any where it will be no lower than `ceiling`."""
    if Pairs.may(of):
        value = _run(Paired(of, limit), steps)
        return value if Pairs.enough(of) else min(value, _others(of, limit, steps, value if ceiling is None else min(ceiling, value)))
    return _others(of, limit, steps, ceiling)


def _others(of: Problem, limit: int, steps: int, ceiling: int | None) -> int:
    """Where other resources matter."""
    return _run(Whole(of, limit, ceiling) if Contents.may(of) else Priced(of, limit), steps)


def _run(program: Program, steps: int) -> int:
    root, used = program.improved(program.first(), steps)
    return program.branched(root, steps - used if program.may_branch else 0)
