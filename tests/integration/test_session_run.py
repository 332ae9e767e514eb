"""A cluster with gangs, queues, preemption, holds and starving jobs, played by the real session while facts come between its
decisions and their commits; the log is judged by `tests/checker.py`, which shares no rule with Restow."""

import json
import random
from collections import Counter
from functools import cache

import pytest
from checker import Judge, check_records
from domain.build import NOW, in_queue, member, pod_group
from domain.test_session_determinism import world

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode_event
from restow.contracts.commands import Observe
from restow.domain import reservation, session
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.state import ClusterState


class Run:
    """One seed, one log: `commits` as the checker reads them."""

    def __init__(self, seed):
        self.state, self.random, self.now, self.commits = ClusterState(), random.Random(seed), NOW, []
        for fact in world(seed):
            events = [fact] if isinstance(fact, e.Event) else fact
            self.commit(str(type(events[0]).__struct_config__.tag).partition(".")[0], [Decision(Observe("t", "t"), tuple(events))])

    def commit(self, family, decisions, read=None):
        seq = self.state.seq + 1
        plain = [json.loads(encode_event(event)) for decision in decisions for event in decision.events]
        self.commits.append((seq, family, seq - 1 if read is None else read, plain))
        fold(self.state, seq, family, self.now, decisions)

    def facts(self, *events):
        if events:
            self.commit("cluster", [Decision(Observe("t", "t"), events)])

    def decide(self, decider, command):
        read, decisions = self.state.seq, decide_all(self.state, decider, [command])
        if not decisions:
            return False
        if self.random.random() < 0.4:
            self.facts(*self.happenings())
        self.commit(decider.family, decisions, read)
        return True

    def happenings(self):
        """Bindings, evictions that are carried out, pods that end by themselves, one or two that come."""
        state, luck = self.state, self.random
        for uid, placement in list(state.placed.items()):
            if state.pods[uid].live.node is None and luck.random() < 0.5:
                yield e.PodChanged(uid, placement.node, "Running", True, devices=placement.devices)
        for uid in list(state.victims_of):
            live = state.pods[uid].live
            if live.deleting and luck.random() < 0.5:
                yield e.PodGone(uid)
            elif not live.deleting and luck.random() < 0.7:
                yield e.PodChanged(uid, live.node or state.placed[uid].node, "Running", False, self.now, devices=live.devices or state.charges[uid].devices)
        for uid, pod in list(state.pods.items()):
            if uid not in state.victims_of and pod.live.phase == "Running" and luck.random() < 0.03:
                yield e.PodChanged(uid, pod.live.node, "Succeeded", devices=pod.live.devices)
        if luck.random() < 0.4:
            yield from self.arrivals()

    def arrivals(self):
        luck, queues = self.random, sorted(self.state.queues)
        name = f"late-{self.state.seq}-{luck.randrange(10**6)}"
        if luck.random() < 0.3:
            yield pod_group(name, luck.choice(queues), 3)
            yield from (member(f"{name}-{i}", name, luck.choice(("plain", "vip"))) for i in range(4))
        else:
            yield in_queue(name, luck.choice(queues), luck.choice(("plain", "large", "vip", "gpu", "two")), created=self.now)

    def play(self, steps):
        for _ in range(steps):
            self.now += self.random.choice((10, 1_000, 20_000))
            self.facts(*self.happenings())
            self.decide(reservation.decider, c.Review(self.now))
            for _ in range(20):
                command = session.decider.due(self.state, self.now)
                if command is None or not self.decide(session.decider, command):
                    break
        return self


SEEDS = (0, 2, 4, 9)


@cache
def played(seed):
    return Run(seed).play(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_independent_judge_finds_nothing_in_a_run_of_the_session(seed):
    report = check_records(played(seed).commits, Judge(planned=True))
    # Holds are left, and what facts had over-committed from the beginning.
    assert [sentence for sentence in report.broken if "the end" not in sentence] == []
    assert report.commits > 100


def test_these_runs_have_something_to_judge():
    seen = Counter(event["type"] for seed in SEEDS for *_, events in played(seed).commits for event in events)
    for kind in ("pod_placed", "nominated", "preempted", "nomination_ended", "hold_placed", "handed_over", "task_reserved", "enqueued"):
        assert seen[f"session.{kind}"] > 0, kind
