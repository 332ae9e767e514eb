"""LoadAware: pods leave nodes that are really too busy for nodes that are really idle (Volcano descheduler's)."""

import pytest
from domain.build import GIB, NOW, configured, given, node, pod, shape, then
from domain.descheduling.plugin_words import Plugin, kept, reasons
from domain.descheduling_words import HOUR, WEB, evaluate, policy, profile
from domain.saga import move, plan

from restow.contracts import events as e
from restow.contracts.samples import BILLION, Loads, NodeRatios, Samples
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.descheduling.policy import PolicyError, load, written
from restow.domain.descheduling.relevant import relevant

load_aware = Plugin("LoadAware")
NODES = tuple(node(n, cpu=10_000, memory=100 * GIB, pods=100) for n in ("n1", "n2", "n3"))
CPU = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 80}}
AT = NOW + HOUR
PROMETHEUS = {"type": "prometheus", "address": "http://prometheus:9090"}
SOURCE = "prometheus http://prometheus:9090 over 120 s"


def pods(count, at, **more):
    return tuple(pod(f"{at}-{i}", "s", at, owner=WEB, **more) for i in range(count))


def cluster(*counts, extra=()):
    return given(*NODES[: len(counts)], shape("s", cpu=100), *extra, *(p for i, n in enumerate(counts) for p in pods(n, f"n{i + 1}")))


def used(cpu, memory=GIB):
    return {"cpu": cpu, "memory": memory}


def server(nodes, each=None, taken=AT, **pods):
    """metrics.k8s.io: cpu of nodes; every pod uses `each`, but for some."""
    of_pods = {f"n{i}-{j}": used(each) for i in range(1, 4) for j in range(20)} if each is not None else {}
    return Samples(taken, {n: used(cpu) for n, cpu in nodes.items()}, of_pods | {k.replace("_", "-"): v for k, v in pods.items()})


def test_what_is_used_counts_and_not_what_is_asked_for():
    state = cluster(4, 1)
    outcome = load_aware(state, samples=server({"n1": 9_000, "n2": 1_000}, 600), **CPU)
    assert len(outcome.evictions) == 2, "9000 - 600 - 600 is below 80 %"
    assert set(reasons(outcome).values()) == {"cpu of its node is used to 90.0 %, more than 80 %"}
    assert set(kept(outcome).values()) == {"Utilization: enough leaves its node, which is above no target any more"}


def test_the_hungriest_goes_first_and_who_is_not_measured_stays():
    samples = server({"n1": 9_500, "n2": 100}, n1_0=used(100, 9 * GIB), n1_1=used(900), n1_2=used(500))
    outcome = load_aware(cluster(4, 1), samples=samples, **CPU)
    assert [one.pod for one in outcome.evictions] == ["n1-1", "n1-2", "n1-0"]
    samples = server({"n1": 9_600, "n2": 100}, n1_0=used(100, 9 * GIB), n1_1=used(900), n1_2=used(500))
    assert kept(load_aware(cluster(4, 1), samples=samples, **CPU)) == {"n1-3": "Metrics: none of this pod"}


def test_where_memory_is_scarce_those_go_that_use_most_of_it():
    samples = Samples(AT, {"n1": used(100, 95 * GIB), "n2": used(100)}, {"n1-0": used(900, GIB), "n1-1": used(1, 20 * GIB)})
    said = {"thresholds": {"memory": 30}, "targetThresholds": {"memory": 80}}
    assert load_aware.gone(cluster(2, 1), samples=samples, **said) == ["n1-1"]


def test_pods_count_in_percent_of_what_the_node_takes():
    said = {"thresholds": {"pods": 5}, "targetThresholds": {"pods": 10}}
    assert len(load_aware.gone(cluster(12, 1), samples=server({"n1": 1, "n2": 1}, 0), **said)) == 2


