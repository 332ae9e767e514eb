"""Whatever is in the log and in the configuration: a session never raises, and it comes to an end."""

import random
from typing import Any

from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    member,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    reservation,
    shape,
    then,
)
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.test_fold import HOLDS, NODES, PODS, SHAPES, facts

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, HostPort, LabelSelector, NumaZone, PodTerm, Spread, Taint
from restow.domain import config, session
from restow.domain import reservation as reservations
from restow.domain import session_config as conf
from restow.domain.decider import decide_all
from restow.domain.session.actions.args import ARGS as ACTIONS
from restow.domain.session.plugins import PLUGINS
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState

decider = session.decider
SESSIONS = 150
"""Far more than what is in these clusters can need."""
DAY, YEAR = 24 * 3600 * 1000, 365 * 24 * 3600 * 1000
HUGE = (1 << 60, 1 << 62, (1 << 63) - 1)

WINDOW = {"nodeSelector": {"zone": "z"}, "resources": {"cpu": "4"}, "cron": "0 3-4 * * *", "startReserveAgo": "2h"}
SOME_ARGUMENTS: dict[str, Any] = {
    "sla": {"sla-waiting-time": "1m"},
    "reserve": {"reservelabels": [WINDOW, {**WINDOW, "cron": "*/30 * * * 1", "podNumToReserve": 1}]},
    "binpack": {"binpack.weight": 10, "binpack.resources": "nvidia.com/gpu", "binpack.resources.nvidia.com/gpu": 5},
    "predicates": {"predicate.ProportionalEnable": True, "predicate.resources": "nvidia.com/gpu"},
    "overcommit": {"overcommit-factor": 1.5},
}
SWITCHES = ("enablePreemptable", "enableReclaimable", "enableJobStarving", "enableJobReady", "enableJobPipelined", "enablePredicate",
            "enableNodeOrder", "enableAllocatable", "enableOverused", "enableHierarchy")  # fmt: skip


@st.composite
def configurations(draw) -> config.SessionConfig:
    """Any subset of actions and plugins in any order and tiers: what `read_conf` lets through."""
    actions = draw(st.permutations([a for a in ACTIONS if a != "reserve" and draw(st.integers(0, 5))])) or ["allocate"]
    if "allocate" in actions:
        at = actions.index("allocate")
        actions = [*actions[:at], *(["reserve"] if draw(st.booleans()) else []), "allocate", *actions[at + 1 :]]
        if draw(st.booleans()):
            actions = [*actions, {"name": "reserve", "arguments": {"starvingJobTimeThreshold": draw(st.sampled_from([0, 60]))}}]
    left = draw(st.permutations([p for p in PLUGINS if draw(st.integers(0, 4))]))
    if "proportion" in left and "capacity" in left:
        left.remove(draw(st.sampled_from(["proportion", "capacity"])))
    tiers: list[Any] = []
    for name in left:
        entry: dict[str, Any] = {"name": name}
        if draw(st.booleans()):
            entry["arguments"] = SOME_ARGUMENTS.get(name, {})
        if not draw(st.integers(0, 3)):
            entry[draw(st.sampled_from(SWITCHES))] = draw(st.booleans())
        if not tiers or not draw(st.integers(0, 2)):
            tiers.append({"plugins": []})
        tiers[-1]["plugins"].append(entry)
    try:
        return conf.read_conf({"actions": actions, "tiers": tiers})
    except conf.ConfError:
        return conf.read_conf({"actions": actions})


