"""Whatever happens to Reservations, pods and nodes: nothing is promised twice, nothing is held for the dead, and what the state
keeps about holds is what they are."""

from random import Random

from hypothesis import given as for_all
from hypothesis import settings
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


@settings(max_examples=60, deadline=None)
@for_all(STEPS, st.booleans())
def test_nothing_is_promised_twice_and_nothing_held_for_the_dead(steps, preempt):
    played(steps, preempt).end()


A_SEED = st.integers(0, 10**9)


@settings(max_examples=120, deadline=None)
@for_all(A_SEED)
def test_nor_in_long_plays(seed):
    """Hypothesis begins with short ones; here all are long."""
    luck = Random(seed)
    kinds = (*OFTEN, *OFTEN, *FACTS, *SOMETIMES)
    steps = [(luck.choice(kinds), *(luck.randrange(84) for _ in range(3))) for _ in range(luck.choice((20, 40, 60)))]
    played(steps, luck.random() < 0.3).end()
