"""A policy with Defragmentation in it: it is taken out, the rest is upstream's, and what is wrong is said of the policy as it was written."""

import pytest

from restow.domain.config import DefragmentationArgs
from restow.domain.descheduling.model import Own
from restow.domain.descheduling.policy import PolicyError, load

ARGS = {"resourceType": "cpu", "protectionThresholds": {"cpu": 95}, "defragmentThresholds": {"cpu": 40}, "lowThresholds": {"cpu": 40}}
OURS = {"name": "Defragmentation", "args": ARGS}
LIFE = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}}
COPIES = {"name": "RemoveDuplicates"}


def profile(*entries, name="p", deschedule=(), **balance):
    plugins = {"deschedule": {"enabled": list(deschedule)}, "balance": balance}
    return {"name": name, "pluginConfig": list(entries), "plugins": plugins}


def document(*profiles):
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": list(profiles)}


def refused(*profiles) -> str:
    with pytest.raises(PolicyError) as raised:
        load(document(*profiles))
    (reason,) = raised.value.reasons
    return str(reason)


def plugins(whole) -> list[tuple[str, str]]:
    return [(turn.point, turn.plugin) for turn in whole.turns()]


def test_it_has_its_turn_where_it_stands_among_the_balance_plugins_of_its_profile():
    for enabled in (["Defragmentation", "RemoveDuplicates"], ["RemoveDuplicates", "Defragmentation"]):
        whole = load(document(profile(OURS, LIFE, COPIES, deschedule=["PodLifeTime"], enabled=enabled)))
        assert whole.own == Own(0, DefragmentationArgs(**ARGS), enabled.index("Defragmentation"))
        assert plugins(whole) == [("deschedule", "PodLifeTime"), *(("balance", name) for name in enabled)]


def test_a_policy_without_it_or_with_it_disabled_is_upstreams():
    without = load(document(profile(COPIES, enabled=["RemoveDuplicates"])))
    disabled = load(document(profile(OURS, COPIES, enabled=["RemoveDuplicates"], disabled=["Defragmentation"])))
    for whole in (without, disabled):
        assert whole.own is None
        assert plugins(whole) == [("balance", "RemoveDuplicates")]


def test_without_arguments_it_has_the_defaults():
    assert load(document(profile(enabled=["Defragmentation"]))).own == Own(0, DefragmentationArgs(), 0)


def test_both_ways_to_write_the_resource_type_are_read_and_not_at_once():
    named = {key: value for key, value in ARGS.items() if key != "resourceType"} | {"ResourceType": "cpu"}
    made = load(document(profile(OURS | {"args": named}, enabled=["Defragmentation"])))
    assert made.own is not None
    assert made.own.args == DefragmentationArgs(**ARGS)
    both = refused(profile(OURS | {"args": named | {"resourceType": "cpu"}}, enabled=["Defragmentation"]))
    assert both == "profiles[0].pluginConfig[0].args: has ResourceType and resourceType; allowed: one of them"


@pytest.mark.parametrize(("profiles", "said"), [
    ((profile(OURS, OURS),), "profiles[0].pluginConfig[1]: 'Defragmentation' is there twice; allowed: once"),
    ((profile(enabled=["Defragmentation"] * 2),), "profiles[0].plugins.balance.enabled[1]: 'Defragmentation' is there twice; allowed: once"),
    ((profile(enabled=["Defragmentation"]), profile(name="q", enabled=["Defragmentation"])), "profiles[1]: enables Defragmentation again; allowed: one profile with Defragmentation"),
    ((profile(LIFE, OURS | {"more": 1}),), "profiles[0].pluginConfig[1].more: unknown; allowed: name, args"),
    ((profile(OURS | {"args": [1]}),), "profiles[0].pluginConfig[0].args: [1]; allowed: a mapping"),
    ((profile(OURS | {"args": ARGS | {"coolDownTime": "soon"}}),), "profiles[0].pluginConfig[0].args.coolDownTime: Expected `int`, got `str`; found 'soon'"),
])  # fmt: skip
def test_what_is_wrong_with_it_is_said_with_its_path(profiles, said):
    assert refused(*profiles) == said


def test_what_is_wrong_with_others_is_said_with_the_places_that_they_have_beside_it():
    assert refused(profile(OURS, {"name": "PodLifeTime", "args": {"x": 1}}, enabled=["Defragmentation"])).startswith("profiles[0].pluginConfig[1].args")
    assert refused(profile(OURS, enabled=["Defragmentation", "Nobody"])).startswith("profiles[0].plugins.balance.enabled[1]")


@pytest.mark.parametrize("said", [None, [], "policy", 1])
def test_what_is_no_policy_is_refused_as_upstreams_reader_does(said):
    with pytest.raises(PolicyError):
        load(said)
