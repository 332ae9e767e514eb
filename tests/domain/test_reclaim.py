"""Reclaim across queues: who may take from whom, and that both sides keep what is theirs."""

from types import SimpleNamespace

import pytest
from domain.build import NOW, changed, configured, given, node, pod, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session import plugins
from restow.domain.session.args import NoArgs
from restow.domain.session.preemption.claims import PATIENCE

decider = session.decider
S = shape("s")
QUEUE = "scheduling.volcano.sh/queue-name"


class Deserves:
    """A plugin: each queue deserves so many cores; who has more gives the rest back, the youngest first."""

    def __init__(self, **cores: int) -> None:
        self._milli = {queue: n * 1000 for queue, n in cores.items()}

    def open(self, session, args) -> None:
        cpu = session.state.table.columns["cpu"]

        def used(queue: str) -> int:
            return session.usage(queue).get(cpu, 0)

        def reclaimable(claimer, candidates):
            spare = {queue: used(queue) - n for queue, n in self._milli.items()}
            allowed = []
            for uid in sorted(candidates, key=session.state.order_of, reverse=True):
                queue = session.state.charges[uid].queue
                if spare.get(queue, 0) >= 1000:
                    spare[queue] -= 1000
                    allowed.append(uid)
            return allowed

        veto = session.extensions.veto
        veto("reclaimable", reclaimable)
        veto("overused", lambda queue: "it has what it deserves" if used(queue) >= self._milli.get(queue, 0) else "")
        veto("preemptive", lambda queue, pod: "" if used(queue) + 1000 <= self._milli.get(queue, 0) else "it has what it deserves")


@pytest.fixture
def deserves(monkeypatch):
    def register(**cores: int) -> e.Event:
        monkeypatch.setitem(plugins.PLUGINS, "deserves", SimpleNamespace(open=Deserves(**cores).open, Args=NoArgs))
        quiet = PluginConfig("gang", {"enablePreemptable": False, "enableReclaimable": False})
        tiers = ((PluginConfig("priority"), quiet), (PluginConfig("deserves"), PluginConfig("predicates")))
        return configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("allocate", "preempt", "reclaim"))), tiers=tiers))

    return register


def queue(name: str, **more) -> e.QueueObserved:
    return e.QueueObserved(name, f"uid-{name}", NOW, **more)


def of_queue(name: str, queue: str, where: str | None = None, shape: str = "s", **more) -> e.PodObserved:
    return pod(name, shape, where, annotations={QUEUE: queue}, **more)


def crowded(conf, *more, count: int = 4, **greedy):
    """A node full of pods of the queue `greedy`."""
    theirs = [of_queue(f"g{i}", "greedy", "a") for i in range(count)]
    return given(conf, node("a", cpu=count * 1000), S, queue("greedy", **greedy), queue("poor"), *theirs, *more)


def schedule(state, at: int = NOW):
    return run(state, decider, c.Schedule(at))


def victims(events):
    return [event.pod for event in events if isinstance(event, e.Preempted)]


def test_a_queue_takes_back_what_it_deserves_from_one_that_has_more(deserves):
    state = crowded(deserves(greedy=2, poor=2), of_queue("p", "poor"))
    assert schedule(state) == [
        e.Preempted("g3", "p", "reclaim", "for pod default/p of queue poor"),
        e.Nominated("p", "a", NOW + PATIENCE, (), ("g3",)),
    ]
    then(state, changed("g3", node="a", phase="Running", deleting=NOW), e.PodGone("g3"))
    assert schedule(state) == [e.PodPlaced("p", "a")]


def test_it_takes_no_more_than_it_deserves(deserves):
    state = crowded(deserves(greedy=2, poor=2), *(of_queue(f"p{i}", "poor") for i in range(4)))
    assert len(victims(schedule(state))) == 2
    assert victims(schedule(state)) == []


def test_victims_that_are_still_running_do_not_count_for_their_queue_any_more(deserves):
    state = crowded(deserves(greedy=3, poor=2), of_queue("p0", "poor"))
    assert len(victims(schedule(state))) == 1
    then(state, of_queue("p1", "poor"))
    # Without the one that goes, its queue has just what it deserves.
    assert victims(schedule(state)) == []


def test_a_queue_that_is_not_reclaimable_gives_nothing(deserves):
    state = crowded(deserves(greedy=2, poor=2), of_queue("p", "poor"), reclaimable=False)
    assert victims(schedule(state)) == []


def test_nothing_is_reclaimed_from_the_claimers_own_queue(deserves):
    state = crowded(deserves(greedy=2, poor=2), of_queue("g9", "greedy"))
    assert victims(schedule(state)) == []


def test_a_pod_that_never_preempts_reclaims_nothing(deserves):
    state = crowded(deserves(greedy=2, poor=2), shape("meek", preemption="Never"), of_queue("p", "poor", shape="meek"))
    assert victims(schedule(state)) == []


