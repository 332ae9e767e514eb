"""The walk of docs/examples/sharing.md works as it stands, and prints what it shows."""

import re
import shutil

import pytest
from docs.walks import ROOT, blocks, walk

PAGE = ROOT / "docs" / "examples" / "sharing.md"


def test_the_reservation_that_it_shows_is_the_file():
    shown = blocks(PAGE, "yaml")
    assert len(shown) == 1
    assert shown[0] in (PAGE.parent / "sharing" / "team.yaml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_prints_what_it_says(tmp_path):
    printed, shown = walk(PAGE, tmp_path), blocks(PAGE, "")
    assert len(printed) == len(shown)
    assert [reservations(part) for part in printed] == [reservations(part) for part in shown]
    assert [pods(part) for part in printed] == [pods(part) for part in shown]
    for i, words in (
        (1, "2 pods use some of it"),
        (1, "left       cpu 1, memory 1Gi"),
        (4, "of 1 slot of Reservations that it owns: 1 is not available"),
        (4, "reservation-0  Waiting  node-2  cpu 0/2, memory 0/1Gi  has memory 1Gi, waits for cpu 2 (PreAllocation)"),
        (4, "left       nothing yet: memory 1Gi is there, cpu 2 is waited for"),
        (5, "it was handed over to its owner"),
        (5, "slot reservation-0 of report has all its capacity and is held"),
        (5, "slot reservation-0 of report is handed over to default/report on node-2"),
    ):
        assert words in printed[i]
        assert words in shown[i]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[6]), printed[6]


def reservations(printed: str) -> dict[str, tuple[str, str, str, str]]:
    """Reservation → phase, places, node and CPUs, as `restow get reservations` prints them."""
    rows = re.findall(r"^(team-blue|report) +([A-Z]\w+) +(\d/\d/\d) +(\S+) +(\d/\d)", printed, re.M)
    return {name: (phase, places, node, cpu) for name, phase, places, node, cpu in rows}


def pods(printed: str) -> list[tuple[str, str, str]]:
    """Owner, status and node of each, as `kubectl get pods -o wide` prints them, without the names that are made up."""
    return sorted(re.findall(r"^(blue|batch|report)\S* +\d/1 +(\w+) +\d+ +\S+ +\S+ +(\S+)", printed, re.M))
