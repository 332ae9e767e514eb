"""What LoadAware asks: Prometheus about nodes and pods, or its adaptor (custom.metrics.k8s.io) about nodes → integers with their time.

A source that does not answer, or answers with something else, is an error in the samples: nothing is evicted on it.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from restow.contracts.ids import MOST, Millis, NodeName, PodUid
from restow.contracts.samples import BILLION, Loads
from restow.domain import quantity as q
from restow.domain.descheduling.plugins.load_aware import Args
from restow.kube.client import ApiStatus, Client
from restow.kube.decode import BAD_JSON
from restow.kube.prometheus import Ask, Sample, vector

CPU, MEMORY = "cpu", "memory"
ADAPTED = {CPU: "node_cpu_usage_avg", MEMORY: "node_memory_usage_avg"}
"""Metrics of nodes by the names that Volcano's rules for the adaptor give them: shares, 0 to 1."""
_PATH = "/apis/custom.metrics.k8s.io/v1beta1/nodes/*/"


class LoadError(ValueError):
    """A share that cannot be one; says why."""


def queries(args: Args) -> dict[str, str]:
    """By what is asked, over `duration`: shares of nodes by `instance`, amounts of pods by `namespace` and `pod`."""
    window = f"{args.seconds}s"
    idle = f'rate(node_cpu_seconds_total{{mode="idle"}}[{window}])'
    left, total = (f"avg_over_time(node_memory_Mem{what}_bytes[{window}])" for what in ("Available", "Total"))
    whole = 'container="",pod!=""'
    return {
        "node cpu": f"1 - avg by (instance) ({idle})",
        "node memory": f"1 - avg by (instance) ({left} / {total})",
        "pod cpu": f"sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{{{whole}}}[{window}]))",
        "pod memory": f"sum by (namespace, pod) (container_memory_working_set_bytes{{{whole}}})",
    }


async def of_prometheus(ask: Ask, args: Args, uids: Mapping[str, PodUid], now: Millis) -> Loads:
    """Never raises."""
    answers: dict[str, list[Sample]] = {}
    try:
        for what, query in queries(args).items():
            # What is no number is no sample.
            answers[what] = [one for one in vector(await ask(query), query) if one.value.is_finite()]
        nodes: dict[NodeName, dict[str, int]] = {}
        pods: dict[PodUid, dict[str, int]] = {}
        for name in (CPU, MEMORY):
            for one in answers[f"node {name}"]:
                nodes.setdefault(NodeName(one.labels.get("instance", "")), {})[name] = _share(one.value, name)
            for one in answers[f"pod {name}"]:
                uid = uids.get(f"{one.labels.get('namespace')}/{one.labels.get('pod')}")
                if uid is not None:
                    pods.setdefault(uid, {})[name] = _used(one.value, name)
    except ValueError as error:
        return Loads(now, error=str(error))
    taken = min((one.at for samples in answers.values() for one in samples), default=int(now))
    return Loads(Millis(taken), nodes, pods)


async def of_adaptor(client: Client, pods: Mapping[PodUid, dict[str, int]], error: str, now: Millis) -> Loads:
    """`pods`: metrics.k8s.io's, or why there are none (`error`). Never raises."""
    if error:
        return Loads(now, error=error)
    nodes: dict[NodeName, dict[str, int]] = {}
    try:
        for name, metric in ADAPTED.items():
            for one in msgspec.json.decode(await client.get(_PATH + metric))["items"]:
                share = Decimal(q.nano(one["value"])).scaleb(-9)
                nodes.setdefault(NodeName(one["describedObject"]["name"]), {})[name] = _share(share, name)
    except ApiStatus as status:
        return Loads(now, error=f"custom.metrics.k8s.io: {status}")
    except (*BAD_JSON, KeyError, TypeError, ValueError) as error_:
        return Loads(now, error=f"custom.metrics.k8s.io answers with something unreadable ({type(error_).__name__} {error_})")
    return Loads(now, nodes, dict(pods))


def _used(value: Decimal, name: str) -> int:
    """In canonical units; a source may say anything, and the log holds no more than 64 bits."""
    unit = 1000 if name == CPU else 1
    return int(min(max(value, Decimal(0)), Decimal(MOST // unit)) * unit)


def _share(value: Decimal, name: str) -> int:
    """In billionths. What is measured between two instants may be a little beyond what there is."""
    if not Decimal("-0.1") <= value <= Decimal("1.5"):
        raise LoadError(f"a node's share of {name} is {value}; allowed: 0 to 1")
    return min(max(int(value * BILLION), 0), BILLION)
