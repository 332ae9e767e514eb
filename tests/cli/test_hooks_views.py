"""What `restow get migrations` and `restow why` say of a move that waits for the word of its workload."""

from domain.build import NOW
from domain.test_hooks import BY_HTTP, M, answers, asked

from restow.cli import views
from restow.replay.moves import consent_lines, move_lines


def row(state) -> tuple:
    (one,) = views.migrations(state)
    return views.COLUMNS["migrations"][1](one, NOW)


def test_a_move_that_waits_for_a_word_says_until_when():
    state = asked(BY_HTTP)
    assert row(state)[-1] == "asked, until 22:18:20"
    (said,) = move_lines(state, "p", [M])
    assert said.endswith("; held now; waits for the word of its workload (:8080/checkpoint) until 2023-11-14T22:18:20.000Z; silence keeps the pod where it is")
    (why,) = views.troubled(state, "migration")
    assert why["why"].startswith("waits for the word of its workload")


def test_and_when_it_has_come_what_it_was():
    state = asked(BY_HTTP)
    answers(state, "agreed")
    assert row(state)[-1] == "-"
    assert consent_lines(state, state.migrations[M]) == [f"its workload (:8080/checkpoint) has agreed, {views.rfc3339(NOW)}"]
    state = asked(BY_HTTP)
    answers(state, "refused", message="busy")
    assert row(state)[-1] == "WorkloadRefused"
