"""`restow plans`, `approve`, `reject` and `mode` against a descheduler that says what a test tells it to."""

import pytest
from cli.conftest import export
from cli.test_defrag import TOKEN, answer, descheduler, packing  # noqa: F401 - a fixture among them
from replay.handmade import proposed

VIEW = {
    "plan": "p9", "phase": "proposed", "at": "2026-01-01T00:00:00.000Z", "until": "", "trigger": "cron", "planner": "greedy", "reason": "", "cancelled": "", "moves": 2,
    "before": packing(), "after": packing(1, 2), "waitsUntil": "2026-01-01T01:00:00.000Z", "answer": "", "by": "", "why": "",
}  # fmt: skip
MOVES = [{"id": f"p9-{i}", "wave": 1, "step": "proposed", "namespace": "shop", "name": f"web-{i}", "source": "a", "target": "b", "after": []} for i in (1, 2)]
MODE = {"name": "propose", "since": "2026-01-01T00:00:00.000Z", "by": "ada", "reason": "we look first"}


@pytest.fixture
def asks(restow, descheduler, monkeypatch):  # noqa: F811
    """Call a command against the fake."""
    monkeypatch.setenv("RESTOW_API_TOKEN", TOKEN)
    monkeypatch.setattr("restow.cli.approval.person", lambda: "ada")
    return lambda *arguments: restow(*arguments, "--descheduler", descheduler.url)


def test_plans_that_wait_are_listed_and_one_is_shown_with_its_moves(asks, descheduler):  # noqa: F811
    descheduler.answers[("GET", "/status")] = 200, {"mode": MODE, "proposed": [VIEW]}
    descheduler.answers[("GET", "/plans/p9")] = 200, {"plan": VIEW, "migrations": MOVES, "slots": []}
    said = asks("plans").said
    assert "p9 2026-01-01T00:00:00 2026-01-01T01:00:00 cron 2 0 → 1, 0 → 2" in said
    assert "`restow approve PLAN`" in said
    said = asks("plans", "p9").said
    assert "plan p9 (cron, greedy): 2 moves, waits for a person until 2026-01-01T01:00:00Z" in said
    assert "p9-1 1 proposed shop/web-1 a b" in said
    descheduler.answers[("GET", "/status")] = 200, {"mode": MODE, "proposed": []}
    assert asks("plans").said == "no plan waits for a person; the mode is propose"


def test_an_approval_says_who_and_what(asks, descheduler):  # noqa: F811
    descheduler.answers[("POST", "/plans/p9/approve")] = 200, {"seq": 7, "events": []}
    assert asks("approve", "p9", "go").said == "plan p9 approved; follow it: restow defrag --follow p9"
    assert asks("approve", "p9", "--moves", "p9-1, p9-2").said.startswith("2 moves of plan p9 approved")
    assert [one[2:] for one in descheduler.asked] == [
        ({"by": "ada", "reason": "go", "moves": []}, f"Bearer {TOKEN}"), ({"by": "ada", "reason": "", "moves": ["p9-1", "p9-2"]}, f"Bearer {TOKEN}"),
    ]  # fmt: skip
    assert asks("approve", "p9", "--moves", "p9-1,p9-1,").said.startswith("1 move of plan p9 approved"), "a move that is named twice is one"
    assert asks("approve", "p9", "--moves", ",").exit_code == 2


def test_a_rejection_needs_a_reason(asks, descheduler):  # noqa: F811
    descheduler.answers[("POST", "/plans/p9/reject")] = 200, {"seq": 7, "events": []}
    assert asks("reject", "p9").exit_code == 2
    assert asks("reject", "p9", "--reason", "no").said == "plan p9 rejected"
    assert descheduler.asked[-1][2] == {"by": "ada", "reason": "no"}


def test_an_answer_that_comes_too_late_is_exit_code_1(asks, descheduler):  # noqa: F811
    descheduler.answers[("POST", "/plans/p9/approve")] = 409, {"error": "approve: plan p9 does not wait for a person (it was rejected by bob)"}
    late = asks("approve", "p9")
    assert late.exit_code == 1
    assert "it was rejected by bob" in late.said


def test_the_mode_is_said_and_set(asks, descheduler):  # noqa: F811
    descheduler.answers[("GET", "/status")] = 200, {"mode": MODE, "proposed": []}
    assert asks("mode").said == "propose since 2026-01-01T00:00:00Z, by ada: we look first"
    descheduler.answers[("POST", "/mode")] = 200, {"seq": 7, "events": []}
    assert asks("mode", "observe", "freeze").said == "the mode is observe"
    assert descheduler.asked[-1][2] == {"mode": "observe", "by": "ada", "reason": "freeze"}
    assert asks("mode", "auto").exit_code == 2


def test_a_plan_that_waits_is_not_followed(restow, descheduler, monkeypatch):  # noqa: F811
    monkeypatch.setenv("RESTOW_API_TOKEN", TOKEN)
    made = answer()
    made["events"] = [made["events"][0] | {"mode": "propose"}]
    descheduler.answers[("POST", "/defragment")] = 200, made
    said = restow("defrag", "--now", "--descheduler", descheduler.url).said
    assert "would move 2 pods" in said
    assert "it waits for a person: restow approve p9" in said
    assert len(descheduler.asked) == 1


def test_a_log_tells_what_waits_and_what_was_said(restow, tmp_path):
    waits, answered = (export(tmp_path / f"{name}.jsonl", proposed(name)) for name in ("", "rejected"))
    assert "waits for `restow approve` until" in restow("get", "plans", "--log", waits, "-o", "wide").said
    assert "rejected by ada: not today" in restow("get", "plans", "--log", answered, "-o", "wide").said
    assert "mode propose since" in restow("state", "--log", waits).said
    assert "1 plan to approve or reject" in restow("state", "--log", waits).said
    refused = restow("approve", "p1", "--log", waits)
    assert (refused.exit_code, "is a file" in refused.said) == (2, True)
