"""A plan is carried on until one made after it would move nothing: given what searches find, then what becomes of the plan."""

from domain.build import NOW, given, node, pod, replica_of, shape

from restow.contracts.values import Move
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.order import Ordered
from restow.domain.defragmentation.optimizing.plan import NOWHERE, Ends, Wanted, _Maker, settle
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.simulation import Spot

STEPS = 10
"""What each search costs."""


def plan(*pods: str) -> Ordered:
    """Each goes to row 1."""
    return Ordered([Move(f"m-{pod}", pod, "default", pod, "a", "b") for pod in pods], {pod: Spot(1) for pod in pods}, [])


def pods(ordered: Ordered) -> list[str]:
    return [move.pod for move in ordered.moves]


class Searches:
    """What each search in turn finds. A pod is worth one; `lost` are what no order of all moves together has, `worthless` gain nothing."""

    def __init__(self, *found: str, lost: str = "", worthless: str = "", full: bool = False) -> None:
        self.found, self.lost, self.worthless, self.full = list(found), lost, worthless, full
        self.asked: list[int] = []

    def search(self, steps: int, ends: Ends) -> Wanted:
        self.asked.append(steps)
        found = self.found.pop(0) if self.found else ""
        return Wanted(dict.fromkeys(found, Spot(1)), STEPS, self.full)

    def order(self, wanted, ends: Ends) -> Ordered:
        return plan(*(pod for pod in wanted if ends or pod not in self.lost))

    def joined(self, first: Ordered, then: Ordered) -> Ordered | None:
        return plan(*pods(first), *pods(then))

    def net(self, ordered: Ordered) -> int:
        return sum(pod not in self.worthless for pod in pods(ordered))


def test_what_the_next_searches_find_becomes_part_of_the_plan_until_one_finds_nothing():
    searches = Searches("b", "cd")
    ended, taken = settle(searches, plan("a"), 100, 100)
    assert (pods(ended), taken) == (["a", "b", "c", "d"], 30)
    assert searches.asked == [100, 90, 80], "each has the steps that are left"


def test_it_ends_with_the_steps():
    searches = Searches("b", "c", "d")
    ended, taken = settle(searches, plan("a"), 20, 20)
    assert (pods(ended), taken) == (["a", "b", "c"], 20)


def test_no_search_has_more_steps_than_that_of_a_plan_made_next():
    searches = Searches("b", "c")
    ended, taken = settle(searches, plan("a"), 40, 120)
    assert (pods(ended), taken) == (["a", "b", "c"], 30)
    assert searches.asked == [40, 40, 40], "the last found nothing, and had as many as the next plan will have"


def test_it_ends_with_a_limit():
    searches = Searches("b", "c", full=True)
    assert pods(settle(searches, plan("a"), 100, 100)[0]) == ["a", "b"]


def test_what_finds_no_order_with_the_rest_goes_after_it():
    assert pods(settle(Searches("b", lost="b"), plan("a"), 100, 100)[0]) == ["a", "b"]


def test_what_gains_nothing_is_left_out():
    searches = Searches("b", "c", worthless="b")
    assert pods(settle(searches, plan("a"), 100, 100)[0]) == ["a"]
    assert searches.asked == [100], "nor is it looked for again"


def test_where_nothing_moves_nothing_is_carried_on():
    searches = Searches("b")
    assert settle(searches, plan(), 100, 100) == (plan(), 0)
    assert searches.asked == []


class EachTimeOneLess(_Maker):
    """However often the rest is put in order, one more of it is for nothing."""

    gain = 1

    def _judged(self, ordered, ends, pruned):
        return self.gain, set(list(ordered.ends)[pruned:])


def test_where_each_time_fewer_are_worth_it_the_last_ones_are_kept_if_all_of_them_are():
    facts = [shape("s", cpu=1_000), node("to", cpu=64_000)]
    for i in range(9):
        facts += [node(f"n{i}"), pod(f"p{i}", "s", f"n{i}", owner=replica_of("rs"))]
    state = given(*facts)
    maker = EachTimeOneLess(Task(state, DefragmentationArgs(planner="optimizing", objective="nodes"), NOW, "p", 99))
    wanted = {f"p{i}": Spot(state.table.rows["to"]) for i in range(9)}
    assert len(maker.order(wanted, NOWHERE).moves) == 6
    maker.gain = 0
    assert maker.order(wanted, NOWHERE).moves == []


def test_the_rest_of_the_limit_is_left_to_what_carries_a_plan_on():
    """A set that is too large for what is left keeps no smaller one from moving, now or in the next plan."""
    assert EachTimeOneLess(Task(given(node("a")), DefragmentationArgs(), NOW, "p", 9)).limits.within(5, 3).moves == 6
