"""A case's objects, through the real decoding into facts, folded into a state; and its metrics."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from restow.contracts.ids import Millis, NodeName
from restow.contracts.samples import BILLION, NodeRatios, Samples
from restow.contracts.times import of
from restow.domain.descheduling.model import Policy
from restow.domain.fold import apply
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube import metrics
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Upsert

NOW = Millis(1_790_000_000_000)
"""Where a case does not freeze the clock: long after everything."""
KINDS = {collection.kind: collection for collection in d.COLLECTIONS if not collection.optional}


def time_of(case: dict[str, Any]) -> Millis:
    clock = case.get("clock")
    return NOW if clock is None else of(datetime.fromisoformat(clock))


def state_of(case: dict[str, Any]) -> ClusterState:
    state = ClusterState()
    objects = [*case["nodes"], *case.get("extraNodes", ()), *case.get("other", ()), *case["pods"]]
    batch = Batch(StateKnown(state))
    for one in objects:
        collection = KINDS[one["kind"]]
        batch.add(collection, Upsert(collection.object(json.dumps(one).encode())))
    assert batch.undecodable == []
    apply(state, batch.events())
    return state


def samples_of(case: dict[str, Any], state: ClusterState, policy: Policy, now: Millis) -> Samples | None:
    if "nodeMetrics" in case:
        nodes = metrics.read(json.dumps({"items": case["nodeMetrics"]}).encode())
        pods = metrics.read(json.dumps({"items": case["podMetrics"]}).encode())
        uids = {f"{pod.fact.namespace}/{pod.fact.name}": uid for uid, pod in state.pods.items()}
        return Samples(
            now, nodes.usage, {uids[name]: usage for name, usage in pods.usage.items() if name in uids}
        )
    if "prometheusSamples" in case:
        ratios = {
            NodeName(one["metric"]["instance"]): int(Decimal(repr(one["value"])) * BILLION) for one in case["prometheusSamples"]
        }
        return Samples(now, prometheus={query: NodeRatios(now, ratios) for query in policy.queries})
    return None

