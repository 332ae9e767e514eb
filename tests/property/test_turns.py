"""Whose turn it is, with many jobs in several queues: the session places as the oracle does, which asks all queues and all jobs again before every pod."""

import random
from collections import Counter
from collections.abc import Callable

from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod_group,
    queue,
    replica_of,
    run,
    shape,
)
from effort import examples
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from oracle.compare import compare
from oracle.schedule import Job, Rules, enough, group_of, members
from oracle.scores import nodeorder
from oracle.world import World

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import PluginConfig, SessionConfig

TIERS = (("priority", "gang"), ("drf", "predicates", "capacity", "nodeorder"))
CONF = SessionConfig(tiers=tuple(tuple(map(PluginConfig, tier)) for tier in TIERS))
QUEUES = ("a", "b", "c")
GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")
WHOLE = 10**9


def drawn(seed: int) -> list[e.Event]:
    luck = random.Random(seed)
    facts: list[e.Event] = [GROUPS]
    for name in QUEUES:
        deserved = {"cpu": luck.choice([1_000, 4_000, 9_000])} | ({"memory": luck.choice([2, 8]) * GIB} if luck.random() < 0.5 else {})
        facts.append(queue(name, deserved=deserved if luck.random() < 0.8 else {}, priority=luck.choice([0, 0, 0, 1])))
    nodes = [f"n{i}" for i in range(luck.randint(2, 6))]
    facts += [node(name, cpu=luck.choice([4_000, 8_000]), memory=luck.choice([8, 16]) * GIB) for name in nodes]
    shapes = [f"s{i}" for i in range(5)]
    for name in shapes:
        facts.append(shape(name, luck.choice([100, 300, 700, 1_500]), luck.randint(1, 6) * GIB // 4, priority=luck.choice([0, 0, 0, 7])))
    groups = [f"g{i}" for i in range(luck.randint(1, 5))]
    facts += [pod_group(name, luck.choice(QUEUES), luck.randint(1, 4)) for name in groups]
    for i in range(luck.randint(5, 70)):
        there = luck.choice(nodes) if luck.random() < 0.1 else None
        kind, name, what = luck.random(), f"p{i:02}", luck.choice(shapes)
        if kind < 0.3:
            facts.append(member(name, luck.choice(groups), what, there))
        else:
            owner = replica_of(f"r{luck.randrange(8)}") if kind < 0.85 else None
            facts.append(in_queue(name, luck.choice(QUEUES), what, there, owner=owner))
    return facts


def turn(facts: list[e.Event]) -> Callable[[World, Job], tuple]:
    """Queues by priority and by what they use of what they deserve; in one, jobs by priority, then who has nothing, then by dominant share."""
    cluster = Counter[str]()
    for fact in facts:
        if isinstance(fact, e.NodeObserved):
            cluster.update(fact.allocatable)

    def of_job(world: World, job: Job) -> tuple:
        first = job.pods[0]
        name = queue_of(world, first)
        known = world.queues[name]
        of_queue = share(used(world, lambda pod: queue_of(world, pod) == name), known.deserved) if known.deserved else WHOLE
        mine = [pod for pod in world.pods.values() if pod.pod in world.where and account(pod) == account(first) != ""]
        begun = enough(world.groups[job.group], members(world, job.group)) if job.group in world.groups else bool(mine)
        share_of_job = share(used(world, lambda pod: pod in mine), cluster)
        # A gang's priority is the highest of all its pods', those that run included.
        everybody = [pod for pod in world.pods.values() if job.group and group_of(pod) == job.group] or job.pods
        priority = max(world.shape(pod).priority for pod in everybody)
        return (-known.priority, of_queue, not known.deserved, name), -priority, begun, share_of_job, job.arrival

    return of_job


def account(pod: e.PodObserved) -> str:
    return group_of(pod) or (pod.owner.uid if pod.owner is not None else "")


def queue_of(world: World, pod: e.PodObserved) -> str:
    known = world.groups.get(group_of(pod))
    return known.queue if known is not None else pod.annotations["scheduling.volcano.sh/queue-name"]


def used(world: World, counts: Callable[[e.PodObserved], bool]) -> Counter[str]:
    total = Counter[str]()
    for uid in world.where:
        if counts(world.pods[uid]):
            total.update(world.shape(world.pods[uid]).requests)
    return total


def share(have: Counter[str], whole: dict[str, int]) -> int:
    return max((have[name] * WHOLE // amount if amount else WHOLE for name, amount in whole.items() if have[name]), default=0)


@settings(max_examples=examples(150), deadline=None)
@for_all(st.integers(0, 10**9))
@example(21532)  # a gang that fits in no order, and does on the nodes that the session searches for it
@example(24618)  # a gang's second order, where its first one had taken some of the capacity
def test_jobs_and_queues_take_turns_as_if_all_were_asked_before_every_pod(seed):
    facts = drawn(seed)
    state = given(configured("session", CONF), facts)
    events = run(state, session.decider, c.Schedule(NOW))
    placed = {event.pod: event.node for event in events if isinstance(event, e.PodPlaced)}
    compare(state, events, World.of(facts), Rules(nodeorder(1, 0, 1), order=turn(facts), together=placed))
