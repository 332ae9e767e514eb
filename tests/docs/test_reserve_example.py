"""The walk of docs/examples/reserve.md works as it stands, and prints what it shows."""

import re
import shutil

import pytest
from docs.walks import ROOT, blocks, walk

PAGE = ROOT / "docs" / "examples" / "reserve.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_prints_what_it_says(tmp_path):
    printed, shown = walk(PAGE, tmp_path), blocks(PAGE, "")
    assert len(printed) == len(shown)
    assert [ready(part) for part in printed] == [ready(part) for part in shown]
    assert [reservations(part) for part in printed] == [reservations(part) for part in shown]
    assert [ready(part).get("web") for part in shown[1:5]] == ["2/2", "5/5", "2/2", "5/5"]
    for i, words in (
        (0, "3 slots for the next pods of deployment/web, for 1h (held after"),
        (2, "all 3 slots were handed over to their owners"),
        (5, "slot pod-0: 0/2 nodes are available: 2 Insufficient cpu."),
        (5, "would be held with 1 more empty node like node-1"),
    ):
        assert words in printed[i]
        assert words in shown[i]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[5]), printed[5]


def ready(printed: str) -> dict[str, str]:
    """Deployment → ready of all, as `kubectl get deployments` prints them."""
    return dict(re.findall(r"^(web|batch) +(\d/\d)", printed, re.M))


def reservations(printed: str) -> dict[str, tuple[str, str]]:
    """Reservation → phase and places, as `restow get reservations` prints them."""
    return {name: (phase, places) for name, phase, places in re.findall(r"^default/(\S+) +([A-Z]\w+) +(\d/\d/\d)", printed, re.M)}
