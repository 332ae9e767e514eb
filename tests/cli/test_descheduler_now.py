"""`restow descheduler run --now` against a descheduler that says what a test tells it to: a plan a plugin, followed together."""

import json
import os
import signal
import subprocess
import threading

import pytest
from cli.conftest import RESTOW
from cli.test_defrag import GROUPS, PLAN, at, line, move, packing
from cli.test_defrag import descheduler as descheduler

TAINTS, COPIES, NOTHING = "RemovePodsViolatingNodeTaints", "RemoveDuplicates", "LoadAware"
WHY = "does not tolerate the node's taint drain:NoSchedule"


def of(number, plugin, moves=(), **more):
    """The plan of one plugin; its moves are called by it."""
    moves = [one | {"migration": f"{number}-{i}"} for i, one in enumerate(moves, 1)]
    same = {"after": PLAN["before"], "kept": {}, "steps": 0, "planner": "policy", "profile": "default"}
    return PLAN | same | {"plan": number, "plugin": plugin, "moves": moves} | more


PLANS = [
    of("c1-p1", TAINTS, [move(1) | {"reason": WHY}, move(2) | {"reason": WHY}], kept={"Bare": 1}),
    of("c1-p2", NOTHING, reason="metrics.k8s.io: 404 not found"),
    of("c1-p3", COPIES, [move(3) | {"reason": "2 copies on a"}, move(4, "job") | {"reason": "3 copies on a", "target": ""}], after=packing(1, 2)),
]


def answer(plans=PLANS, dry=False, **more):
    return {"dryRun": dry, "read" if dry else "seq": 12, "plan": "c1", "events": list(plans), "groups": GROUPS} | more


def lines(plan, *steps, **more):
    """A plan whose only move goes through these steps."""
    view = {"plan": plan, "waves": 1} | more
    found = [line("moving", at(1, step) | {"id": f"{plan}-1", "plan": plan, "name": plan, "reason": "", "message": ""}, **view) for step in steps[:-1]]
    last = at(1, steps[-1]) | {"id": f"{plan}-1", "plan": plan, "name": plan, "reason": "Budget", "message": "one must stay"}
    return [*found, line("done", last, until="2026-01-01T00:00:02.500Z", **view)]


@pytest.fixture
def two(descheduler):
    """Two plugins move a pod each."""
    descheduler.answers["POST", "/deschedule"] = (200, answer([of("c1-p1", TAINTS, [move(1)]), of("c1-p2", COPIES, [move(2)])]))
    descheduler.lines_of["/plans/c1-p1"] = lines("c1-p1", "holding", "landed")
    descheduler.lines_of["/plans/c1-p2"] = lines("c1-p2", "holding", "failed")
    return descheduler


def test_a_dry_run_shows_what_each_plugin_would_do_and_why_the_others_stay(restow, descheduler):
    descheduler.answers["POST", "/deschedule"] = (200, answer(dry=True, warnings=["no such namespace"]))
    result = restow("descheduler", "run", "--now", "--dry-run", "--descheduler", descheduler.url)
    assert descheduler.asked == [("POST", "/deschedule?dryRun=true", {"trigger": "cli"}, None)]
    assert result.output == (
        "would move 3 pods and evict 1, by 3 plugins of the policy; decided at sequence 12\n"
        "warning  no such namespace\n\n"
        "RemovePodsViolatingNodeTaints (profile default): would move 2 pods\n"
        f"  why: {WHY}\n"
        "  POD       FROM  TO\n"
        "  shop/web-1  a     b\n"
        "  shop/web-2  a     b\n"
        "  LEFT  VERDICT  WHY\n"
        "     1  Bare     no controller would create it again\n\n"
        "LoadAware (profile default): looks at no pod\n"
        "  metrics.k8s.io: 404 not found\n\n"
        "RemoveDuplicates (profile default): would move 1 pod and evict 1\n"
        "  POD       FROM  TO         WHY\n"
        "  shop/web-3  a     b          2 copies on a\n"
        "  shop/job-4  a     (evicted)  3 copies on a\n\n"
        "NODES                 COUNT   PODS  FREE NODES  FREE GPUS  FRAGMENTED\n"
        "8 gpu, 64 cpu, 256Gi      2  -2 +2       0 → 1      0 → 2  0.50 → 0.00\n"
    ).replace("  POD       FROM", "  POD         FROM").replace("FREE GPUS  FRAG", "FREE GPUS   FRAG")


def test_all_plans_are_followed_together_to_their_ends(restow, two):
    result = restow("descheduler", "run", "--now", "--descheduler", two.url)
    assert result.exit_code == 0
    paths = [path for _, path, *_ in two.asked]
    assert paths[0] == "/deschedule"
    assert sorted(paths[1:]) == ["/plans/c1-p1?follow=true", "/plans/c1-p2?follow=true"]
    told = [text.split("  ", 2)[-1].strip() for text in result.output.splitlines() if text.startswith("  00:00:")]
    assert sorted(told) == [
        "RemoveDuplicates (profile default): wave 1 of 1: 1 move",
        "RemovePodsViolatingNodeTaints (profile default): wave 1 of 1: 1 move",
        "landed       shop/c1-p1 on b",
        "rolled back  shop/c1-p2 stays on a: Budget: one must stay",
    ]
    assert result.output.endswith("\n1 landed, 1 rolled back in 2.5 s\n")


