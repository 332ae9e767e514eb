"""`restow whatif --plot`: one picture, of which a browser needs nothing else."""

import re
import xml.etree.ElementTree as ET

import pytest
from cli.conftest import export
from click.testing import CliRunner
from msgspec.structs import replace
from replay.test_whatif import queue

from restow.cli.main import cli
from restow.cli.whatif_plot import SPANS, _path, _scale, _times, svg
from restow.replay.whatif.answer import Change, answer

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found():
    return answer(queue().source(), Change(nodes=((-1, "small"),)))


def lines(text):
    return [path.get("d") for path in ET.fromstring(text).iter(f"{SVG}path") if path.get("class") == "line"]


def test_three_lines_in_each_of_three_panels_and_the_error_above(found):
    text = svg(found)
    assert len(lines(text)) == 3 + 3 * 3
    said = [one.text for one in ET.fromstring(text).iter(f"{SVG}text")]
    for words in ("recorded", "model", "what if", "mean wait of the pods that came, seconds", "pods waiting", "wholly free devices"):
        assert words in said
    assert "The model decides 3 of 3 placements as recorded (100 %)" in said
    assert len(lines(svg(replace(found, changed=None)))) == 2 + 3 * 2


def test_a_line_goes_where_the_numbers_are(found):
    """Of free devices, the last panel: the first and the last point by the scale of the axis, from 0 at its foot to 2 at its top."""
    drawn = lines(svg(found))[-1]
    points = [tuple(map(float, point)) for point in re.findall(r"[ML]([\d.]+) ([\d.]+)", drawn)]
    samples = found.recorded.samples
    assert len(points) == len(samples)
    heights = {sample.free_devices: y for sample, (_, y) in zip(samples, points, strict=True)}
    assert set(heights) == {0, 1, 2}
    assert heights[0] - heights[1] == heights[1] - heights[2] == 85
    assert points[-1][0] == 930


def test_a_line_is_broken_where_there_is_nothing():
    assert _path([(0, 1.0), (1, None), (2, 2.0), (3, 3.0)], float, float) == "M0.0 1.0m-1.5 0h3M2.0 2.0L3.0 3.0"


@pytest.mark.parametrize(("most", "step", "end"), [(0, 1, 1), (2, 0.5, 2), (7, 2, 8), (41, 10, 50), (6_202, 2_000, 8_000), (0.03, 0.01, 0.03)])
def test_marks_are_round_and_few(most, step, end):
    assert _scale(most) == (pytest.approx(step), pytest.approx(end))


def test_times_are_marked_at_round_instants_and_eight_at_most():
    for span in SPANS[:-2]:
        marks = list(_times(1_767_225_600_123, 1_767_225_600_123 + span * 4_321))
        assert 2 <= len(marks) <= 9
        assert all(time % 1_000 == 0 for time, _ in marks)
    assert [said for _, said in _times(0, 3 * 86_400_000)] == ["00:00", "12:00"] * 3 + ["00:00"]


def test_names_of_a_log_make_no_markup(found):
    text = svg(replace(found, name='<script>&"\x1b[2J'))
    assert "<script" not in text
    assert "\x1b" not in text
    ET.fromstring(text)


def test_the_command_writes_it_and_says_what_it_cannot(tmp_path):
    log = export(tmp_path / "log.jsonl.zst", queue().log)
    run = lambda *arguments: CliRunner().invoke(cli, ["whatif", log, *arguments])  # noqa: E731
    assert run("--plot", "a.svg").exit_code == 0
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    (tmp_path / "grid.yaml").write_text("nodes: [none]")
    for arguments, said in (
        (("--plot", "a.png"), "allowed: a file that ends in .svg"), (("--plot", "a.svg", "--sweep", "grid.yaml"), "without --sweep"), (("--plot", "no/a.svg"), "no/a.svg: cannot be written"),
    ):  # fmt: skip
        found = run(*arguments)
        assert found.exit_code == 2
        assert said in " ".join(found.output.split())
