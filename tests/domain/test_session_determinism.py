"""The same facts lead to the same bytes, whatever the hash seed; names decide only by their order."""

import hashlib
import os
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    reservation,
    shape,
    then,
)
from domain.storage import CLASSES, claim, on, volume

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import encode
from restow.contracts.values import HostPort, LabelSelector, PodTerm, Spread
from restow.domain import session
from restow.domain import session_config as conf
from restow.domain.decider import decide_all

decider = session.decider
TESTS = Path(__file__).parents[1]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SEEDS = ("1", "2")
RENAMED = re.compile(r"\bx(?=(?:node|queue|volume|claim|runs|group|gang|pod)-|hold|owner)")
TIERS = [["priority", "gang", "conformance"], ["drf", "predicates", "proportion", "nodeorder", "binpack", "fragmentation", "reservation"]]
ALL = ["enqueue", "reserve", "allocate", "backfill", "preempt", "reclaim", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 60}}]


def same(name):
    return name


def world(seed, named=same):
    """Nodes in zones, queues, gangs, company, volumes, GPUs and holds, more than fits; `named` gives everything its name."""
    luck = random.Random(seed)
    app = LabelSelector({"app": "a"})
    whole = conf.read_conf({"actions": ALL, "tiers": [{"plugins": [{"name": name} for name in tier]} for tier in TIERS]})
    nodes = [named(f"node-{i:02}") for i in range(12)]
    facts = [configured("session", whole), *CLASSES]
    facts += [
        node(n, cpu=luck.choice((4_000, 8_000)), memory=16 * GIB, gpus=luck.choice((0, 2, 4)), labels={ZONE: f"z{i % 3}", HOST: n})
        for i, n in enumerate(nodes)
    ]
    kinds = {
        "plain": {}, "large": {"cpu": 3_000}, "vip": {"cpu": 3_000, "priority": 10}, "gpu": {"gpu": (1, 500)}, "two": {"gpu": (2, 1000), "priority": 5},
        "apart": {"pod_anti_affinity": (PodTerm(HOST, app),)}, "near": {"pod_affinity": (PodTerm(ZONE, app),)},
        "spread": {"spread": (Spread(1, ZONE, "DoNotSchedule", app),)}, "port": {"host_ports": (HostPort(80),)},
        "volume": {"volumes": ("persistentVolumeClaim",)}, "none": {"cpu": 0, "memory": 0},
    }  # fmt: skip
    facts.append([shape(name, **more) for name, more in kinds.items()])
    queues = [named(f"queue-{i}") for i in range(3)]
    facts += [queue(q, weight, capability={"cpu": 40_000}) for q, weight in zip(queues, (1, 2, 5), strict=True)]
    facts += [volume(named(f"volume-{i}"), affinity=on(nodes[i])) for i in range(6)]
    facts += [claim(named(f"claim-{i}")) for i in range(8)]
    for i in range(20):
        facts.append(in_queue(named(f"runs-{i:02}"), luck.choice(queues), luck.choice(("plain", "large")), luck.choice(nodes)))
    for g in range(6):
        group, need = named(f"group-{g}"), luck.choice((2, 4, 30))
        facts.append(pod_group(group, luck.choice(queues), need, phase=luck.choice(("Pending", "Inqueue")), min_resources={"cpu": need * 1_000}))
        facts += [member(named(f"gang-{g}-{i}"), group, luck.choice(("plain", "vip", "gpu"))) for i in range(5)]
    for i in range(60):
        kind = luck.choice(list(kinds))
        more = {"claims": (named(f"claim-{luck.randrange(8)}"),)} if kind == "volume" else {}
        facts.append(in_queue(named(f"pod-{i:02}"), luck.choice(queues), kind, labels={"app": luck.choice("ab")}, created=NOW - luck.choice((0, 600_000)), **more))
    hold = named("hold")
    facts += [reservation(hold, ("t", 3, "plain"), match_policy="Owner"), e.ReservationAccepted(hold, 1, 1, NOW + 10**7)]
    facts.append(pod(named("owner"), "plain", labels={"app": "owner"}))
    return facts


def decided(facts):
    """What several sessions decide, as the bytes of their commits; victims go in between."""
    state, bodies = given(*facts), []
    for at in range(8):
        decisions = decide_all(state, decider, [c.Schedule(NOW + at, 1_000)])
        if decisions:
            bodies.append(encode(decisions))
            then(state, *(decision.events for decision in decisions), time=NOW + at)
        then(state, *map(e.PodGone, list(state.victims_of)), time=NOW + at)
    return bodies


@cache
def digest():
    return hashlib.sha256(b"".join(body for seed in range(6) for body in decided(world(seed)))).hexdigest()


def test_these_worlds_have_something_to_decide():
    text = b"".join(body for seed in range(6) for body in decided(world(seed))).decode()
    for kind in ("pod_placed", "nominated", "preempted", "enqueued", "withheld", "unfit", "hold_placed", "handed_over", "task_reserved", '"volumes"'):
        assert kind in text, kind


@pytest.mark.parametrize("seed", SEEDS)
def test_the_hash_seed_of_python_decides_nothing(seed):
    command = [sys.executable, "-c", "from domain.test_session_determinism import digest; print(digest())"]
    folders = os.pathsep.join([str(TESTS), *(folder for folder in sys.path if folder)])
    run = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": folders}, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == digest()


@pytest.mark.parametrize("seed", range(6))
def test_names_count_only_by_their_order(seed):
    """Other names in the same order: the same decisions, with the names put back."""
    renamed = [body.decode() for body in decided(world(seed, named=lambda name: f"x{name}"))]
    assert [RENAMED.sub("", text).encode() for text in renamed] == decided(world(seed))
