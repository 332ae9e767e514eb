"""A log that needs a later reader than this release is (`domain.too_old`)."""

import pytest
from domain.test_trust import LOG, NODE, body, envelope

from restow.contracts.reader import READER
from restow.domain import record_trust, snapshot
from restow.domain.fold import fold_record
from restow.domain.state import ClusterState
from restow.domain.too_old import TOO_OLD, too_old


def fold(state, family="cluster", content=None, **said):
    return fold_record(state, state.seq + 1, family, envelope(said.pop("of", family), **said), content or body(NODE), LOG)


def test_what_this_release_understands_is_decided_on():
    state = ClusterState()
    fold(state)
    fold(state, reader=READER)
    assert too_old(state) == ""


def test_the_first_record_that_needs_a_later_reader_is_named_with_its_release_for_good():
    state = ClusterState()
    fold(state, reader=READER + 1, release="9.0.0+abc registry/restow:9")
    fold(state, reader=1)
    assert too_old(state) == (
        f"{TOO_OLD}: record 1, written by 9.0.0+abc registry/restow:9, needs reader {READER + 1}, and this is reader {READER}. Run that release, or a later one"
    )
    assert too_old(snapshot.load(snapshot.dump(state))) == too_old(state)


@pytest.mark.parametrize(
    ("kind", "family", "content", "said"),
    [
        (record_trust.UNREADABLE, "session", b'{"decisions":[{"command":[],"events":{}}]}', {}),
        (record_trust.OTHER_FAMILY, "reservation", body(NODE), {}),
        (record_trust.NO_FAMILY, "console", body(), {}),
    ],
)
def test_a_record_that_is_void_only_because_it_is_later_counts(kind, family, content, said):
    state = ClusterState()
    assert fold(state, family, content, reader=READER + 1, **said).kind == kind
    assert too_old(state)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (record_trust.OTHER_LOG, {"log": "b" * 32}),
        (record_trust.OTHER_HISTORY, {"digest": "7:" + "0" * 32}),
        (record_trust.NO_ENVELOPE, {"type": "another"}),
    ],
)
def test_a_stranger_makes_nobody_stand_by(kind, said):
    state = ClusterState()
    assert fold(state, reader=READER + 1, **said).kind == kind
    assert too_old(state) == ""


def test_a_record_of_no_family_that_names_another_log_makes_nobody_stand_by():
    state = ClusterState()
    fold(state, "console", reader=READER + 1, log="b" * 32)
    assert too_old(state) == ""
