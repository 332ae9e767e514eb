"""HyperNodes become facts; what cannot be read, or would take for ever to match, says why."""

import msgspec
import pytest

from restow.contracts import events as e
from restow.contracts.values import BlockMember, Expression, LabelSelector
from restow.kube import wire_objects as w
from restow.kube.hyper_nodes import hyper_node_fact
from restow.kube.wire import Meta


def read(spec: object) -> e.HyperNodeObserved:
    return hyper_node_fact(w.Custom(Meta(name="h", uid="u"), msgspec.Raw(msgspec.json.encode(spec)), msgspec.Raw(b"")))


def node(**selector: object) -> dict:
    return {"type": "Node", "selector": selector}


def test_members_by_name_pattern_and_labels_and_other_hyper_nodes():
    spec = {
        "tier": 2,
        "tierName": "zone",
        "members": [
            node(exactMatch={"name": "n1"}),
            node(regexMatch={"pattern": "^gpu-[0-9]+$"}),
            node(labelMatch={"matchLabels": {"rack": "1"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            {"type": "HyperNode", "selector": {"exactMatch": {"name": "rack-1"}}},
        ],
    }
    assert read(spec) == e.HyperNodeObserved(
        "h", 2, "zone",
        (
            BlockMember("n1"),
            BlockMember(pattern="^gpu-[0-9]+$"),
            BlockMember(selector=LabelSelector({"rack": "1"}, (Expression("a", "Exists"),))),
            BlockMember("rack-1", inner=True),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "member",
    [node(), node(labelMatch={}), node(exactMatch={"name": ""}), {"type": "Node"}, {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "a"}}}],
)
def test_who_selects_nobody_as_in_volcano_is_left_out(member):
    assert (read({"tier": 1, "members": [member]}).members, read({"tier": 1, "members": [member]}).invalid) == ((), "")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"tier": -1}, "spec.tier: -1; allowed: 0 to 2147483647"),
        ({"tier": "one"}, "spec.tier: 'one'; allowed: int"),
        ({"tier": 1, "members": [{"type": "Rack"}]}, "spec.members[0].type: 'Rack'; allowed: Node, HyperNode"),
        ({"tier": 1, "members": [node(regexMatch={"pattern": "("})]}, "spec.members[0].selector.regexMatch.pattern: '('"),
    ],
)
def test_what_cannot_be_read_is_said_by_path(spec, why):
    fact = read(spec)
    assert fact.invalid.startswith(why)
    assert fact.members == ()


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?:a|a)*$", "((a*)b)*", "a*a*a*a*", "(a{1,9}){9}", r"(a)\1", "(?=a)", "x" * 600, "[*](a?)+"])
def test_a_pattern_that_might_take_for_ever_is_refused(pattern):
    assert read({"tier": 1, "members": [node(regexMatch={"pattern": pattern})]}).invalid


@pytest.mark.parametrize("pattern", ["^node-[0-9]+$", "rack1-.*-gpu.*", "^(?:a|b)-node$", r"^n\d{1,3}$", "[+*]{3}", "(rack)?node", "^(gpu-[0-9])$"])
def test_patterns_of_names_are_taken(pattern):
    assert read({"tier": 1, "members": [node(regexMatch={"pattern": pattern})]}).invalid == ""
