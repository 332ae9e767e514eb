"""The switches of plugin `predicates`: what is off lets every node pass, for all who ask what the session would do."""

import pytest
from domain.build import GIB, NOW, configured, given, node, owner, pod, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts.values import Expression, NodeTerm, Taint, Toleration
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.config import PluginConfig, SessionConfig
from restow.domain.predicates import static_mask, tolerates
from restow.domain.session_config import read_conf

LABELLED = {"node_selector": {"disk": "ssd"}}
REQUIRED = {"node_affinity": (NodeTerm((Expression("disk", "In", ("ssd",)),)),)}
TAINTED = (Taint("dedicated", "NoSchedule", "gpu"),)


def schedule(state):
    return run(state, session.decider, c.Schedule(NOW))


def predicates(enabled: dict[str, bool] | None = None, **arguments) -> SessionConfig:
    said = {f"predicate.{name.replace('__', '.')}": value for name, value in arguments.items()}
    default = SessionConfig()
    tiers = tuple(
        tuple(PluginConfig(p.name, enabled or {}, said) if p.name == "predicates" else p for p in tier) for tier in default.tiers
    )
    return SessionConfig(tiers=tiers)


def placed(state) -> dict[str, str]:
    schedule(state)
    return {uid: placement.node for uid, placement in state.placed.items()}


@pytest.mark.parametrize("rule", [LABELLED, REQUIRED])
def test_without_node_affinity_selectors_and_affinity_keep_nobody_off(rule):
    facts = node("a"), shape("s", **rule), pod("p")
    assert placed(given(*facts)) == {}
    assert placed(given(configured("session", predicates(NodeAffinityEnable=False)), *facts)) == {"p": "a"}


def test_without_taint_toleration_taints_keep_nobody_off_and_a_cordon_does():
    facts = node("a", taints=TAINTED), shape("s"), pod("p")
    off = configured("session", predicates(TaintTolerationEnable=False))
    assert placed(given(*facts)) == {}
    assert placed(given(off, *facts)) == {"p": "a"}
    assert placed(given(off, node("a", unschedulable=True), shape("s"), pod("p"))) == {}


def test_the_whole_plugin_switched_off_as_predicate_lets_both_pass():
    facts = node("a", taints=TAINTED), shape("s", **LABELLED), pod("p")
    assert placed(given(configured("session", predicates({"enablePredicate": False})), *facts)) == {"p": "a"}


def test_who_waits_for_a_rule_is_placed_when_it_is_switched_off_and_the_next_one_waits_when_it_is_on_again():
    """Kept masks and rankings are those of the switches that they were made with."""
    state = given(node("a", taints=TAINTED), shape("s"), pod("p"))
    assert placed(state) == {}
    then(state, configured("session", predicates(TaintTolerationEnable=False)))
    assert placed(state) == {"p": "a"}
    then(state, configured("session", predicates(TaintTolerationEnable=True)), pod("q"))
    assert placed(state) == {"p": "a"}


def test_whoever_predicts_the_session_asks_with_its_switches():
    """The migration planner's targets, for one."""
    state = given(node("a", taints=TAINTED), shape("s"), shape("t", **LABELLED))
    assert not static_mask(state, "s").any()
    then(state, configured("session", predicates(TaintTolerationEnable=False)))
    assert static_mask(state, "s").any()
    assert not static_mask(state, "t").any()


def test_a_hold_is_handed_over_on_a_tainted_node_where_taints_do_not_count():
    for on, taken in ((True, {}), (False, {"p": "a"})):
        state = given(
            configured("session", predicates(TaintTolerationEnable=on)), node("a"), shape("s"),
            reservation("r", ("t", 1, "s"), owners=(owner(app="owner"),)),
        )  # fmt: skip
        run(state, reservations.decider, c.Review(NOW))
        schedule(state)
        then(state, node("a", taints=TAINTED), pod("p", labels={"app": "owner"}))
        schedule(state)
        assert {uid: p.node for uid, p in state.placed.items() if p.hold is not None} == taken


# -- proportional ----------------------------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"


def keeping(cpu: str = "4", memory: str = "4", resource: str = GPU):
    return configured("session", predicates(ProportionalEnable=True, resources={resource: {"cpu": cpu, "memory": memory}}))


