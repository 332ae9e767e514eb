"""LowNodeUtilization: pods leave overutilized nodes until these are at their target, or the underutilized ones are."""

import pytest
from domain.build import GIB, NOW, given, node, pod, shape
from domain.descheduling.plugin_words import Plugin, kept, reasons
from domain.descheduling_words import HOUR, WEB, evaluate, policy, profile

from restow.contracts.samples import BILLION, NodeRatios, Samples

low = Plugin("LowNodeUtilization")
NODES = tuple(node(n, cpu=10_000, memory=100 * GIB, pods=100) for n in ("n1", "n2", "n3"))
SHAPES = (shape("s"),)
CPU = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}


def pods(count, at, shape="s", start=0, **more):
    return tuple(pod(f"{at}-{i}", shape, at, owner=WEB, **more) for i in range(start, start + count))


def cluster(*counts, extra=()):
    return given(*NODES[: len(counts)], *SHAPES, *extra, *(p for i, n in enumerate(counts) for p in pods(n, f"n{i + 1}")))


def test_pods_leave_until_the_node_is_at_its_target():
    outcome = low(cluster(8, 1), **CPU)
    assert len(outcome.evictions) == 3
    assert set(reasons(outcome).values()) == {"cpu of its node is used to 80.0 %, more than 50 %"}
    assert set(kept(outcome).values()) == {"Utilization: enough leaves its node, which is above no target any more"}


def test_pods_leave_while_the_others_are_below_their_targets():
    outcome = low(cluster(10, 1), **(CPU | {"targetThresholds": {"cpu": 30}}))
    assert len(outcome.evictions) == 2
    assert set(kept(outcome).values()) == {"Capacity: the nodes that pods could go to have no cpu left"}


def test_the_fullest_node_first():
    assert [uid[:2] for uid in low.gone(cluster(6, 8, 0), **CPU)] == ["n2", "n2", "n2", "n1"]


def test_what_equals_a_target_is_not_above_it():
    assert low.gone(cluster(5, 1), **CPU) == []
    assert low.told(cluster(5, 1), **CPU) == ["no node is overutilized"]


def test_nodes_between_the_thresholds_do_not_count():
    state = cluster(8, 3, 1)
    assert len(low.gone(state, **CPU)) == 3
    assert low.told(cluster(8, 3), **CPU) == ["no node is underutilized"]


def test_number_of_nodes():
    assert low.gone(cluster(8, 1), numberOfNodes=1, **CPU) == []
    assert len(low.gone(cluster(8, 1, 1), numberOfNodes=1, **CPU)) == 3


def test_cordoned_nodes_take_nothing():
    state = given(NODES[0], node("n2", cpu=10_000, unschedulable=True), *SHAPES, *pods(8, "n1"))
    assert low.gone(state, **CPU) == []


def test_any_resource_above_its_target_makes_it_overutilized_and_no_resource_may_be_above_to_make_it_under():
    said = {"thresholds": {"cpu": 20, "pods": 20}, "targetThresholds": {"cpu": 90, "pods": 7}}
    said["thresholds"]["pods"] = 1
    assert len(low.gone(cluster(8, 1), **said)) == 1
    assert low.gone(cluster(8, 2), **said) == []


def test_deviation_from_the_mean():
    said = {"useDeviationThresholds": True, "thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 10}}
    state = cluster(8, 4, 0)
    assert len(low.gone(state, **said)) == 3, "the mean is 40 %: down to 50 %"
    assert low.gone(cluster(5, 4, 3), **said) == [], "10 % from the mean is not above it, and is not below"


@pytest.mark.parametrize(("limit", "gone"), [(None, 3), (0, 0), (2, 2), (9, 3)])
def test_eviction_limits(limit, gone):
    limits = {} if limit is None else {"evictionLimits": {"node": limit}}
    assert len(low.gone(cluster(8, 1), **limits, **CPU)) == gone


def test_namespaces_and_modes():
    extra = shape("m", cpu=0), *pods(1, "n1", "m", 50), *pods(2, "n1", start=60, namespace="other")
    state = cluster(6, 1, extra=extra)
    assert all(uid in ("n1-60", "n1-61") for uid in low.gone(state, evictableNamespaces={"include": ["other"]}, **CPU))
    assert not {"n1-60", "n1-61"} & set(low.gone(state, evictableNamespaces={"exclude": ["other"]}, **CPU))
    assert "n1-50" not in low.gone(state, evictionModes=["OnlyThresholdingResources"], **CPU)


MEASURED = {"metricsUtilization": {"source": "KubernetesMetrics"}}
SOURCE = {"metricsProviders": [{"source": "KubernetesMetrics"}]}
LATER = NOW + HOUR


def measured(nodes, pods, taken=LATER, error=""):
    """Used thousandths of a core."""
    return Samples(
        taken,
        {n: {"cpu": cpu, "memory": GIB} for n, cpu in nodes.items()},
        {p: {"cpu": cpu, "memory": 0} for p, cpu in pods.items()},
        error,
    )


def test_what_is_measured_counts_not_what_is_asked_for():
    samples = measured({"n1": 9_000, "n2": 1_000}, {"n1-0": 1_500, "n1-1": 2_500, "n1-2": 4_000})
    outcome = low(cluster(3, 3), samples=samples, limits=SOURCE, **MEASURED, **CPU)
    assert list(reasons(outcome)) == ["n1-0", "n1-1"]
    asked = low(cluster(3, 3), samples=samples, limits=SOURCE, **CPU)
    assert asked.evictions == ()


def test_a_pod_without_metrics_stays():
    samples = measured({"n1": 9_000, "n2": 1_000}, {"n1-1": 9_000})
    outcome = low(cluster(2, 0), samples=samples, limits=SOURCE, **MEASURED, **CPU)
    assert list(reasons(outcome)) == ["n1-1"]
    assert kept(outcome) == {"n1-0": "Metrics: none of this pod"}


GONE_BY = {
    "none": (None, "the policy names no source of metrics; allowed: metricsProviders"),
    "unreachable": (measured({}, {}, error="metrics.k8s.io: 503"), "metrics.k8s.io: 503"),
    "stale": (measured({"n1": 9_000, "n2": 0}, {}, LATER - 301_000), "metrics.k8s.io: its metrics are 301 s old; allowed: up to 300 s"),
    "a node is missing": (measured({"n1": 9_000}, {}), "node n2 has no metrics"),
    "a resource is missing": (Samples(LATER, {"n1": {"cpu": 1}, "n2": {"cpu": 1}}), "the metrics of node n1 lack memory"),
}


@pytest.mark.parametrize(("samples", "said"), GONE_BY.values(), ids=GONE_BY)
def test_without_metrics_nothing_is_evicted(samples, said):
    state = cluster(8, 0)
    assert low.gone(state, samples=samples, limits=SOURCE, **MEASURED, **CPU) == []
    assert low.told(state, samples=samples, limits=SOURCE, **MEASURED, **CPU) == [f"nothing is evicted: {said}"]


QUERY = "instance:node_cpu:rate:sum"
BY_QUERY = {
    "thresholds": {"MetricResource": 20},
    "targetThresholds": {"MetricResource": 70},
    "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": QUERY}},
}
PROMETHEUS = {"metricsProviders": [{"source": "Prometheus", "prometheus": {"url": "http://p:9090"}}]}


