"""`restow defrag` and `restow migrate` against a descheduler that says what a test tells it to: plans as tables, followed live,
cancelled; the token; Ctrl-C."""

import json
import os
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli.conftest import RESTOW, export
from replay.handmade import fragmented, node, time_at

from restow.cli import descheduler_client
from restow.cli.plan_worth import amount
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import planview
from restow.domain.config import DefragmentationArgs

TOKEN = "the-token-of-the-tests"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "defragmentation" / "policy.yaml"


class Descheduler(BaseHTTPRequestHandler):
    """Answers by path. `lines`, or those of the path, are streamed to whoever follows; `gate` is waited for before the last one."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply()

    def do_POST(self):
        self.reply()

    def reply(self):
        descheduler = self.server.descheduler
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        descheduler.asked.append((self.command, self.path, json.loads(body) if body else None, self.headers.get("Authorization")))
        if "follow=true" in self.path:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            lines = descheduler.lines_of.get(path, descheduler.lines)
            for i, line in enumerate(lines):
                if i == len(lines) - 1 and not descheduler.gate.wait(20):
                    return
                self.wfile.write(json.dumps(line).encode() + b"\n\n")
                self.wfile.flush()
            self.close_connection = True
            return
        status, answer = descheduler.answers.get((self.command, path), (404, {"error": f"no {path}"}))
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        descheduler.thought.wait(descheduler.thinks)
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


class Fake:
    def __init__(self):
        self.answers, self.asked, self.lines, self.lines_of, self.gate = {}, [], [], {}, threading.Event()
        self.gate.set()
        self.thinks, self.thought = 0.0, threading.Event()
        """Seconds until it answers, unless that is not waited for any more."""
        self.url = ""


@pytest.fixture
def descheduler():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Descheduler)
    server.daemon_threads = True
    fake = server.descheduler = Fake()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield fake
    fake.gate.set()
    fake.thought.set()
    server.shutdown()
    server.server_close()


def packing(free_nodes=0, free_devices=0, idle=1500, fragmented=500, nodes=2):
    return {"nodes": nodes, "free_nodes": free_nodes, "total": 16_000, "idle": idle, "fragmented": fragmented, "free_devices": free_devices}


def move(number, pod="web", after=()):
    return {
        "migration": f"p9-{number}", "pod": f"u{number}", "namespace": "shop", "name": f"{pod}-{number}", "source": "a", "target": "b",
        "devices": [{"index": number, "milli": 1000}], "after": list(after),
    }  # fmt: skip


PLAN = {
    "type": "migration.planned", "plan": "p9", "plugin": "Defragmentation", "planner": "optimizing", "steps": 1234, "trigger": "cli",
    "moves": [move(1), move(2, after=["p9-1"])], "sources": ["a"], "before": packing(), "after": packing(1, 2, fragmented=0),
    "kept": {"Bare": 3, "NoTarget: Insufficient cpu": 1, "NoTarget: no target nodes": 1},
}  # fmt: skip
GROUPS = [
    {"name": "8 gpu, 64 cpu, 256Gi", "nodes": 2, "leaves": 2, "arrives": 2, "before": packing(), "after": packing(1, 2, fragmented=0)}
]


def answer(dry=False, plan=PLAN, **more):
    return {"dryRun": dry, "read" if dry else "seq": 12, "plan": "p9", "events": [plan], "groups": GROUPS} | more


def line(phase, *migrations, **more):
    view = {"plan": "p9", "phase": phase, "waves": 2, "at": "2026-01-01T00:00:00.000Z", "until": "", "cancelled": ""} | more
    return {"seq": 20, "plan": view, "migrations": list(migrations)}


def at(number, step, wave=1, **more):
    return {
        "id": f"p9-{number}", "plan": "p9", "wave": wave, "step": step, "namespace": "shop", "name": f"web-{number}", "source": "a",
        "target": "b", "since": f"2026-01-01T00:00:0{number}.000Z", "landedAs": "", "reason": "", "message": "",
    } | more  # fmt: skip


LIVE = [
    line("waiting", at(1, "planned"), at(2, "planned", 2)),
    line("moving", at(1, "holding")),
    line("moving", at(1, "landed", landedAs="web-1x"), at(2, "evicting", 2)),
    line("done", at(2, "failed", 2, reason="Budget", message="one must stay"), until="2026-01-01T00:00:02.500Z"),
]


def test_a_dry_run_shows_moves_in_waves_node_groups_and_who_stays(restow, descheduler):
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True))
    result = restow("defrag", "--dry-run", "--descheduler", descheduler.url)
    assert descheduler.asked == [("POST", "/defragment?dryRun=true", {"trigger": "cli"}, None)]
    assert result.output == (
        "would move 2 pods off 1 node in 2 waves; planner optimizing in 1 234 steps, decided at sequence 12\n\n"
        "WAVE  POD         FROM  TO  DEVICES  AFTER\n"
        "   1  shop/web-1  a     b   gpu 1\n"
        "   2  shop/web-2  a     b   gpu 2    web-1\n\n"
        "NODES                 COUNT   PODS  FREE NODES  FREE GPUS   FRAGMENTED\n"
        "8 gpu, 64 cpu, 256Gi      2  -2 +2       0 → 1      0 → 2  0.50 → 0.00\n\n"
        "STAY where they are\n"
        "PODS  VERDICT   WHY\n"
        "   3  Bare      no controller would create it again\n"
        "   1  NoTarget  no target fits: Insufficient cpu\n"
        "   1  NoTarget  there are no target nodes\n"
    )


def test_what_could_be_run_besides_is_shown_by_size_before_and_after(restow, descheduler):
    def fits(*pods):
        asks = ((8, 1000, {"cpu": 64_000, "memory": 256 << 30}), (1, 500, {"cpu": 4_000}))
        return [
            {"devices": n, "milli": milli, "requests": rest, "running": 3 * i, "pods": many}
            for i, ((n, milli, rest), many) in enumerate(zip(asks, pods, strict=True))
        ]

    plan = PLAN | {"before": packing() | {"fits": fits(0, 7)}, "after": packing(1, 2) | {"fits": fits(1, 7)}}
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, plan=plan))
    output = restow("defrag", "--dry-run", "--descheduler", descheduler.url).output
    assert (
        "FIT BESIDE what runs: pods of each size, each size taken alone\n"
        "SIZE     WITH           PODS  MORE FIT\n"
        "8 GPUs   64 cpu, 256Gi     0     0 → 1\n"
        "0.5 GPU  4 cpu             3         7\n"
    ) in output


def test_worth_and_cost_are_shown_in_one_unit_with_the_dearest_moves(restow, descheduler):
    dear = [{"migration": "p9-2", "cost": 81_000, "parts": {"move": 1_000, "work": 80_000}}, {"migration": "p9-1", "cost": 1_000, "parts": {"move": 1_000}}]
    worth = {"unit": "GPU-hours", "hours": 24, "before": 1_234_000, "after": 1_567_300, "cost": 82_000, "dearest": dear}
    groups = [group | {"worthBefore": 1_234_000, "worthAfter": 1_567_300} for group in GROUPS]
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, plan=PLAN | {"worth": worth}, groups=groups))
    output = restow("defrag", "--dry-run", "--descheduler", descheduler.url).output
    assert "FRAGMENTED          WORTH\n" in output
    assert "1 234 → 1 567\n" in output
    assert (
        "WORTH of what is free, for 24 h: 1 234 → 1 567 GPU-hours (+333); the moves cost 82.0\n\n"
        "DEAREST moves, in GPU-hours\n"
        "POD         FROM  COST  FOR\n"
        "shop/web-2  a     81.0  move 1.0, work 80.0\n"
        "shop/web-1  a      1.0  move 1.0\n"
    ) in output


@pytest.mark.parametrize(
    ("thousandths", "text"),
    [(0, "+0.0"), (-1, "-0.001"), (4, "+0.004"), (-9, "-0.009"), (10, "+0.01"), (50, "+0.05"), (-1_234, "-1.2"), (99_000, "+99.0"), (1_234_000, "+1 234")],
)
def test_only_nothing_is_shown_as_0(thousandths, text):
    assert amount(thousandths, sign=True) == text


@pytest.mark.parametrize(
    ("missed", "sentence"),
    [
        (("devices", 2, 1_000, 41_000, 24), "moving 2 pods, the first off a, would gain 1 whole free GPU and cost 41.0 GPU-hours; minimumGain 24 would do"),
        (("nodes", 1, 1_000, 5_000_000, 0), "moving 1 pod, the first off a, would gain 1 free node and cost 5 000 GPU-hours; no minimumGain would do (1 allows 1 000 for one)"),
        (("capacity", 2, 2_000, 41_000, 48), "would gain 2 slots for the capacity and cost 41.0 GPU-hours; minimumGain 48 would do"),
        (("value", 1, 9_000, 6_000, 500), "would gain 9.0 GPU-hours and cost 6.0 GPU-hours; that is 1.50 times the cost; minimumGain 500 would do"),
        (("value", 1, 6_001, 6_000, 0), "that is 1.00 times the cost; minimumGain 0 would do"),
        (("value", 1, 3_000, 6_000, -500), "would gain 3.0 GPU-hours and cost 6.0 GPU-hours; that is 0.50 times the cost; the cost is larger than the gain"),
    ],
)
def test_a_plan_that_was_not_worth_it_says_what_it_would_have_taken(restow, descheduler, missed, sentence):
    objective, moves, gain, cost, least = missed
    found = {"objective": objective, "moves": moves, "source": "a", "gain": gain, "cost": cost, "least": least}
    worth = {"unit": "GPU-hours", "hours": 24, "before": 1_000, "after": 1_000, "cost": 0, "missed": found}
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, plan=PLAN | {"moves": [], "sources": [], "worth": worth}, groups=[]))
    output = " ".join(restow("defrag", "--dry-run", "--descheduler", descheduler.url).output.split())
    assert "nothing is worth its cost: moving" in output
    assert sentence in output


@pytest.mark.parametrize(("said", "sentence"), [
    (
        {"kind": "LP", "objective": "devices", "gained": 206_000_000, "cost": 70_000_000, "net": 170_400_000, "most": 240_000_000, "gap": 141},
        "BOUND gained 206 of at most 240 whole free GPUs for what these moves cost (LP bound): gap 14.1 %; beyond the cost 136 of at most 170",
    ),
    (
        {"kind": "LP", "objective": "value", "unit": "GPU-hours", "gained": 398_570_000_000, "cost": 37_400_000_000, "net": 404_632_000_001, "most": 442_032_000_000, "gap": 98},
        "BOUND gained 399 of at most 442 GPU-hours for what these moves cost (LP bound): gap 9.8 %; beyond the cost 361 of at most 405",
    ),
    (
        {"kind": "volume", "objective": "nodes", "gained": 0, "cost": 0, "net": 400_000, "most": 0, "gap": 0},
        "BOUND no free node can be gained by any plan that costs no more (volume bound)",
    ),
])  # fmt: skip
def test_how_far_a_plan_may_be_from_the_best_is_said_with_its_bound(restow, descheduler, said, sentence):
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, bound=said))
    shown = restow("defrag", "--dry-run", "--descheduler", descheduler.url)
    assert sentence in " ".join(shown.output.split())
    assert json.loads(restow("defrag", "--dry-run", "-o", "json", "--descheduler", descheduler.url).output)["bound"] == said


def test_groups_by_a_label_and_a_job_are_asked_for(restow, descheduler):
    reason = PLAN | {"reason": "capacity for shop/big", "slots": [{"name": "restow-slot-p9-1", "pod": "u", "namespace": "shop", "node": "a"}]}
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, plan=reason))
    result = restow("defrag", "--dry-run", "--for", "pod/shop/big", "--group-by", "a/b", "--descheduler", descheduler.url)
    assert descheduler.asked[0][1:3] == ("/defragment?dryRun=true&groupBy=a%2Fb", {"trigger": "cli", "demand": "pod/shop/big"})
    assert "capacity for shop/big" in result.output
    assert "shop/restow-slot-p9-1" in result.output


def test_what_it_is_worth_is_folded_at_a_terminal_of_80_columns(restow, descheduler, monkeypatch):
    """It was 84 columns wide in a demo of 40 nodes."""
    monkeypatch.setenv("COLUMNS", "80")
    dear = [{"migration": f"p9-{i}", "cost": 27_500, "parts": {"move": 1_000, "work": 20_000, "localStorage": 200, "restarts": 100, "priority": 6_200}} for i in (1, 2)]
    worth = {"unit": "GPU-hours", "hours": 24, "before": 168_000, "after": 2_379_000, "cost": 55_000, "dearest": dear}
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, plan=PLAN | {"worth": worth}))
    output = restow("defrag", "--dry-run", "--descheduler", descheduler.url).output
    assert "WORTH of what is free, for 24 h: 168 → 2 379 GPU-hours (+2 211); the moves cost\n  55.0\n" in output
    assert "EACH of the 2 moves costs 27.5 GPU-hours" in output
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("columns", [80, 120])
def test_nothing_is_wider_than_the_terminal(restow, descheduler, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = PLAN | {"moves": [move(i, "a-deployment-with-quite-a-long-name-5d9c7b8f6d") for i in range(1, 9)], "kept": {"Bounced": 1}}
    descheduler.answers["POST", "/defragment"] = (200, answer(dry=True, plan=long))
    output = restow("defrag", "--dry-run", "--descheduler", descheduler.url).output
    assert max(map(len, output.splitlines())) <= columns


def test_a_plan_without_moves_says_why(restow, descheduler):
    none = PLAN | {"moves": [], "sources": [], "steps": 0, "after": PLAN["before"]}
    descheduler.answers["POST", "/defragment"] = (200, answer(plan=none))
    result = restow("defrag", "--now", "--descheduler", descheduler.url)
    assert result.output.startswith("plan p9 moves 0 pods; planner optimizing, decided at sequence 12\n")
    assert "no controller would create it again" in result.output
    assert [path for _, path, *_ in descheduler.asked] == ["/defragment"]


def test_now_is_followed_to_its_end(restow, descheduler):
    descheduler.answers["POST", "/defragment"] = (200, answer())
    descheduler.lines = LIVE
    result = restow("defrag", "--now", "--descheduler", descheduler.url)
    assert [path for _, path, *_ in descheduler.asked] == ["/defragment", "/plans/p9?follow=true"]
    told = [text.split("  ", 2)[-1].strip() for text in result.output.partition("STAY")[2].splitlines()[5:] if text.strip()]
    assert told == [
        "wave 1 of 2: 1 move",
        "landed       shop/web-1 on b as web-1x",
        "wave 2 of 2: 1 move",
        "rolled back  shop/web-2 stays on a: Budget: one must stay",
        "1 landed, 1 rolled back in 2.5 s",
    ]


def test_now_as_json_has_the_end_and_is_one_document(restow, descheduler):
    descheduler.answers["POST", "/defragment"] = (200, answer())
    descheduler.lines = LIVE
    found = json.loads(restow("defrag", "--now", "-o", "json", "--descheduler", descheduler.url).output)
    assert (found["plan"], found["result"]["phase"]) == ("p9", "done")
    assert {m["id"]: m["step"] for m in found["migrations"]} == {"p9-1": "landed", "p9-2": "failed"}


def test_pods_that_nobody_made_again_are_a_broken_promise(restow, descheduler):
    descheduler.answers["POST", "/defragment"] = (200, answer())
    descheduler.lines = [line("done", at(1, "not_recreated"), until="2026-01-01T00:00:02.500Z")]
    result = restow("defrag", "--now", "--descheduler", descheduler.url)
    assert result.exit_code == 1
    assert "1 evicted pods were not recreated" in result.said


def test_now_without_following(restow, descheduler):
    descheduler.answers["POST", "/defragment"] = (200, answer())
    assert "restow defrag --follow p9" in restow("defrag", "--now", "--no-follow", "--descheduler", descheduler.url).output
    assert len(descheduler.asked) == 1


def test_ctrl_c_leaves_the_plan_running_and_says_how_to_stop_it(descheduler):
    descheduler.answers["POST", "/defragment"] = (200, answer())
    descheduler.lines = LIVE
    descheduler.gate.clear()
    command = [RESTOW, "defrag", "--now", "--descheduler", descheduler.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    try:
        for text in process.stdout:
            if "wave 2 of 2" in text:
                break
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        watchdog.cancel()
        process.kill()
    assert (process.returncode, errors) == (0, "")
    assert "the plan goes on" in output
    assert "restow defrag --cancel p9" in " ".join(output.split())
    assert not [path for _, path, *_ in descheduler.asked if "cancel" in path]


def test_cancel_one_plan_or_all(restow, descheduler):
    descheduler.answers["POST", "/plans/cancel"] = (200, {"seq": 9, "plans": ["p1", "p2"], "events": []})
    descheduler.answers["POST", "/plans/p1/cancel"] = (200, {"seq": 9, "plans": ["p1"], "events": []})
    both = restow("defrag", "--descheduler", descheduler.url, "--cancel").said
    assert "plan p1 is cancelled" in both
    assert "plan p2 is cancelled" in both
    assert "p2" not in restow("defrag", "--cancel", "p1", "--descheduler", descheduler.url).said
    assert [path for _, path, *_ in descheduler.asked] == ["/plans/cancel", "/plans/p1/cancel"]


def test_follow_looks_at_a_plan_that_is_under_way(restow, descheduler):
    descheduler.lines = LIVE
    assert "1 landed, 1 rolled back" in restow("defrag", "--follow", "p9", "--descheduler", descheduler.url).output


@pytest.mark.parametrize(
    "arguments",
    [(), ("--dry-run", "--cancel"), ("--now", "--follow", "p9"), ("--now", "--log", "x.jsonl"), ("--cancel", "p1", "--log", "x.jsonl"), ("--dry-run", "--at", "3"), ("--dry-run", "--policy", "x.yaml"), ("--now", "--at", "3")],
)
def test_what_contradicts_itself_is_refused(restow, descheduler, arguments):
    assert restow("defrag", *arguments, "--descheduler", descheduler.url).exit_code == 2
    assert descheduler.asked == []


# -- one pod -------------------------------------------------------------------------------------------------------------

ONE = {"plugin": "MovePod", "planner": "move", "trigger": "move", "moves": [move(1)], "kept": {}}


def test_one_pod_is_moved_and_followed(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (200, answer(plan=PLAN | ONE))
    descheduler.lines = [line("moving", at(1, "evicted"), waves=1), line("done", at(1, "landed", landedAs="web-x"), waves=1, until="2026-01-01T00:00:00.250Z")]
    result = restow("migrate", "pod/shop/web-1", "--to", "b", "--descheduler", descheduler.url)
    assert descheduler.asked[0][2] == {"pod": "shop/web-1", "target": "b"}
    assert result.output.startswith("moves shop/web-1 from a to b (plan p9)\n")
    assert result.output.endswith("1 landed in 0.2 s\n")
    assert result.exit_code == 0


def test_a_workload_that_is_asked_is_told_once_and_until_when(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (200, answer(plan=PLAN | ONE))
    asked = {"asked": "2026-01-01T00:05:00.000Z", "way": "annotation"}
    lines = [at(1, "held"), at(1, "held", **asked), at(1, "held", **asked), at(1, "held", asked="", way=""), at(1, "landed")]
    descheduler.lines = [line("done" if one["step"] == "landed" else "moving", one, waves=1) for one in lines]
    said = restow("migrate", "pod/shop/web-1", "--descheduler", descheduler.url).output
    assert said.count("asked") == 1
    assert "  00:00:01  asked        the workload of shop/web-1 (annotation); it has until 2026-01-01T00:05:00Z\n" in said


def test_a_pod_that_stays_is_exit_code_1_with_the_reason(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (200, answer(plan=PLAN | ONE))
    descheduler.lines = [line("done", at(1, "failed", reason="Budget", message="one must stay."), waves=1)]
    result = restow("migrate", "web-1", "-n", "shop", "--descheduler", descheduler.url)
    assert result.exit_code == 1
    assert "shop/web-1 did not land on b: Budget: one must stay; `restow why migration/p9-1` tells the story" in result.said


def test_a_pod_that_may_not_be_moved_is_exit_code_1_with_the_reason(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (409, {"error": "the disruption budget shop/web allows no eviction now"})
    result = restow("migrate", "shop/web-1", "--descheduler", descheduler.url)
    assert (result.exit_code, "the disruption budget shop/web allows no eviction now" in " ".join(result.said.split())) == (1, True)


def test_a_dry_run_of_one_pod_says_where_it_would_go(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (200, answer(dry=True, plan=PLAN | ONE))
    result = restow("migrate", "shop/web-1", "--dry-run", "--descheduler", descheduler.url)
    assert (result.output, descheduler.asked[0][1]) == ("would move shop/web-1 from a to b\n", "/migrations?dryRun=true")


GANG = {"plugin": "MoveGang", "planner": "move", "trigger": "move", "moves": [move(1), move(2)], "kept": {}, "gang": "shop/web"}


def test_a_gang_is_moved_as_one_and_followed(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (200, answer(plan=PLAN | GANG))
    descheduler.lines = [line("done", at(1, "landed"), at(2, "landed"), waves=1, until="2026-01-01T00:00:00.250Z")]
    result = restow("migrate", "podgroup/shop/web", "--descheduler", descheduler.url)
    assert descheduler.asked[0][2] == {"podGroup": "shop/web"}
    assert result.output.startswith("moves shop/web-1 from a to b (plan p9)\nmoves shop/web-2 from a to b (plan p9)\n")
    assert result.exit_code == 0


def test_a_gang_of_which_one_pod_did_not_land_is_exit_code_1_with_the_reason(restow, descheduler):
    descheduler.answers["POST", "/migrations"] = (200, answer(plan=PLAN | GANG))
    descheduler.lines = [line("done", at(1, "landed"), at(2, "failed", reason="Budget", message="one must stay."), waves=1)]
    result = restow("migrate", "podgroup/web", "-n", "shop", "--descheduler", descheduler.url)
    assert result.exit_code == 1
    assert "shop/web-2 did not land on b: Budget: one must stay" in result.said


def test_a_gang_has_no_one_target(restow, descheduler):
    result = restow("migrate", "podgroup/shop/web", "--to", "b", "--descheduler", descheduler.url)
    assert (result.exit_code, descheduler.asked) == (2, [])


@pytest.mark.parametrize("what", ["pod/a/b/c", "a//b", "pod/", "/"])
def test_what_is_no_pods_name_is_refused(restow, descheduler, what):
    result = restow("migrate", what, "--descheduler", descheduler.url)
    assert (result.exit_code, descheduler.asked) == (2, [])
    assert "allowed: pod/NAMESPACE/NAME" in result.said


def test_namespaces_that_contradict_each_other_are_refused(restow, descheduler):
    assert restow("migrate", "shop/web-1", "-n", "other", "--descheduler", descheduler.url).exit_code == 2


# -- the token -------------------------------------------------------------------------------------------------------------


def authorization(descheduler):
    return descheduler.asked[-1][3]


def test_the_token_comes_from_a_file_or_the_environment(restow, descheduler, monkeypatch, tmp_path):
    descheduler.answers["POST", "/plans/cancel"] = (200, {"plans": []})
    ask = ("defrag", "--descheduler", descheduler.url, "--cancel")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-of-file\nan-older-one-that-still-works\n")
    monkeypatch.setenv("RESTOW_API_TOKEN_FILE", str(file))
    restow(*ask)
    assert authorization(descheduler) == f"Bearer {TOKEN}-of-file"
    monkeypatch.setenv("RESTOW_API_TOKEN", TOKEN)
    restow(*ask)
    assert authorization(descheduler) == f"Bearer {TOKEN}"
    restow(*ask, "--token-file", str(file))
    assert authorization(descheduler) == f"Bearer {TOKEN}-of-file"
    missing = restow(*ask, "--token-file", "nowhere")
    assert missing.exit_code == 2
    assert "token file nowhere cannot be read" in missing.said


def test_the_stacks_token_goes_to_the_stack_alone(restow, descheduler, tmp_path):
    run = tmp_path / ".restow" / "run"
    run.mkdir(parents=True)
    (run / "api.token").write_text(TOKEN + "\n")
    (run / "descheduler.http").write_text(descheduler.url)
    stack = {"pid": os.getpid(), "descheduler": "http://127.0.0.1:1", "token_file": str(run / "api.token")}
    (tmp_path / ".restow" / "stack.json").write_text(json.dumps(stack))
    descheduler.answers["POST", "/plans/cancel"] = (200, {"plans": []})
    restow("defrag", "--cancel")  # at its present address, not the announced one
    assert authorization(descheduler) == f"Bearer {TOKEN}"
    restow("defrag", "--descheduler", descheduler.url, "--cancel")
    assert authorization(descheduler) is None


@pytest.mark.parametrize(("status", "code", "said"), [(401, 2, "--token-file"), (403, 2, "no token"), (409, 1, "no token"), (503, 3, "no token")])
def test_a_refusal_is_told_as_it_was_said(restow, descheduler, status, code, said):
    descheduler.answers["POST", "/defragment"] = (status, {"error": "no token"})
    result = restow("defrag", "--now", "--descheduler", descheduler.url)
    assert (result.exit_code, f"refuses ({status})" in result.said, said in result.said) == (code, True, True)


def test_offline_a_dry_run_has_groups_too(as_json, tmp_path):
    found = as_json("defrag", "--dry-run", "--log", export(tmp_path / "m.jsonl", fragmented()))
    (group,) = found["groups"]
    assert (group["leaves"], group["arrives"], group["after"]["free_nodes"]) == (1, 1, 1)
    assert found["bound"] is None  # of the greedy planner


def test_offline_it_plans_at_any_point_with_any_policy_though_moves_are_paused(restow, as_json, tmp_path):
    log = fragmented()
    log.decide("migration", c.Pause(time_at(4), "ada", "incident"), e.MovesPaused("ada", "incident"))
    log.facts(node("d"), e.PodGone("uid-lone"), kind="nodes")
    file, policy = export(tmp_path / "m.jsonl", log), tmp_path / "policy.yaml"

    def leaves(*options):
        return [move["name"] for event in as_json("defrag", "--dry-run", "--log", file, *options)["events"] for move in event["moves"]]

    assert leaves() == []
    assert leaves("--at", "4") == ["lone"], "paused or not"
    policy.write_text(EXAMPLE.read_text().replace("nvidia.com/gpu: 40", "cpu: 60").replace("nvidia.com/gpu", "cpu").replace("cpu: 50", "cpu: 70"))
    assert leaves("--at", "2", "--policy", str(policy)) == leaves("--at", "4", "--policy", str(policy)) != leaves("--at", "4")
    assert "no Defragmentation policy was in use there; allowed: a policy that has it (--policy FILE)" in restow("defrag", "--dry-run", "--log", file, "--at", "2").said
    policy.write_text("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n")
    assert restow("defrag", "--dry-run", "--log", file, "--policy", str(policy)).exit_code == 2


def test_offline_the_optimizing_planners_plan_has_its_bound(restow, as_json, tmp_path):
    log = export(tmp_path / "m.jsonl", fragmented(DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu")))
    bound = as_json("defrag", "--dry-run", "--log", log)["bound"]
    assert (bound["kind"], bound["gained"], bound["most"], bound["gap"]) == ("LP", 2_000_000, 2_000_000, 0)
    assert "gained 2 of at most 2 free nodes for what these moves cost (LP bound): gap 0.0 %" in " ".join(restow("defrag", "--dry-run", "--log", log).output.split())


def test_plans_are_listed_with_what_became_of_them(restow, as_json, moved):
    (plan,) = as_json("get", "plans", "--log", moved)["items"]
    assert (plan["plan"], plan["phase"], plan["steps"]) == ("p1", "done", {"landed": 1})
    header, row = restow("get", "plans", "--log", moved).output.splitlines()
    assert header.split() == ["ID", "PHASE", "TRIGGER", "PLANNER", "MOVES", "LANDED", "BACK", "OPEN", "AT"]
    assert row.split()[0:2] == ["p1", "done"]


def test_the_client_knows_which_phases_of_a_plan_are_the_last():
    assert set(descheduler_client.OVER_PHASES) == set(planview.OVER_PHASES)


@pytest.mark.parametrize("command", [("defrag", "--dry-run"), ("descheduler", "run", "--now", "--dry-run")])
def test_a_plan_that_takes_longer_than_other_answers_is_waited_for(restow, descheduler, monkeypatch, command):
    """A busy machine planned for more than a minute, and who asked for the plan was told that the descheduler does not answer."""
    descheduler.answers = {("POST", "/defragment"): (200, {"events": [PLAN]}), ("POST", "/deschedule"): (200, {"events": [PLAN]})}
    descheduler.thinks = 0.6
    monkeypatch.setattr(descheduler_client, "_TIMEOUT", 0.2)
    result = restow(*command, "--descheduler", descheduler.url)
    assert (result.exit_code, "p9" in result.output or "web-1" in result.output) == (0, True), result.output


def test_what_was_asked_for_and_not_answered_in_time_may_be_done_all_the_same(restow, descheduler, monkeypatch):
    descheduler.thinks = 20.0
    monkeypatch.setattr("restow.cli.defrag.PLANNING", 0.2)
    said = {}
    for way in ("--now", "--dry-run"):
        result = restow("defrag", way, "--descheduler", descheduler.url)
        assert result.exit_code == 3
        said[way] = " ".join(result.output.split())
    assert "has not answered for 0 s. What was asked for may be done all the same: `restow get plans` shows it" in said["--now"]
    assert "may be done" not in said["--dry-run"]
