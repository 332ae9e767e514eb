"""docs/descheduling.md, "Eviction budgets": its policy is accepted, and does what the page shows."""

import pytest
import yaml
from docs.pages import section
from domain.build import NOW, configured, given, node, pod, replica_of, shape, then
from domain.saga import BOLD, decider, plan
from msgspec.structs import replace

from restow.cli.state import _summary
from restow.cli.views import summary
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Move
from restow.domain.decider import Rejected
from restow.runtime.policy_file import read

SECTION = section("Eviction budgets")
POLICY = yaml.safe_load(SECTION.split("```yaml\n")[1].partition("```")[0]) | {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
SHOWN, REFUSED = (text.strip("\n") for text in SECTION.split("\n```\n")[2:5:2])
OWNER = replica_of("web")


def evicted():
    """Five pods of namespace shop, from nodes of one pool."""
    config = replace(read(POLICY), **BOLD)
    nodes = [node(name, cpu=16_000, labels={"cloud.google.com/gke-nodepool": "h100"}) for name in ("a", "b")]
    pods = [pod(f"web-{i}", node="a", owner=OWNER, namespace="shop") for i in range(1, 7)]
    state = given(configured("migration", config), *nodes, shape("s"), *pods)
    moves = [Move(f"x-{i}", f"web-{i}", "shop", f"web-{i}", "a", "b") for i in range(1, 6)]
    then(state, plan("x", *moves))
    for one in moves:
        then(state, e.Holding(one.migration, NOW), e.Held(one.migration), e.Evicting(one.migration, NOW + config.evicts_for), e.Evicted(one.migration, NOW + 1))
    return state


def test_after_five_evictions_the_state_is_as_it_shows(capsys):
    _summary(summary(evicted()))
    lines = [line for line in capsys.readouterr().out.splitlines() if "eviction budget" in line]
    assert "\n".join(lines) == SHOWN


def test_the_next_one_is_refused_as_it_shows():
    with pytest.raises(Rejected) as refused:
        decider.decide(evicted(), c.MovePod(NOW, "y", "web-6"))
    assert str(refused.value) == REFUSED