def test_prometheus_says_shares_of_a_node():
    shares = {"n1": {"cpu": 9 * BILLION // 10, "memory": 0}, "n2": {"cpu": BILLION // 10, "memory": 0}}
    samples = Samples(AT, loads={SOURCE: Loads(AT, shares, {f"n1-{i}": used(600) for i in range(4)})})
    assert len(load_aware.gone(cluster(4, 1), samples=samples, metrics=PROMETHEUS, **CPU)) == 2


def test_deviation_from_the_mean_of_what_is_measured():
    said = {"useDeviationThresholds": True, "thresholds": {"cpu": 10, "memory": 0}, "targetThresholds": {"cpu": 10, "memory": 5}}
    state = cluster(4, 1, 1)
    assert len(load_aware.gone(state, samples=server({"n1": 8_000, "n2": 4_000, "n3": 0}, 1_000), **said)) == 3, "down to 50 %"
    assert load_aware.gone(state, samples=server({"n1": 5_000, "n2": 4_000, "n3": 3_000}, 1_000), **said) == []
    assert load_aware.gone(state, samples=server({"n1": 5_600, "n2": 3_200, "n3": 3_200}, 1_000), **said) == [], "nobody is below 30 %"


def test_nodes_without_metrics_are_left_out_and_that_is_said():
    samples = server({"n1": 9_000, "n2": 1_000}, 600)
    assert load_aware.told(cluster(4, 1, 0), samples=samples, **CPU) == ["node n3 left out: there are no metrics of them"]
    more = load_aware.told(cluster(4, 1, 0, extra=[node(f"n{i}") for i in (4, 5, 6)]), samples=samples, **CPU)
    assert more == ["node n3 and 3 others left out: there are no metrics of them"]
    assert load_aware.told(cluster(4, 1), samples=Samples(AT), **CPU)[-1] == "nothing is evicted: no node has metrics"


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (None, "no metrics were read"),
        (Samples(AT, error="metrics.k8s.io: 503"), "metrics.k8s.io: 503"),
        (server({"n1": 9_000, "n2": 0}, 600, taken=AT - 600_000), "metrics.k8s.io: its metrics are 600 s old; allowed: up to 300 s"),
    ],
    ids=["not read", "down", "stale"],
)
def test_without_metrics_or_with_stale_ones_nothing_is_evicted(samples, said):
    state = cluster(4, 1)
    assert load_aware.gone(state, samples=samples, **CPU) == []
    assert load_aware.told(state, samples=samples, **CPU) == [f"nothing is evicted: {said}"]


def test_a_prometheus_that_was_not_asked_or_is_down():
    state = cluster(4, 1)
    assert load_aware.told(state, samples=Samples(AT), metrics=PROMETHEUS, **CPU) == [f"nothing is evicted: nobody has asked {SOURCE}"]
    down = Samples(AT, loads={SOURCE: Loads(AT, error="Prometheus does not answer")})
    assert load_aware.told(state, samples=down, metrics=PROMETHEUS, **CPU) == ["nothing is evicted: Prometheus does not answer"]