def test_as_json_it_is_one_document_with_the_ends(restow, two):
    found = json.loads(restow("descheduler", "run", "--now", "-o", "json", "--descheduler", two.url).output)
    assert [event["plugin"] for event in found["events"]] == [TAINTS, COPIES]
    assert {plan["plan"]: plan["phase"] for plan in found["results"]} == {"c1-p1": "done", "c1-p2": "done"}
    assert {m["id"]: m["step"] for m in found["migrations"]} == {"c1-p1-1": "landed", "c1-p2-1": "failed"}


def test_without_following_it_says_how_to(restow, two):
    said = restow("descheduler", "run", "--now", "--no-follow", "--group-by", "a/b", "--descheduler", two.url).said
    assert said.endswith("follow them: restow defrag --follow c1-p1, restow defrag --follow c1-p2")
    assert [path for _, path, *_ in two.asked] == ["/deschedule?groupBy=a%2Fb"]


def test_where_nothing_is_to_be_moved_nothing_is_followed(restow, descheduler):
    descheduler.answers["POST", "/deschedule"] = (200, answer([of("c1-p1", TAINTS, kept={"NoTarget": 2})]))
    result = restow("descheduler", "run", "--now", "--descheduler", descheduler.url)
    assert result.output == (
        "moves 0 pods, by 1 plugin of the policy; decided at sequence 12\n\n"
        "RemovePodsViolatingNodeTaints (profile default): leaves all where they are\n"
        "  LEFT  VERDICT   WHY\n     2  NoTarget  no target fits\n"
    )
    assert len(descheduler.asked) == 1


def test_pods_that_nobody_made_again_are_a_broken_promise(restow, two):
    two.lines_of["/plans/c1-p2"] = lines("c1-p2", "not_recreated")
    result = restow("descheduler", "run", "--now", "--descheduler", two.url)
    assert result.exit_code == 1
    assert "1 evicted pods were not recreated" in result.said


@pytest.mark.parametrize("columns", [80, 160])
def test_nothing_is_wider_than_the_terminal(restow, descheduler, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "a-deployment-with-quite-a-long-name-5d9c7b8f6d"
    moves = [move(i, name) | {"reason": f"has restarted {i} times, which is more than the policy allows for pods of its kind"} for i in (1, 2)]
    long = of("c1-p1", "RemovePodsViolatingTopologySpreadConstraint", moves, reason="the selector " + "selects nothing " * 9, profile="of-the-team-that-has-long-names")
    descheduler.answers["POST", "/deschedule"] = (200, answer([long], dry=True))
    output = restow("descheduler", "run", "--now", "--dry-run", "--descheduler", descheduler.url).output
    assert max(map(len, output.splitlines())) <= columns


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "choose --now"),
        (("--now", "--once"), "choose --now"),
        (("--now", "--policy", "p.yaml"), "--policy works only with --once; the running descheduler has its own policy"),
        (("--now", "--kube", "http://x"), "--kube works only with --once"),
        (("--once",), "--once needs --policy FILE"),
        (("--once", "--policy", "p.yaml", "--descheduler", "http://x"), "--descheduler works only with --now"),
        (("--once", "--policy", "p.yaml", "--no-follow"), "--no-follow works only with --now"),
    ],
)
def test_options_of_the_other_way_are_refused(restow, arguments, said):
    result = restow("descheduler", "run", *arguments)
    assert (result.exit_code, said in result.said) == (2, True), result.output


def test_a_policy_without_plugins_is_told_as_it_was_said(restow, descheduler):
    error = "deschedule: no plugin is enabled; allowed: after enabling one in the policy"
    descheduler.answers["POST", "/deschedule"] = (409, {"error": error})
    result = restow("descheduler", "run", "--now", "--descheduler", descheduler.url)
    assert (result.exit_code, f"refuses (409): {error}" in result.said) == (1, True)


def test_without_a_stack_it_says_what_else_can_be_done(restow):
    result = restow("descheduler", "run", "--now")
    assert result.exit_code == 3
    assert "Start one with `restow up`" in result.said
    assert "`restow descheduler run --once --policy FILE` needs none" in result.said


def test_ctrl_c_leaves_the_plans_running_and_says_how_to_stop_them(two):
    two.gate.clear()
    command = [RESTOW, "descheduler", "run", "--now", "--descheduler", two.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    begun = 0
    try:
        for text in process.stdout:
            begun += "wave 1 of 1" in text
            if begun == 2:
                break
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        watchdog.cancel()
        process.kill()
    assert (process.returncode, errors) == (0, "")
    said = " ".join(output.split())
    assert "the plans go on" in said
    assert "stop all with `restow defrag --cancel`" in said
    assert not [path for _, path, *_ in two.asked if "cancel" in path]