def queried(taken=LATER, **ratios):
    return Samples(LATER, prometheus={QUERY: NodeRatios(taken, {n: int(r * BILLION) for n, r in ratios.items()})})


def by_query(state, samples, **more):
    return evaluate(state, policy(profile("LowNodeUtilization", BY_QUERY | more, point="balance"), **PROMETHEUS), LATER, samples)


def test_of_a_query_nobody_knows_what_a_pod_has_in_it_so_one_goes_at_a_time():
    outcome = by_query(cluster(3, 0), queried(n1=0.9, n2=0.1))
    assert list(reasons(outcome)) == ["n1-0"]
    assert set(kept(outcome).values()) == {"Metrics: what a pod uses is not known, so one goes at a time"}
    assert len(by_query(cluster(3, 0), queried(n1=0.9, n2=0.1), evictionLimits={"node": 2}).evictions) == 2


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (queried(n1=0.9), "the query has no sample with instance=n2"),
        (queried(n1=1.5, n2=0.1), "the sample with instance=n1 is 1.5; allowed: 0 to 1"),
        (queried(LATER - 900_000, n1=0.9, n2=0.1), "Prometheus: its metrics are 900 s old; allowed: up to 300 s"),
        (Samples(LATER, prometheus={QUERY: NodeRatios(LATER, error="Prometheus: 401")}), "Prometheus: 401"),
    ],
    ids=["missing", "out of range", "stale", "error"],
)
def test_answers_that_say_nothing(samples, said):
    outcome = by_query(cluster(3, 0), samples)
    assert (outcome.evictions, [w.text for w in outcome.warnings]) == ((), [f"nothing is evicted: {said}"])


REFUSED = {
    "targetThresholds: none; allowed: percentages by resource, such as cpu: 20": {"targetThresholds": {}},
    "targetThresholds.cpu: 100.1; allowed: 0 to 100": {"targetThresholds": {"cpu": 100.1}},
    "thresholds.cpu: 60; allowed: up to targetThresholds.cpu, 50": {"thresholds": {"cpu": 60}},
    "targetThresholds: cpu beside thresholds of cpu, memory; allowed: the same resources": {"thresholds": {"cpu": 1, "memory": 1}},
    "thresholds.MetricResource: set; allowed: only with source Prometheus": {
        "thresholds": {"MetricResource": 1},
        "targetThresholds": {"MetricResource": 2},
    },
    "metricsUtilization.source: 'Datadog'; allowed: KubernetesMetrics, Prometheus": {"metricsUtilization": {"source": "Datadog"}},
    "metricsUtilization.source: nothing; allowed: KubernetesMetrics, Prometheus": {"metricsUtilization": {}},
    "metricsUtilization.metricsServer: true beside source Prometheus; allowed: one of them": {
        "metricsUtilization": {"metricsServer": True, "source": "Prometheus", "prometheus": {"query": "q"}}
    },
    "metricsUtilization.prometheus: set; allowed: only with source Prometheus": {
        "metricsUtilization": {"source": "KubernetesMetrics", "prometheus": {"query": "q"}}
    },
    "metricsUtilization.prometheus.query: nothing; allowed: a query with a sample from 0 to 1 for each instance": {
        "metricsUtilization": {"source": "Prometheus"}
    },
    "thresholds: cpu; allowed: only MetricResource with source Prometheus": {
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "q"}}
    },
    "evictableNamespaces: has include and exclude; allowed: one of them": {
        "evictableNamespaces": {"include": ["a"], "exclude": ["b"]}
    },
}


@pytest.mark.parametrize(("said", "args"), REFUSED.items(), ids=range(len(REFUSED)))
def test_arguments_that_make_no_sense(said, args):
    assert low.refused(**(CPU | args)) == said


def test_with_deviations_thresholds_need_not_ascend():
    assert low.gone(cluster(8, 0), useDeviationThresholds=True, thresholds={"cpu": 30}, targetThresholds={"cpu": 10})
