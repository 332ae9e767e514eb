"""Whoever makes a Reservation for a scheduler that is not ours hears what Restow makes of it: in an Event, for its status is that scheduler's."""

from types import SimpleNamespace

import pytest
from domain.build import NOW, configured, given, node, reservation, shape, then

from restow.domain import config
from restow.domain import reservation as reservations
from restow.domain.effects import WriteReservationStatus
from restow.reservation_cache.effects import executors


class Recorder:
    def __init__(self):
        self.notices = []
        self.record = self.notices.append


async def told(state, times=2):
    recorder = Recorder()
    execute = executors(SimpleNamespace(client=None, recorder=recorder))[WriteReservationStatus].execute
    for effect in reservations.decider.pending(state, None) * times:
        assert reservations.decider.owed(state, effect)
        await execute(effect, state)
    return [(one.reason, one.type, one.regarding.name, one.note) for one in recorder.notices]


def world(scheduler="volcano", **more):
    return given(node("a"), shape("theirs", scheduler=scheduler), reservation("r", ("t", 1, "theirs"), **more))


@pytest.mark.parametrize("scheduler", ["volcano", "koord-scheduler"])
async def test_a_new_one_is_told_of_once(scheduler):
    note = f"it is for scheduler {scheduler}, so Restow holds nothing for it, unless its policy names that scheduler under `restow.beside`"
    assert await told(world(scheduler)) == [("OtherScheduler", "Normal", "r", note)]


async def test_one_that_has_been_there_for_a_while_was_told_of_by_the_process_before_this_one():
    assert await told(world(created=NOW - 600_000)) == []


async def test_nor_is_anything_said_where_the_policy_names_its_scheduler():
    state = then(world(), configured("migration", config.MigrationConfig(beside=("volcano",))))
    assert reservations.decider.pending(state, None) == [], "it is accepted first"
