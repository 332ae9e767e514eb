"""Logs of the real deciders are re-decided identically, whatever happened."""

import pytest
from replay.world import World

from restow.domain.deciders import DECIDERS
from restow.replay.diff import diff
from restow.replay.find import find
from restow.replay.state_at import state_at
from restow.replay.verify import verify
from restow.replay.why import why


@pytest.fixture(scope="module", params=range(4))
def world(request):
    made = World(request.param)
    made.play(80)
    return made


def test_every_decision_is_re_decided_identically(world):
    report = verify(world.log.source(), DECIDERS)
    assert report.ok, (report.sentence, report.differences[:2], report.found[:2])
    assert report.identical == report.decisions > 100
    assert {family for family, own in report.families.items() if own.identical} == set(DECIDERS)


def test_pods_were_moved_and_none_of_it_was_void(world):
    steps = [migration.step for migration in world.state.migrations.values()]
    assert "landed" in steps


def test_the_state_of_the_services_is_the_state_of_a_replay(world):
    assert diff(world.state, state_at(world.log.source())) == []


def test_everything_can_be_explained(world):
    source = world.log.source()
    things = [*list(world.state.pods)[:15], *list(world.state.reservations)[:5], *list(world.state.migrations)[:5]]
    for id in things:
        answer = why(source, id)
        assert answer.subject == find(source, id)
        assert answer.verdict
        assert answer.chain
        assert [entry.seq for entry in answer.story] == sorted(entry.seq for entry in answer.story)
