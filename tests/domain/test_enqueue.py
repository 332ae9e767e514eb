"""Action enqueue: queues are let in by turns, so that no backlog takes all the capacity that is promised."""

from domain.build import NOW, configured, given, member, node, pod_group, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider


class World:
    """Ten cores, queues a and b of equal weight, groups of one pod of one core. Pods run as soon as they are placed."""

    def __init__(self, conf: SessionConfig | None = None):
        self.state = given(
            configured("session", conf or SessionConfig()), e.Synced("podgroups.scheduling.volcano.sh", "1"),
            node("n", cpu=10_000, pods=1_000), shape("s", memory=1), queue("a"), queue("b"),
        )  # fmt: skip
        self.now = NOW
        self.ran = {"a": 0, "b": 0}
        self.count = 0

    def submit(self, queue: str, times: int = 1) -> None:
        for _ in range(times):
            self.count += 1
            name = f"{queue}{self.count:04}"
            then(self.state, pod_group(name, queue, phase="Pending", min_resources={"cpu": 1_000}), member(f"{name}-0", name))

    def live(self) -> None:
        while (command := decider.due(self.state, self.now)) is not None and (events := run(self.state, decider, command)):
            for event in events:
                if isinstance(event, e.PodPlaced):
                    self.ran[event.pod[0]] += 1
                    then(self.state, e.PodChanged(event.pod, node=event.node, phase="Running", ready=True))
            self.now += 1

    def end_one_of(self, queue: str) -> None:
        running = [uid for uid in self.state.on_node.get("n", ()) if uid[0] == queue] or list(self.state.on_node["n"])
        then(self.state, e.PodChanged(running[0], node="n", phase="Succeeded"))


def test_a_queue_with_a_backlog_does_not_take_all_the_capacity_and_the_other_gets_its_half():
    world = World()
    world.submit("a", 60)
    world.live()
    world.submit("b", 20)
    world.live()
    for _ in range(20):
        world.end_one_of("a")
        world.submit("a")
        world.live()
    assert world.ran["b"] >= 5
    assert sorted(uid[0] for uid in world.state.on_node["n"]) == ["a"] * 5 + ["b"] * 5


def enqueued(state):
    return [event.group for event in run(state, decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.Enqueued)]


def test_queues_take_turns_a_job_at_a_time_by_what_they_use_and_are_promised():
    world = World()
    world.submit("a", 20)
    world.submit("b", 20)
    names = enqueued(world.state)
    assert [name[0] for name in names] == ["a", "b"] * 6
    assert names == sorted(names, key=lambda name: (int(name[1:]) - 1) % 20)


def test_a_queue_of_twice_the_weight_gets_twice_as_much():
    world = World()
    then(world.state, queue("b", weight=2))
    world.submit("a", 20)
    world.submit("b", 20)
    assert sum(name[0] == "b" for name in enqueued(world.state)) == 8


def test_without_an_order_of_queues_the_first_jobs_are_let_in_first():
    tiers = ((PluginConfig("overcommit"), PluginConfig("gang")),)
    world = World(SessionConfig(actions=(ActionConfig("enqueue"), ActionConfig("allocate")), tiers=tiers))
    world.submit("b", 7)
    world.submit("a", 20)
    assert [name[0] for name in enqueued(world.state)] == ["b"] * 7 + ["a"] * 5


def test_promises_do_not_count_as_used_after_the_action():
    """A queue that was promised all of its capability may start what it was promised in the same session."""
    state = given(configured("session", SessionConfig()), e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=10_000), shape("s"))
    then(state, queue("a", capability={"cpu": 2_000}))
    for name in ("g", "h", "i"):
        then(state, pod_group(name, "a", phase="Pending", min_resources={"cpu": 1_000}), member(f"{name}0", name))
    events = run(state, decider, c.Schedule(NOW, 1_000))
    assert [event.group for event in events if isinstance(event, e.Enqueued)] == ["g", "h"]
    assert [event.pod for event in events if isinstance(event, e.PodPlaced)] == ["g0", "h0"]
