"""A commit says which readers understand it (`restow.contracts.reader`)."""

import pytest

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.envelope import Envelope, EnvelopeError
from restow.contracts.publish.schemas import EXAMPLE_ENVELOPE
from restow.contracts.reader import READER, SINCE, needed

GONE, MARKED = e.PodGone("p"), e.NodeGone("n")


def commit(*events):
    return [Decision(c.Observe("test", "given"), events)]


def test_a_commit_whose_events_may_be_passed_over_needs_the_first_reader():
    assert needed(commit(GONE, MARKED)) == 1
    assert needed(()) == 1


def test_a_commit_needs_the_reader_that_the_newest_of_its_events_needs():
    since = {e.PodGone: {"": 3}, e.NodeGone: {"": 2}}
    assert needed(commit(MARKED), since) == 2
    assert needed(commit(MARKED, GONE, MARKED), since) == 3


def test_a_field_counts_where_it_is_on_the_wire():
    since = {e.NodeObserved: {"unschedulable": 4}}
    usual = e.NodeObserved("n", "u", {"cpu": 1})
    assert needed(commit(usual), since) == 1
    assert needed(commit(e.NodeObserved("n", "u", {"cpu": 1}, unschedulable=True)), since) == 4


def test_what_is_marked_is_there_and_is_of_a_release_that_there_has_been():
    for cls, fields in SINCE.items():
        assert cls in e.EVENTS
        for field, reader in fields.items():
            assert 1 < reader <= READER
            assert not field or field in cls.__struct_fields__[len(cls.__struct_fields__) - len(cls.__struct_defaults__) :]


def test_the_header_is_there_and_back_and_absent_in_old_commits():
    headers = EXAMPLE_ENVELOPE.headers()
    assert headers["restow-reader"] == "1"
    assert Envelope.from_headers(headers) == EXAMPLE_ENVELOPE
    old = {name: value for name, value in headers.items() if name != "restow-reader"}
    assert Envelope.from_headers(old).reader == 0
    assert "restow-reader" not in Envelope.from_headers(old).headers()


@pytest.mark.parametrize("text", ["-1", "two", "", "9" * 40])
def test_no_number_of_a_reader_is_no_envelope(text):
    with pytest.raises(EnvelopeError, match="restow-reader"):
        Envelope.from_headers({**EXAMPLE_ENVELOPE.headers(), "restow-reader": text})