def gpu_node(cpu: int, gpus: int, memory: int = 1 << 38, name: str = "a"):
    return node(name, cpu=cpu, memory=memory, gpus=gpus)


@pytest.mark.parametrize(
    ("cpu", "gpus", "asked", "fits"),
    [(30_000, 6, 4_000, True), (30_000, 6, 10_000, False), (26_000, 2, 10_000, True), (28_000, 6, 4_000, True), (28_000, 6, 4_001, False)],
)
def test_who_asks_for_no_gpu_leaves_cores_for_each_idle_one(cpu, gpus, asked, fits):
    state = given(keeping(), gpu_node(cpu, gpus), shape("s", cpu=asked), pod("p"))
    assert bool(placed(state)) is fits


def test_memory_is_left_too_in_gigabytes():
    for memory, fits in ((8 * 10**9 + GIB, True), (8 * 10**9 + GIB - 1, False)):
        state = given(keeping(cpu="0"), gpu_node(64_000, 2, memory), shape("s", memory=GIB), pod("p"))
        assert bool(placed(state)) is fits


def test_the_reason_is_volcanos_and_counts_after_capacity():
    state = given(keeping(), gpu_node(8_000, 2), gpu_node(500, 0, name="b"), shape("s"), pod("p"))
    assert placed(state) == {}
    waiting = state.waiting[state.parked["p"][0]]
    assert waiting.reasons == {"Insufficient cpu": 1, "proportional of resource nvidia.com/gpu check failed": 1}


def test_who_asks_for_a_gpu_takes_what_it_needs_and_so_frees_capacity_for_others():
    state = given(keeping(), gpu_node(8_000, 2), shape("s"), shape("g", gpu=(1, 1000)), pod("p"))
    assert placed(state) == {}
    settle(state)
    then(state, pod("worker", "g"))
    assert placed(state) == {"worker": "a"}
    assert session.decider.due(state, NOW + 1) is not None
    assert placed(state) == {"worker": "a", "p": "a"}
    settle(state)


def settle(state) -> None:
    """Sessions until none is due."""
    for now in range(NOW + 1, NOW + 5):
        command = session.decider.due(state, now)
        if command is None:
            return
        run(state, session.decider, command)
    raise AssertionError("a session is due again and again")


def test_nodes_without_the_resource_are_for_everybody():
    assert placed(given(keeping(), gpu_node(1_000, 0), gpu_node(8_000, 2, name="b"), shape("s"), pod("p"))) == {"p": "a"}


def test_any_resource_and_rates_with_decimals_count_exactly():
    for rate, fits in (("3.5", True), ("3.501", False)):
        facts = node("a", cpu=8_000, allocatable={"example.com/fpga": 2}), shape("s"), pod("p")
        assert bool(placed(given(keeping(rate, "0", "example.com/fpga"), *facts))) is fits


def test_a_file_that_says_so_is_read_and_it_is_off_where_nothing_is_said():
    conf = {
        "actions": "allocate",
        "tiers": [{"plugins": [{"name": "predicates", "arguments": {
            "predicate.ProportionalEnable": True, "predicate.resources": GPU,
            f"predicate.resources.{GPU}.cpu": 4, f"predicate.resources.{GPU}.memory": 8,
        }}]}],
    }  # fmt: skip
    facts = gpu_node(8_000, 2), shape("s"), pod("p")
    assert placed(given(configured("session", read_conf(conf)), *facts)) == {}
    conf["tiers"][0]["plugins"][0]["arguments"]["predicate.ProportionalEnable"] = False
    assert placed(given(configured("session", read_conf(conf)), *facts)) == {"p": "a"}


@pytest.mark.parametrize(
    ("operator", "asked", "has", "tolerated"),
    [("Gt", "900", "950", True), ("Gt", "900", "900", False), ("Lt", "5", "-3", True), ("Lt", "5", "5", False), ("Gt", "900", "high", False), ("Lt", "x", "1", False)],
)
def test_a_toleration_compares_a_taints_value_with_its_own(operator, asked, has, tolerated):
    """KEP-5471: nodes of more than some service level, or of less than some risk."""
    toleration = Toleration("sla", operator, asked)
    assert tolerates((toleration,), Taint("sla", "NoSchedule", has)) is tolerated
    assert not tolerates((toleration,), Taint("other", "NoSchedule", has))