def test_priority_does_not_matter_between_queues(deserves):
    proud = shape("proud", priority=100)
    theirs = [of_queue(f"g{i}", "greedy", "a", shape="proud") for i in range(2)]
    state = given(deserves(greedy=1, poor=1), node("a", cpu=2_000), S, proud, queue("greedy"), queue("poor"), *theirs, of_queue("p", "poor"))
    assert victims(schedule(state)) == ["g1"]


def test_a_gang_reclaims_as_a_whole_or_not_at_all(deserves):
    def gang(need: int):
        group = e.PodGroupObserved("default", "g", "uid-g", NOW, "poor", need, phase="Running")
        return [group, *(pod(f"p{i}", "s", annotations={"scheduling.k8s.io/group-name": "g"}) for i in range(need))]

    state = crowded(deserves(greedy=2, poor=2), *gang(2))
    assert sorted(victims(schedule(state))) == ["g2", "g3"]
    state = crowded(deserves(greedy=2, poor=2), *gang(3))
    assert victims(schedule(state)) == []


def test_without_a_plugin_that_says_who_nobody_is_reclaimed(deserves):
    conf = deserves()
    state = crowded(conf, of_queue("p", "poor"))
    assert victims(schedule(state)) == []


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_the_plugins_that_share_out_the_cluster_say_who_has_more_than_it_deserves(plugin):
    tiers = ((PluginConfig("priority"), PluginConfig("conformance"), PluginConfig(plugin), PluginConfig("predicates")),)
    conf = configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("allocate", "reclaim"))), tiers=tiers))
    amounts = {"deserved": {"cpu": 2_000, "memory": 64 << 30}} if plugin == "capacity" else {}
    theirs = [of_queue(f"g{i}", "greedy", "a") for i in range(4)]
    group = e.PodGroupObserved("default", "m", "uid-m", NOW, "poor", 1, {}, {"cpu": 1_000, "memory": 1 << 30}, phase="Inqueue")
    mine = [pod(f"p{i}", "s", annotations={"scheduling.k8s.io/group-name": "m"}) for i in range(4)]
    state = given(conf, node("a", cpu=4_000), S, queue("greedy", **amounts), queue("poor", **amounts), *theirs, group, *mine)
    assert victims(schedule(state)) != []
    for _ in range(6):
        going = sorted({*state.victims_of, *(uid for uid, pod in state.pods.items() if pod.live.deleting)})
        then(state, *(changed(uid, node="a", phase="Running", deleting=NOW) for uid in going), *map(e.PodGone, going))
        schedule(state)
    running = [uid for uid in ("g0", "g1", "g2", "g3") if uid in state.pods]
    assert len(running) >= 2


def test_with_volcanos_default_tiers_too_a_queue_keeps_what_it_deserves():
    """The first tier has plugins that vote on victims; those that share out the cluster are in the second one."""
    actions = tuple(map(ActionConfig, ("enqueue", "allocate", "reclaim")))
    conf = configured("session", SessionConfig(actions=actions))
    group = e.PodGroupObserved("default", "m", "uid-m", NOW, "poor", 1, phase="Inqueue")
    mine = [pod(f"p{i}", "s", annotations={"scheduling.k8s.io/group-name": "m"}) for i in range(4)]
    theirs = [of_queue(f"g{i}", "greedy", "a") for i in range(2)]
    others = [of_queue(f"o{i}", "other", "a") for i in range(2)]
    state = given(conf, node("a", cpu=4_000), S, queue("greedy"), queue("poor"), queue("other", weight=2), *theirs, *others, group, *mine)
    assert set(victims(schedule(state))) <= {"g0", "g1"}
    for _ in range(4):
        going = sorted({*state.victims_of, *(uid for uid, pod in state.pods.items() if pod.live.deleting)})
        then(state, *(changed(uid, node="a", phase="Running", deleting=NOW) for uid in going), *map(e.PodGone, going))
        schedule(state)
    assert {"o0", "o1"} <= state.pods.keys()


def test_of_a_queue_that_has_more_the_least_important_pods_go():
    tiers = ((PluginConfig("proportion"), PluginConfig("predicates"), PluginConfig("priority")),)
    conf = configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("allocate", "reclaim"))), tiers=tiers))
    proud = shape("proud", priority=7)
    theirs = [of_queue(f"g{i}", "greedy", "a", shape="proud" if i < 2 else "s") for i in range(4)]
    state = given(conf, node("a", cpu=4_000), S, proud, queue("greedy"), queue("poor"), *theirs, *(of_queue(f"p{i}", "poor") for i in range(2)))
    assert sorted(victims(schedule(state))) == ["g2", "g3"]
