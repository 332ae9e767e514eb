"""Mutants of Python files, in a stated order, and a sample of them."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cosmic_ray.plugins
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code

LEFT_OUT = ("VariableReplacer", "VariableInserter", "RemoveDecorator", "ExceptionReplacer")
"""Operators whose mutants fail at import or need to be told what to do."""


class Mutant(NamedTuple):
    """`occurrence` is the operator's own count in the file."""

    file: Path
    line: int
    column: int
    operator: str
    occurrence: int

    def mutated(self) -> str | None:
        """The file's text with the change; None where the operator would change nothing."""
        operator = cosmic_ray.plugins.get_operator(self.operator)()
        return mutate_code(self.file.read_text(), operator, self.occurrence)

    @property
    def name(self) -> str:
        return self.operator.rpartition("/")[2]


def mutants(file: Path) -> Iterator[Mutant]:
    """All of a file, by operator and place. Annotations say nothing when a program runs, and are left out."""
    tree = get_ast(file.read_text())
    for name in sorted(cosmic_ray.plugins.operator_names()):
        if name.rpartition("/")[2].startswith(LEFT_OUT):
            continue
        operator, occurrence = cosmic_ray.plugins.get_operator(name)(), 0
        for node in _walk(tree):
            for start, _ in operator.mutation_positions(node):
                if not _annotation(node):
                    yield Mutant(file, start[0], start[1], name, occurrence)
                occurrence += 1


def _walk(node) -> Iterator:
    yield node
    for child in getattr(node, "children", ()):
        yield from _walk(child)


def _annotation(node) -> bool:
    """Whether it is in the annotation of a name, a parameter or a result."""
    while node.parent is not None:
        parent = node.parent
        if parent.type == "annassign" and node is parent.children[1]:
            return True
        if parent.type == "tfpdef" and node is parent.children[-1]:
            return True
        if parent.type == "funcdef" and node is parent.annotation:
            return True
        node = parent
    return False


def sample(files: list[Path], count: int, seed: int, lines: dict[str, set[int]]) -> list[Mutant]:
    """So many, of different places: first a place is allocated, each alike, then one of its mutants. `lines`: those that some test runs; what
    none runs is no question of how good the tests are, and `coverage` says it."""
    places: dict[tuple[Path, int, int], list[Mutant]] = {}
    for file in sorted(files):
        for mutant in mutants(file):
            if mutant.line in lines.get(str(file), ()):
                places.setdefault((file, mutant.line, mutant.column), []).append(mutant)
    chance = random.Random(seed)
    drawn = chance.sample(sorted(places), min(count, len(places)))
    return [chance.choice(places[place]) for place in drawn]
