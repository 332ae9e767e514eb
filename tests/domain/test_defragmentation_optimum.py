"""How near the plans come to the best that there is, by an exact solver; the seed's greedy planner is printed beside."""

import msgspec
import pytest
from domain.build import NOW
from domain.optimum import optimum
from domain.planning import CAPACITY, cluster

from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs

SEEDS = range(5_000, 5_003)
"""The planner was tuned on other clusters (0 to 11): these are not for that."""
CASES = [("devices", 3), ("devices", 6), ("nodes", 3), ("nodes", 2_000), ("capacity", 3), ("capacity", 2_000)]
"""Objective, and how many moves are allowed."""
WITHIN = 95
"""Percent, on average over all cases: of what can be gained, and of the same less what the moves cost."""


def _args(objective: str) -> DefragmentationArgs:
    capacity = CAPACITY if objective == "capacity" else {}
    return DefragmentationArgs(
        planner="optimizing", objective=objective, capacity=capacity, resourceType="cpu", protectionThresholds={}, searchSteps=6_000
    )  # type: ignore[arg-type]


def _greedy(objective: str) -> DefragmentationArgs:
    """With the thresholds that let it act most."""
    kind = "nvidia.com/gpu" if objective == "devices" else "cpu"
    return DefragmentationArgs(kind, {kind: 100}, {kind: 50}, {kind: 50})


def _worth(state, plan, objective: str) -> int:
    free = {name: dict(fact.allocatable) for name, fact in state.nodes.items()}
    shares = {name: [1000] * fact.devices for name, fact in state.nodes.items()}
    at = {uid: (charge.node, charge.devices) for uid, charge in state.charges.items()}
    of = {move.migration: move.pod for move in plan.moves}
    for move in plan.moves:
        at[move.pod or of[move.follows]] = move.target, move.devices
    for uid, (name, devices) in at.items():
        free[name]["cpu"] -= state.shapes[state.pods[uid].fact.shape].requests["cpu"]
        for share in devices:
            shares[name][share.index] -= share.milli
    if objective == "devices":
        return sum(s.count(1000) for s in shares.values())
    if objective == "nodes":
        return len(state.nodes) - len({name for name, _ in at.values()})
    return sum(f["cpu"] // 4_000 for f in free.values())


@pytest.mark.deep
@pytest.mark.slow
def test_plans_come_within_five_percent_of_the_optimum_on_average():
    ours, best, net, best_net, seeds = 0, 0, 0, 0, 0
    for objective, moves in CASES:
        args, row = _args(objective), [0, 0, 0]
        for seed in SEEDS:
            state = cluster(seed, objective)
            nothing = defragmentation.plan(state, msgspec.structs.replace(args, searchSteps=1), NOW, "none", 0)
            start = _worth(state, nothing, objective)
            made = defragmentation.plan(state, args, NOW, "p", moves)
            greedy = defragmentation.plan(state, _greedy(objective), NOW, "g", moves)
            worth, least = optimum(state, args, moves)
            gained = _worth(state, made, objective) - start
            assert gained <= worth - start or len(made.moves) > least, "better than the best: the solver's model is wrong"
            # In tenths of a gain: minimumGain 100 says that one is worth ten moves.
            assert gained * 10 - len(made.moves) <= (worth - start) * 10 - least
            net += gained * 10 - len(made.moves)
            best_net += (worth - start) * 10 - least
            row[0] += gained
            row[1] += worth - start
            row[2] += _worth(state, greedy, objective) - start
        ours, best, seeds = ours + row[0], best + row[1], seeds + row[2]
        print(f"{objective}, at most {moves} moves, {len(SEEDS)} clusters: ours {row[0]}, the optimum {row[1]}, greedy {row[2]}")
    print(f"in all: ours {ours}, the optimum {best}, greedy {seeds}; less the cost of moves: {net} of {best_net}")
    assert ours * 100 >= best * WITHIN
    assert net * 100 >= best_net * WITHIN
