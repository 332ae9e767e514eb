"""`restow demo` as a user runs it, and with everything in it killed: no pod lost, no hold leaked, nothing promised twice,
every decision re-decided. What a run's log says is judged by `tests/checker.py`, which shares no rule with Restow."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from checker import check

from restow.replay.settled import settle
from restow.replay.source import open_path
from restow.replay.whatif.answer import answer

NODES = 24
OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb"
PATIENCE = 400.0
"""Seconds for one run: many times what it takes."""
SERVICES = ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector")
MARK = "RESTOW_TEST_RUN"


class Run:
    """One demo in a folder of its own, with a home, a temporary folder and a mark that its processes inherit."""

    def __init__(self, folder, *options):
        self.folder, self.options, self.mark = folder, options, uuid.uuid4().hex
        folder.mkdir()
        for name in ("work", "home", "tmp"):
            (folder / name).mkdir()
        self._out = (folder / "out").open("wb+")
        self._err = (folder / "err").open("wb+")
        environment = os.environ | {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), MARK: self.mark}
        command = [sys.executable, "-m", "restow.cli.main", "demo", "--nodes", str(NODES), "-o", "json", *options]
        self.process = subprocess.Popen(command, cwd=folder / "work", env=environment, stdout=self._out, stderr=self._err)

    def report(self):
        """Waits for the end; every promise must be kept."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not within {PATIENCE:g} s; {self.said()}")
        if code:
            pytest.fail(f"exit code {code}; {self.said()}")
        self.told = json.loads((self.folder / "out").read_bytes())
        return self.told

    def said(self):
        """For whoever has to look into a failure: how to repeat it, and its last words."""
        words = (self.folder / "err").read_text(errors="replace") + (self.folder / "out").read_text(errors="replace")
        return f"restow demo --nodes {NODES} {' '.join(self.options)}\n{words[-3000:]}"

    def until_up(self):
        """Demo, broker, API and five services run."""
        deadline = time.monotonic() + 60
        while len(self.processes()) < 8 or "registering" not in self.said():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        self._out.close()
        self._err.close()

    def processes(self):
        """Whatever runs with this run's mark."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found


@pytest.fixture
def demo(tmp_path):
    runs = []

    def start(*options):
        runs.append(Run(tmp_path / f"run-{len(runs)}", *options))
        return runs[-1]

    yield start
    for run in runs:
        run.end()
        assert not run.processes(), "something is left running"


def kept(run):
    """The report, after everything that must hold in every run was seen to hold."""
    report = run.report()
    shown = f"{report}; {run.said()}"
    assert report["broken"] == [], shown
    assert report["lost"] == report["leaked"] == report["rejected"] == [], shown
    assert report["decisions"] == report["identical"] > 0, shown
    assert report["landed"] > 0, shown
    found = check(run.folder / "work" / ".restow" / "demo-log.jsonl.zst")
    assert found.ok, f"{found.broken[:10]} {found.overtaken[:10]} {shown}"
    assert found.holds_left == 0, shown
    return report


TABLE = ("arrived", "finished", "waited", "before", "after", "worth_before", "worth_after", "whole_before", "whole_after", "planned", "landed", "cost", "bound")
"""What the table shows that does not depend on who of those who waited was the first to see what came free."""


def kills(report, phase):
    return sum(count for name, count in report["chaos"]["kills"].items() if name.startswith(phase))


def test_a_run_keeps_its_promises_leaves_nothing_behind_and_gives_the_same_table_again(demo):
    run = demo()
    report = kept(run)
    assert report["chaos"] is None
    assert report["after"]["free_devices"] > report["before"]["free_devices"]
    assert report["worth_after"] - report["worth_before"] > report["cost"] > 0
    (plan,) = settle(open_path(run.folder / "work" / ".restow" / "demo-log.jsonl.zst"))
    assert plan.landed == report["landed"]
    assert abs(plan.won - plan.promised) * 50 <= plan.promised, "what it promised, within 2 %"
    pods = report["running"] + report["waiting"]
    assert report["landed"] * 100 <= 3 * pods, "few moves"
    assert report["arrived"] - report["finished"] == report["running"] + report["waiting"]
    assert not run.processes()
    assert [p.relative_to(run.folder / "work").as_posix() for p in (run.folder / "work").rglob("*")] == [".restow", ".restow/demo-log.jsonl.zst"]
    assert not list((run.folder / "home").iterdir())
    assert not list((run.folder / "tmp").iterdir())
    anew = answer(open_path(run.folder / "work" / ".restow" / "demo-log.jsonl.zst"))
    assert (anew.error.percent or 0.0) >= 98, "restow whatif decides as the demo did"
    again = kept(demo())
    assert {name: report[name] for name in TABLE} == {name: again[name] for name in TABLE}


def test_pods_of_the_stock_scheduler_are_moved_onto_placeholders_and_nothing_of_it_is_left(demo):
    run = demo("--beside", "default-scheduler", "--nodes", "48")
    report = kept(run)
    told = report["beside"]
    assert told["held"] == told["placeholders"] == report["landed"] == report["planned"] > 0
    assert (told["guards"], told["stolen"], told["elsewhere"], told["left"]) == (report["landed"], 0, 0, [])
    assert told["evictedToBoundMs"]["moves"] == report["landed"]
    assert 0 < told["evictedToBoundMs"]["p50"] <= told["evictedToBoundMs"]["max"]
    assert told["priorityClasses"] == ["restow-hold-0"]
    assert report["after"]["free_nodes"] > report["before"]["free_nodes"]
    assert not run.processes()


@pytest.mark.deep
@pytest.mark.slow
def test_services_that_are_killed_while_pods_of_the_stock_scheduler_move_break_no_promise(demo):
    report = kept(demo("--beside", "default-scheduler", "--nodes", "48", "--chaos", "5", "--chaos-kills", "4"))
    assert report["beside"]["left"] == []
    assert kills(report, "defragment") >= 3


def test_the_greedy_planner_empties_nodes_on_request(demo):
    report = kept(demo("--planner", "greedy"))
    assert report["after"]["free_nodes"] > report["before"]["free_nodes"]


def eighth(folder):
    """Every eighth node and pod of the trace: the whole takes minutes on a busy machine (`make demo TRACE=`)."""
    for name in ("openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"):
        head, *rows = (OPENB / name).read_text().splitlines(keepends=True)
        (folder / name).write_text(head + "".join(rows[::8]))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not OPENB.is_dir(), reason=f"the openb trace is not at {OPENB}: it is not part of this repository")
def test_the_trace_of_a_real_cluster_is_defragmented(demo, tmp_path):
    report = kept(demo("--trace", str(eighth(tmp_path))))
    assert (report["nodes"], report["arrived"]) == (152, 1019)
    assert report["landed"] * 100 <= 3 * (report["running"] + report["waiting"])
    assert report["after"]["free_devices"] > report["before"]["free_devices"]
    assert report["whole_after"] >= 3 * 8, "room for jobs of eight"
    assert report["started"].get("8", 0) >= 2, "who waited for it"
    assert report["worth_after"] * 2 >= report["worth_before"] * 3


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.skipif(not OPENB.is_dir(), reason=f"the openb trace is not at {OPENB}: it is not part of this repository")
@pytest.mark.parametrize(("objective", "percent"), [("value", 1), ("devices", 25)])
def test_more_gpus_of_the_trace_become_free_than_by_the_greedy_planner_with_as_many_moves(demo, tmp_path, objective, percent):
    report = kept(demo("--trace", str(eighth(tmp_path)), "--objective", objective, "--compare"))
    assert report["landed"] * 100 <= 3 * (report["running"] + report["waiting"])
    before, after, greedy = (report[when]["free_devices"] for when in ("before", "after", "greedy"))
    assert after * 100 >= before * (100 + percent)
    assert after - before >= 2 * (greedy - before)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("service", ["scheduler_session", "descheduler"])
def test_a_service_that_is_killed_again_and_again_breaks_no_promise(demo, service):
    report = kept(demo("--chaos", str(SERVICES.index(service)), "--chaos-service", service, "--chaos-kills", "3"))
    assert kills(report, "fill") >= 2
    assert kills(report, "defragment") >= 2


@pytest.mark.slow
def test_all_services_killed_at_random_break_no_promise(demo):
    report = kept(demo("--chaos", "5", "--chaos-kills", "4"))
    assert kills(report, "fill") >= 3
    assert kills(report, "defragment") >= 3


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_breaks_no_promise(demo):
    report = kept(demo("--chaos-broker"))
    assert report["chaos"]["kills"] == {"defragment: broker": 1}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_demo_that_is_stopped_stops_everything(demo, how):
    run = demo("--chaos", "6", "--chaos-every", "60")
    run.until_up()
    time.sleep(random.uniform(0.0, 1.0))
    run.process.send_signal(how)
    assert run.process.wait(20) == 128 + how
    assert "nothing is left running" in run.said()
    assert not run.processes()
    assert "Traceback" not in run.said()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not tell children that their parent died")
def test_nothing_runs_on_when_the_demo_itself_is_killed(demo):
    run = demo("--chaos", "6", "--chaos-every", "60")
    run.until_up()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(10)
    deadline = time.monotonic() + 10
    while left := run.processes():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
