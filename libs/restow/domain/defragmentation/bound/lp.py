"""The bound with a solver: the best prices there are, by a linear program (`program`). Needs HiGHS, the extra `restow[bound]`."""

from importlib.util import find_spec
from typing import NamedTuple

from restow.domain.defragmentation.bound.contents import Contents
from restow.domain.defragmentation.bound.filled import Whole
from restow.domain.defragmentation.bound.paired import Paired, Pairs
from restow.domain.defragmentation.bound.priced import Priced
from restow.domain.defragmentation.bound.problem import Problem
from restow.domain.defragmentation.bound.program import Program


def installed() -> bool:
    return find_spec("highspy") is not None


class Solved(NamedTuple):
    """The lowest `value` found, and what it was before totals were whole numbers: `root`."""

    value: int
    root: int


def solved(of: Problem, limit: int, steps: int, ceiling: int | None = None) -> Solved:
    """In so many steps at most; anything no less than that where the root is no lower than `ceiling`, the root of another: whole totals lower both alike."""
    if not Pairs.may(of):
        return _others(of, limit, steps, ceiling)
    found = _run(Paired(of, limit), steps)
    if Pairs.enough(of):
        return found
    other = _others(of, limit, steps, found.root if ceiling is None else min(ceiling, found.root))
    return Solved(min(found.value, other.value), min(found.root, other.root))


def _others(of: Problem, limit: int, steps: int, ceiling: int | None) -> Solved:
    """Where other resources matter."""
    return _run(Whole(of, limit, ceiling) if Contents.may(of) else Priced(of, limit), steps)


def _run(program: Program, steps: int) -> Solved:
    root, used = program.improved(program.first(), steps)
    return Solved(program.branched(root, steps - used if program.may_branch else 0), root.value)