def test_number_of_nodes_selector_namespaces_and_fit():
    samples = server({"n1": 9_000, "n2": 1_000, "n3": 1_000}, 600)
    assert load_aware.gone(cluster(4, 1, 1), samples=samples, numberOfNodes=2, **CPU) == []
    assert load_aware.gone(cluster(4, 1), samples=samples, evictableNamespaces={"exclude": ["default"]}, **CPU) == []
    pool = given(
        *(node(n, cpu=10_000, labels={"pool": n}) for n in ("n1", "n2", "n3")), shape("s", cpu=100), *pods(4, "n1"), *pods(1, "n2")
    )
    assert load_aware.gone(pool, samples=samples, nodeSelector="pool in (n2, n3)", **CPU) == []
    assert len(load_aware.gone(pool, samples=samples, nodeSelector="pool in (n1, n3)", **CPU)) == 2
    full = given(NODES[0], node("n2", cpu=150), shape("s", cpu=100), *pods(4, "n1"), *pods(1, "n2"))
    said = load_aware(full, samples=server({"n1": 9_000, "n2": 10}, 600), nodeFit=True, evictor={"nodeFit": False}, **CPU)
    assert said.evictions == ()
    assert set(kept(said).values()) == {"NodeFit: no underutilized node would take it"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "thresholds: none"),
        ({"thresholds": {"cpu": 30}}, "targetThresholds: none"),
        ({"thresholds": {"cpu": 30}, "targetThresholds": {"memory": 80}}, "targetThresholds: memory beside thresholds of cpu"),
        ({"thresholds": {"cpu": 81}, "targetThresholds": {"cpu": 80}}, "thresholds.cpu: 81; allowed: up to targetThresholds.cpu, 80"),
        ({"thresholds": {"nvidia.com/gpu": 1}, "targetThresholds": {"nvidia.com/gpu": 2}}, "nobody measures it"),
        (CPU | {"metrics": {"type": "graphite"}}, "metrics.type: 'graphite'; allowed: prometheus, prometheus_adaptor, metrics_server"),
        (CPU | {"metrics": {"type": "prometheus", "address": "prometheus:9090"}}, "metrics.address: 'prometheus:9090'"),
        (CPU | {"metrics": {"address": "http://prometheus"}}, "metrics.address: 'http://prometheus'; allowed: only with type prometheus"),
        (CPU | {"metrics": {"type": "prometheus"}}, "metrics.address: nothing"),
        (CPU | {"duration": "0s"}, "duration: 0 s; allowed: 1s to 24h"),
        (CPU | {"duration": "500ms"}, "duration: 0.5 s; allowed: 1s to 24h"),
        (CPU | {"nodeSelector": "a in"}, "nodeSelector: "),
        (CPU | {"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "evictableNamespaces: has include and exclude"),
        (CPU | {"ignorePvcPods": True}, "ignorePvcPods: set; allowed: in the arguments of DefaultEvictor"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(args, said):
    with pytest.raises(PolicyError) as refused:
        policy(profile("LoadAware", args, point="balance"))
    assert said in str(refused.value)


def test_volcanos_own_policy_is_read_and_written_again():
    """As its README has it."""
    read = policy(
        profile(
            "LoadAware",
            {
                "evictableNamespaces": {"exclude": ["kube-system"]}, "metrics": {"address": None, "type": None}, "nodeFit": False,
                "targetThresholds": {"cpu": 80, "memory": 85.5}, "thresholds": {"cpu": 30, "memory": 30},
            },
            {"ignorePvcPods": True, "nodeFit": True, "priorityThreshold": {"value": 10_000}}, point="balance",
        )
    )  # fmt: skip
    assert read.measured
    assert read.wants_metrics
    assert read.load_sources == {}
    assert load(written(read)) == read


@pytest.mark.parametrize("plugin", ["LoadAware", "LowNodeUtilization"])
def test_nodes_that_a_plan_has_touched_are_left_alone_for_a_while(plugin):
    """Seed 000's coolDownTime: packing and spreading never fight."""
    samples = server({"n1": 9_500, "n2": 500, "n3": 500}, 600)
    evictor, args = {}, CPU | ({} if plugin == "LoadAware" else {"metricsUtilization": {"source": "KubernetesMetrics"}})
    what = policy(profile(plugin, args, evictor, point="balance"), **({} if plugin == "LoadAware" else {"metricsProviders": [{"source": "KubernetesMetrics"}]}))

    def told(cooldown, *moves):
        state = cluster(5, 1, 1)
        then(state, configured("migration", MigrationConfig(defragmentation=DefragmentationArgs(coolDownTime=cooldown))))
        then(state, plan("earlier", *moves), time=AT - 60_000)
        # Nothing has moved: what was measured is as true as before.
        then(state, *(e.MigrationFailed(one.migration, "HoldDeadline") for one in moves), time=AT - 60_000)
        outcome = evaluate(state, what, AT, samples)
        return len(outcome.evictions), [one.text for one in outcome.warnings], set(kept(outcome).values())

    off = move("m", "n1-0", "n1", "n3")
    assert told(0, off)[0] == 3
    assert told(60, off)[0] == 3, "it is over"
    gone, said, why = told(61, off)
    assert (gone, said) == (0, ["all nodes that pods would leave were touched by a plan within coolDownTime"])
    assert why == {"Cooldown: a plan has touched its node within coolDownTime"}
    both = [move(f"m{i}", f"{n}-0", n, "elsewhere") for i, n in enumerate(("n2", "n3"))]
    assert told(61, *both)[:2] == (0, ["all nodes that pods could go to were touched by a plan within coolDownTime"])


def settling(plugin, source=""):
    """Whether a pod may leave `full`, by what has become of a migration of another pod of it, and how long ago it ended."""
    shares = {"full": {"cpu": 9 * BILLION // 10, "memory": 0}, "idle": {"cpu": BILLION // 10, "memory": 0}}
    args, more, samples = CPU, {}, server({"full": 9_000, "idle": 1_000}, 0, **{f"full_{i}": used(600) for i in range(4)})
    if plugin == "LowNodeUtilization":
        args, more = CPU | {"metricsUtilization": {"source": "KubernetesMetrics"}}, {"metricsProviders": [{"source": "KubernetesMetrics"}]}
    if source == "query":
        args = {"thresholds": {"MetricResource": 30}, "targetThresholds": {"MetricResource": 80}}
        args["metricsUtilization"] = {"source": "Prometheus", "prometheus": {"query": "load"}}
        more = {"metricsProviders": [{"source": "Prometheus", "prometheus": {"url": "http://prometheus"}}]}
        samples = Samples(AT, prometheus={"load": NodeRatios(AT, {name: share["cpu"] for name, share in shares.items()})})
    elif source:
        args = CPU | {"metrics": PROMETHEUS}
        samples = Samples(AT, loads={SOURCE: Loads(AT, shares, {f"full-{i}": used(600) for i in range(4)})})
    what = policy(profile(plugin, args, {}, point="balance"), **more)

    def outcome(*events, ago=0):
        state = given(node("full", cpu=10_000), node("idle", cpu=10_000), shape("s", cpu=100), *pods(4, "full"), *pods(1, "idle"))
        moved = move("m", "full-0", "full", "idle")
        then(state, plan("earlier", moved), *events, time=AT - ago * 1000)
        return evaluate(state, what, AT, samples)

    return outcome


LATER = AT + HOUR
LANDED = (e.Holding("m", LATER), e.Held("m"), e.Evicting("m", LATER), e.Evicted("m", LATER), e.Landed("m", "full-3", "idle"))
ROLLED_BACK = e.MigrationFailed("m", "HoldDeadline")


@pytest.mark.parametrize(
    ("plugin", "source", "seconds"),
    [
        ("LoadAware", "", 60),
        ("LoadAware", "prometheus", 120),
        ("LowNodeUtilization", "", 60),
        ("LowNodeUtilization", "query", 60),
    ],
)
def test_a_node_is_left_alone_until_what_is_measured_shows_what_was_moved(plugin, source, seconds):
    """Else it gives away more with each pass until the average has come down."""
    outcome = settling(plugin, source)
    for held in (outcome(), outcome(*LANDED), outcome(*LANDED, ago=seconds - 1), outcome(ago=10 * seconds)):
        assert held.evictions == ()
        assert held.warnings[-1].text == "all nodes that pods would leave have moving pods, or had since they were measured"
        assert set(kept(held).values()) == {"Settling: pods are moving from or to its node, or have moved since that was measured"}
    assert outcome(*LANDED, ago=seconds).evictions, "it is measured by now"
    assert outcome(ROLLED_BACK).evictions, "nothing has moved"


def test_what_pods_ask_for_is_never_out_of_date():
    state = given(node("full", cpu=1_000), node("idle", cpu=1_000), shape("s", cpu=100), *pods(9, "full"), *pods(1, "idle"))
    then(state, plan("earlier", move("m", "full-0", "full", "idle")), *LANDED, time=AT)
    assert evaluate(state, policy(profile("LowNodeUtilization", CPU, {}, point="balance")), AT, None).evictions


def test_what_nobody_will_ask_for_is_not_in_the_command():
    state = cluster(2, 2)
    samples = server({"n1": 9_000, "n2": 1_000}, 600)
    what = policy(profile("LoadAware", CPU, point="balance"))
    assert set(relevant(state, what, samples).pods) == {"n1-0", "n1-1"}
    mean = policy(profile("LoadAware", CPU | {"useDeviationThresholds": True}, point="balance"))
    assert set(relevant(state, mean, samples).pods) == {"n1-0", "n1-1", "n2-0", "n2-1"}
    source = policy(profile("LoadAware", CPU | {"metrics": PROMETHEUS}, point="balance"))
    shares = {"n1": {"cpu": 9 * BILLION // 10, "memory": 0}, "n2": {"cpu": BILLION // 10, "memory": 0}}
    loads = Samples(AT, loads={SOURCE: Loads(AT, shares, {uid: used(1) for uid in ("n1-0", "n2-0", "gone")})})
    assert set(relevant(state, source, loads).loads[SOURCE].pods) == {"n1-0"}
    for policy_, all_of in ((what, samples), (source, loads)):
        assert evaluate(state, policy_, AT, relevant(state, policy_, all_of)).evictions == evaluate(state, policy_, AT, all_of).evictions