@st.composite
def beginnings(draw) -> list[Any]:
    """Shapes of every kind under the names that the facts use, and enough around them for rules to mean something."""
    app = LabelSelector({"app": "owner"})
    kinds: list[dict[str, Any]] = [
        {}, {"cpu": 0, "memory": 0}, {"cpu": 2_000}, {"memory": 10**18}, {"requests": {"cpu": draw(st.sampled_from(HUGE))}},
        {"requests": {"example.com/x": draw(st.sampled_from((1, *HUGE)))}},
        {"pod_anti_affinity": (PodTerm("zone", app, weight=draw(st.sampled_from([0, 10]))),)},
        {"pod_affinity": (PodTerm("zone", app, weight=draw(st.sampled_from([0, 10]))),)},
        {"spread": (Spread(1, "zone", draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])), app, 2),)},
        {"host_ports": (HostPort(80),)}, {"preemption": "Never"}, {"qos": "Guaranteed"}, {"scheduler": "volcano"},
    ]  # fmt: skip
    declared = []
    for name, gpu in SHAPES.items():
        more = {"cpu": 500} | draw(st.sampled_from(kinds))
        declared.append(shape(name, gpu=gpu, priority=draw(st.sampled_from([0, 0, 5, -1_000, 2_000_001_000])), **more))
    absurd = draw(st.sampled_from([{}, {}, {"cpu": 2_000}, {"cpu": HUGE[-1], "memory": HUGE[-1]}, {"example.com/x": HUGE[0]}, {"cpu": 0}]))
    queues = [
        queue("a", draw(st.sampled_from([1, 3, 2**31 - 1])), capability=absurd, parent=draw(st.sampled_from(["", "b", "a", "none"]))),
        queue("b", guarantee=absurd, parent=draw(st.sampled_from(["", "a", "root"])), state=draw(st.sampled_from(["Open", "Closed", "?"]))),
        queue("default", deserved=absurd, reclaimable=draw(st.booleans())),
    ]
    groups = [
        pod_group("a", draw(st.sampled_from(["", "a", "b", "none"])), draw(st.sampled_from([-1, 0, 1, 3, 99, 2**31 - 1, 2**62])), phase=draw(st.sampled_from(["", "Pending", "Inqueue"])), min_resources=absurd),
        pod_group("b", draw(st.sampled_from(["", "a", "b"])), 1, min_task_member=draw(st.sampled_from([{}, {"t": 2}, {"none": 1}, {"": 2**62}]))),
    ]
    nodes = [
        node(n, cpu=draw(st.sampled_from([4_000, 4_000, HUGE[-1]])), memory=draw(st.sampled_from([8 * GIB, 8 * GIB, HUGE[0]])), gpus=2,
             labels={"zone": draw(st.sampled_from("yz")), "kubernetes.io/hostname": n},
             taints=draw(st.sampled_from([(), (), (Taint("k", "NoSchedule"),)])), allocatable=draw(st.sampled_from([{}, {"example.com/x": HUGE[-1]}])))
        for n in NODES
    ]  # fmt: skip
    zones = tuple(NumaZone(f"node-{i}", {"cpu": 2_000, "memory": 4 * GIB}) for i in range(2))
    waiting = []
    for i, p in enumerate(PODS):
        name = list(SHAPES)[i % 4]
        where = draw(st.sampled_from([None, None, *NODES]))
        created = NOW + draw(st.sampled_from([0, 0, -DAY, -100 * YEAR, YEAR]))
        group = draw(st.sampled_from(["", "", "a", "b", "none"]))
        more = {"labels": {"app": "owner"}, "created": created, "owner": replica_of("web")}
        waiting.append(member(p, group, name, where, **more) if group else pod(p, name, where, **more))
    synced = [e.Synced("podgroups.scheduling.volcano.sh", "1")] if draw(st.booleans()) else []
    asked = [reservation(r, ("t", 2, "half"), match_policy="Owner") for r in HOLDS]
    accepted = [e.ReservationAccepted(r, 1, 1, NOW + 5) for r in HOLDS]
    return [*synced, declared, nodes, e.NumaObserved("n0", "single-numa-node", "pod", zones), queues, groups, waiting, asked, accepted]


def step(state: ClusterState, now: int) -> list[e.Event]:
    """One commit of the session, as the service makes it; nothing when there is nothing to do."""
    command = decider.due(state, now)
    decided = decide_all(state, decider, [command]) if command is not None else []
    return [event for decision in decided for event in decision.events]


def until_content(state: ClusterState, now: int) -> None:
    for at in range(SESSIONS):
        events = step(state, now + at)
        if not events:
            assert not state.queue, f"nothing was said of {list(state.queue)}"
            return
        then(state, events, time=now + at)
    raise AssertionError(f"still busy after {SESSIONS} sessions: {events}")


def the_world(state: ClusterState, luck: random.Random) -> list[e.Event]:
    """What kubelets and the API make of intents, some of it."""
    found: list[e.Event] = []
    for uid, placement in state.placed.items():
        if state.pods[uid].live.node is None and luck.random() < 0.7:
            found.append(e.PodChanged(uid, placement.node, "Running", True, devices=placement.devices))
    for uid in state.victims_of:
        live = state.pods[uid].live
        if live.deleting and luck.random() < 0.8:
            found.append(e.PodGone(uid))
        elif luck.random() < 0.7:
            found.append(e.PodChanged(uid, live.node, live.phase, False, NOW, devices=live.devices or (DeviceShare(0, 500),)))
    return found


@settings(max_examples=examples(150), deadline=None)
@for_all(beginnings(), configurations(), st.lists(facts(), max_size=25), st.integers(0, 99), st.sampled_from([0, 1, DAY, YEAR, -YEAR]))
def test_a_session_never_raises_and_comes_to_an_end(beginning, conf, events, seed, jump):
    state = given(configured("session", conf), *beginning)
    luck = random.Random(seed)
    now = NOW + DAY
    for round, event in enumerate([*events, None]):
        if event is not None:
            then(state, event, time=now)
        if round % 5 and event is not None:
            continue
        now += 60_000 + (jump if round == 10 else 0)
        for decision in decide_all(state, reservations.decider, [c.Review(now)]):
            then(state, decision.events, time=now)
        until_content(state, now)
        then(state, *the_world(state, luck), time=now)
        decider.deadline(state)
        for effect in decider.pending(state, None):
            decider.owed(state, effect)
    until_content(state, now)
    again = load(dump(state))
    assert decide_all(again, decider, [c.Schedule(now, 1_000)]) == decide_all(state, decider, [c.Schedule(now, 1_000)])
