"""Whether a pod would find a node elsewhere: one answer serves all pods that no rule tells apart, and it is the scheduler's."""

import random

import msgspec
from domain.build import NOW
from domain.ruled import cluster, may

from restow.contracts import events as e
from restow.domain.descheduling.node_fit import NodeFit


def would(state, uid: str, name: str) -> bool:
    """What a new session says of a successor, the pod being gone."""
    rest = [*state.nodes.values(), *(e.ShapeDeclared(id, spec) for id, spec in state.shapes.items())]
    others = [known.fact for other, known in state.pods.items() if other != uid]
    return may([*rest, *others], msgspec.structs.replace(state.pods[uid].fact, pod="new", node=None, phase="Pending", ready=False), name)


def test_the_answer_is_the_schedulers_whoever_was_asked_about_before():
    for seed in range(20):
        state, chance = cluster(seed), random.Random(seed)
        names, few = sorted(state.nodes), random.Random(seed).sample(sorted(state.nodes), 2)
        fit = NodeFit(state, NOW)
        among = fit.rows(names)
        for uid in chance.sample(sorted(state.pods), len(state.pods)):
            home = state.pods[uid].live.node
            said = fit.why_none_elsewhere(uid, among)
            takes = {name for name in names if name != home and would(state, uid, name)}
            assert (said == "") == bool(takes), (seed, uid, said)
            assert said == NodeFit(state, NOW).why_none_elsewhere(uid, NodeFit(state, NOW).rows(names)), "what others have asked changes nothing"
            if said:
                assert sum(int(part.split()[0]) for part in said.split(": ", 2)[2].split(", ") if part[0].isdigit()) == len(names) - 1
            assert fit.any_of(uid, few) == any(not fit.why_not(uid, name) for name in few)
            assert {name for name in names if name != home and not fit.why_not(uid, name)} == takes
