"""Whatever happens to Reservations, pods and nodes: nothing is promised twice, nothing is held for the dead, and what the state
keeps about holds is what they are."""

from random import Random

import pytest
from effort import examples
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from property.holds_play import FACTS, Play

OFTEN = ("ask", "ask", "pod", "pod", "pod", "work", "work", "bind-all", "race")
SOMETIMES = ("restart", "refuse", "expire", "collect")
NUMBER = st.integers(0, 83)
STEPS = st.lists(st.tuples(st.sampled_from((*OFTEN, *OFTEN, *FACTS, *SOMETIMES)), NUMBER, NUMBER, NUMBER), min_size=4, max_size=40)


def played(steps, preempt=False) -> Play:
    play = Play(preempt)
    for step in steps:
        play.step(*step)
    return play


@settings(max_examples=examples(60), deadline=None)
@for_all(STEPS, st.booleans())
def test_nothing_is_promised_twice_and_nothing_held_for_the_dead(steps, preempt):
    played(steps, preempt).end()


A_SEED = st.integers(0, 10**9)


@example(22366)  # a hand-over is void, and the same commit gives the CPUs of that slot to another hold
@example(46875090)  # a pod is refused by the API after its Reservation was, and while a later generation of that waits for its review
@example(3546903)  # a hand-over is void, for its pod has just gone; whom the same commit gives the port of that slot is not to blame
@example(13168)  # the owner of a hold is bound elsewhere by somebody, where another hold has got the host port that it left
@example(227139)  # a hold comes back, for its owner is gone before it is bound, where another has just been resized into what that had left
@settings(max_examples=examples(120), deadline=None)
@for_all(A_SEED)
def test_nor_in_long_plays(seed):
    """Hypothesis begins with short ones; here all are long."""
    luck = Random(seed)
    kinds = (*OFTEN, *OFTEN, *FACTS, *SOMETIMES)
    steps = [(luck.choice(kinds), *(luck.randrange(84) for _ in range(3))) for _ in range(luck.choice((20, 40, 60)))]
    played(steps, luck.random() < 0.3).end()

RECORDED = {
    "a hold that is resized where it is has its new CPUs for itself": ([("ask", 4, 0, 0), ("work", 0, 0, 0), ("ask", 4, 61, 0)], True),
    "a hold that is resized to have a port has it for itself": ([("ask", 2, 0, 0), ("work", 0, 0, 0), ("ask", 2, 36, 2)], True),
    "nothing is resized on a node that is gone": (
        [("ask", 3, 2, 51), ("race", 0, 0, 0), ("ask", 3, 3, 50), ("race", 0, 0, 0), ("node", 1, 0, 0)], False,
    ),
    "what a pod leaves of what it was lent is the hold's again": (
        [("pod", 0, 0, 55), ("pod", 0, 0, 0), ("pod", 1, 0, 0), ("pod", 0, 0, 71), ("race", 0, 0, 2), ("pod", 0, 0, 30), ("pod", 0, 0, 79),
         ("bind", 1, 0, 0), ("deleting", 0, 0, 0), ("node", 2, 0, 0), ("ask", 1, 74, 1), ("pod", 0, 0, 0), ("pod", 0, 0, 0), ("pod", 0, 0, 0),
         ("pod", 3, 5, 0), ("refuse", 0, 0, 0), ("foreign", 0, 0, 0), ("work", 0, 0, 0), ("ask", 0, 0, 0), ("ends", 0, 0, 0), ("work", 0, 0, 0)], True,
    ),
    "CPUs of a hold are not lent": (
        [("ask", 0, 0, 0), ("ask", 0, 61, 0), ("ask", 1, 0, 0), ("pod", 0, 0, 0), ("race", 0, 0, 0), ("pod", 65, 5, 0)], True,
    ),
    "the port of a hold that lends its room is not for anybody": (
        [("ask", 1, 0, 0), ("ask", 0, 0, 0), ("ask", 1, 7, 7), ("ask", 2, 62, 0), ("unask", 1, 0, 0), ("pod", 4, 5, 0), ("pod", 24, 4, 0)], False,
    ),
    "a hold that is given back is still asked for in another size": (
        [("ask", 0, 0, 0), ("pod", 3, 0, 0), ("pod", 0, 0, 58), ("race", 0, 0, 0), ("refuse", 0, 0, 0), ("ask", 0, 5, 4), ("race", 0, 0, 0),
         ("refuse", 0, 0, 0)], False,
    ),
    "what a moved hold leaves goes to who waits there": (
        [("pod", 0, 0, 0), ("foreign", 0, 0, 0), ("foreign", 0, 1, 0), ("gone", 0, 0, 0), ("ask", 0, 4, 1), ("ask", 1, 0, 55), ("pod", 0, 0, 71),
         ("pod", 3, 5, 0), ("work", 0, 0, 0), ("ask", 0, 3, 2), ("work", 0, 0, 0), ("ask", 0, 2, 0), ("ask", 1, 0, 0), ("ask", 2, 0, 1),
         ("gone", 1, 0, 0)], False,
    ),
    "what a hold leaves goes to a place that began to wait in the same session": (
        [("ask", 0, 0, 2), ("race", 0, 0, 0), ("pod", 0, 0, 22), ("foreign", 0, 0, 0), ("pod", 2, 0, 0), ("pod", 3, 0, 0), ("pod", 1, 0, 0),
         ("gone", 0, 0, 0), ("node", 2, 0, 0), ("work", 0, 0, 0), ("ask", 1, 3, 0), ("ask", 4, 1, 1), ("node", 1, 1, 1), ("pod", 1, 0, 2),
         ("pod", 1, 0, 2), ("pod", 3, 0, 0), ("work", 0, 0, 0), ("pod", 0, 0, 0), ("refuse", 1, 0, 0), ("foreign", 0, 0, 0), ("ask", 4, 64, 0)], False,
    ),
    "a hold that this session has given something of is resized in the next one": (
        [("ask", 3, 0, 0), ("work", 0, 0, 0), ("pod", 0, 0, 0), ("ask", 3, 58, 2), ("pod", 0, 0, 0)], False,
    ),
    "CPUs of a hand-over that was overtaken are nobody's twice": (
        [("ask", 0, 60, 0), ("work", 0, 0, 0), ("pod", 0, 3, 0), ("pod", 0, 0, 0), ("gone", 1, 0, 0), ("pod", 37, 3, 0), ("pod", 0, 0, 0),
         ("race", 2, 2, 0)], True,
    ),
    "CPUs of a hand-over that is void are no other hold's": (
        [("ask", 0, 8, 0), ("pod", 0, 0, 0), ("pod", 0, 0, 0), ("ask", 1, 8, 0), ("race", 2, 0, 0), ("pod", 0, 0, 0)], True,
    ),
    "the last place of a Reservation that has lost another is not let go to be moved": (
        [("pod", 3, 0, 0), ("pod", 5, 0, 0), ("pod", 0, 0, 0), ("ask", 0, 21, 1), ("pod", 0, 0, 0), ("work", 0, 0, 0), ("ask", 2, 4, 0),
         ("ask", 1, 3, 0), ("node", 2, 1, 1), ("pod", 4, 5, 0), ("work", 0, 0, 0), ("ask", 0, 1, 0)], True,
    ),
}  # fmt: skip
"""What went wrong once, as short as it became."""


@pytest.mark.parametrize(("steps", "preempt"), RECORDED.values(), ids=RECORDED)
def test_what_went_wrong_once_does_not_again(steps, preempt):
    played(steps, preempt).end()
