"""Many settings side by side: the same whatever the number of processes, and the ones worth a look are marked."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import to_builtins
from replay.test_whatif import queue

from restow.replay.state_at import ReplayError
from restow.replay.whatif.answer import Change, answer
from restow.replay.whatif.sweep import Setting, front, sweep

SETTINGS = [
    Setting({"nodes": "none"}, Change()),
    Setting({"nodes": "-1:small"}, Change(nodes=((-1, "small"),))),
    Setting({"nodes": "+1:small"}, Change(nodes=((+1, "small"),))),
    Setting({"nodes": "without"}, Change(without=("lab/job-a",))),
]


def test_each_setting_is_the_answer_that_it_has_alone_and_processes_change_nothing():
    source = queue().source()
    found = sweep(source, SETTINGS, "waited", 1)
    assert to_builtins(sweep(source, SETTINGS, "waited", 2)) == to_builtins(found)
    assert [one.setting for one in found.tried] == [one.name for one in SETTINGS]
    for setting, one in zip(SETTINGS[1:], found.tried[1:], strict=True):
        assert one.measured == answer(source, setting.change).changed
    assert found.tried[0].measured == found.model
    waited = [one.measured.waited_hours for one in found.tried]
    assert waited[1] > waited[0] > waited[2]
    assert found.tried[1].measured.waited_gpu_hours == waited[1], "each asks for one device"
    assert [one.best for one in found.tried] == [hours == min(waited) for hours in waited]


def test_on_the_front_is_whom_nobody_beats_in_value_and_moves():
    assert front([(5.0, 10), (4.0, 10), (5.0, 11), (9.0, 40), (1.0, 0), (1.0, 0), (0.5, 0)]) == [True, False, False, True, True, True, False]
    assert front([]) == []


def test_a_setting_that_cannot_be_is_refused_before_anything_runs():
    ran = []
    with pytest.raises(ReplayError, match="no node is h100"):
        sweep(queue().source(), [SETTINGS[0], Setting({}, Change(nodes=((1, "h100"),)))], "waited", 1, lambda done, total: ran.append(done))
    assert not ran


SCRIPT = """
from replay.test_whatif import queue
from replay.test_whatif_sweep import SETTINGS
from restow.replay.whatif.sweep import sweep

if __name__ == "__main__":
    sweep(queue().source(), SETTINGS * 200, "waited", 2, lambda done, total: print(done, flush=True))
"""


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_whoever_ends_it_no_process_stays_behind(tmp_path, how):
    (tmp_path / "script.py").write_text(SCRIPT)
    tests = str(Path(__file__).parents[1])
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, tmp_path / "script.py"], env={**os.environ, "PYTHONPATH": tests}, start_new_session=True, stdout=subprocess.PIPE, stderr=said, text=True
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    if how == "killed":
        process.kill()
    else:
        # As a terminal does, which tells all of its processes.
        os.killpg(process.pid, signal.SIGINT)
    # Every process of it holds the pipe.
    process.stdout.read()
    assert process.wait() != 0
    said = (tmp_path / "said").read_text()
    assert said.count("Traceback") == (how == "interrupted"), said
