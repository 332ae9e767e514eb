"""Seed 000's pseudo code, pod by pod and node by node, as one would write it down first."""

from restow.domain.config import DefragmentationArgs
from restow.domain.resources import canonical_resource
from restow.domain.state import ClusterState


def naive_plan(state: ClusterState, args: DefragmentationArgs, limit: int) -> list[tuple[str, str, str]]:
    """⟨pod, source, target⟩ in order."""
    table, resource = state.table, canonical_resource(args.resourceType)
    low, defragment, protection = (
        next(iter(bound.values())) for bound in (args.lowThresholds, args.defragmentThresholds, args.protectionThresholds)
    )
    free = {n: {r: int(table.free[table.rows[n], c]) for r, c in table.columns.items()} for n in state.nodes}
    total = {n: fact.allocatable.get(resource, 0) for n, fact in state.nodes.items()}
    devices = {n: table.device_free[table.rows[n], : fact.devices].tolist() for n, fact in state.nodes.items()}

    def usage(n: str) -> int:
        return total[n] - free[n].get(resource, 0)  # type: ignore[index]

    sources = [n for n in state.nodes if total[n] and usage(n) * 100 < low * total[n]]
    targets = [n for n in state.nodes if total[n] and defragment * total[n] < usage(n) * 100 < protection * total[n]]
    moves: list[tuple[str, str, str]] = []
    for source in sorted(sources, key=lambda n: (usage(n) * 10_000 // total[n], n)):
        leaving = [p.fact for p in state.pods.values() if p.fact.node == source and p.fact.owner is not None]
        wants = {p.pod: state.shapes[p.shape].requests for p in leaving}
        leaving.sort(key=lambda p: (-wants[p.pod].get(resource, 0), -wants[p.pod]["cpu"], -wants[p.pod]["memory"], p.namespace, p.name))
        for p in leaving:
            spec = state.shapes[p.shape]
            for n in sorted(targets, key=lambda n: (-(usage(n) * 10_000 // total[n]), n)):
                if any(free[n].get(r, 0) < amount for r, amount in spec.requests.items()):
                    continue
                able = sorted((d, i) for i, d in enumerate(devices[n]) if spec.devices and d >= spec.devices.milli)
                if spec.devices and len(able) < spec.devices.count:
                    continue
                if (usage(n) + spec.requests.get(resource, 0)) * 100 >= protection * total[n]:
                    continue
                break
            else:
                continue
            if len(moves) == limit:
                return moves
            for r, amount in spec.requests.items():
                free[n][r] -= amount
            if spec.devices:
                for _, i in able[: spec.devices.count]:
                    devices[n][i] -= spec.devices.milli
            moves.append((p.pod, source, n))
    return moves
