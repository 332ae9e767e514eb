"""Planted faults are found: the judge can be seen to fail. `python -m simulation.planted` tries all of them."""

import difflib
import subprocess

import pytest

from simulation.planted import PLANTED, ROOT, find, plant

QUICK = (("device-with-half", 1, "overcommitted"), ("cordon-overlooked", 1, "open-node"))
"""Found by a seed within its first commits."""


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.name)
def test_a_planted_fault_still_applies(one):
    text = (ROOT / one.path).read_text()
    changed = list(difflib.ndiff(text.splitlines(), one.applied(text).splitlines()))
    assert [line[0] for line in changed if line[0] in "+-"] == ["-", "+"]
    compile(one.applied(text), one.path, "exec")


def test_every_part_of_the_core_has_planted_faults():
    assert len(PLANTED) >= 30
    assert len({one.name for one in PLANTED}) == len(PLANTED)
    assert {one.part for one in PLANTED} == {"session", "fold", "saga", "cache", "collector"}


def test_a_fault_whose_line_has_changed_is_said():
    with pytest.raises(LookupError, match=r"stands 0 times in .*holds\.py"):
        next(one for one in PLANTED if one.name == "eviction-first").applied("nothing of it")


def test_the_tree_itself_stays_as_it_is(tmp_path):
    before = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    plant(PLANTED[0], tmp_path)
    assert (tmp_path / PLANTED[0].path).read_text() != (ROOT / PLANTED[0].path).read_text()
    assert subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout == before


@pytest.mark.parametrize(("name", "seed", "promise"), QUICK)
def test_a_planted_fault_is_found(name, seed, promise):
    found = find(next(one for one in PLANTED if one.name == name), [seed])
    assert found.promise == promise, found
