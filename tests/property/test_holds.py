"""Whatever happens to Reservations, pods and nodes: nothing is promised twice, nothing is held for the dead, and what the state
keeps about holds is what they are."""

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
