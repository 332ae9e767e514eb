"""A DeschedulerPolicy is read as upstream reads it, and refused with path, value and what is allowed."""

import copy

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.domain.descheduling.policy import PolicyError, load, read, refused_upstream, written
from restow.domain.descheduling.selection import parsed
from restow.domain.selectors import selects

HEAD = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
LIFE = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}}


def document(*configs, plugins=None, **more):
    chosen = {"deschedule": {"enabled": ["PodLifeTime"]}} if plugins is None else plugins
    return {**HEAD, "profiles": [{"name": "p", "pluginConfig": [*configs] or [LIFE], "plugins": chosen}], **more}


def refusals(said, load=load):
    with pytest.raises(PolicyError) as refused:
        load(said)
    return refused.value.reasons


def evictor(**args):
    return document({"name": "DefaultEvictor", "args": args}, LIFE)


def test_the_evictor_is_always_on_and_first():
    policy = load(document())
    (profile,) = policy.profiles
    assert profile.plugins.enabled("filter") == profile.plugins.enabled("preEvictionFilter") == ("DefaultEvictor",)
    assert [config.name for config in profile.plugin_config] == ["DefaultEvictor", "PodLifeTime"]
    assert profile.evictor_args.priority_threshold.value == 2_000_000_000


@pytest.mark.parametrize("point", ["preEvictionFilter", "preevictionfilter"])
def test_extension_points_in_either_spelling(point):
    chosen = {"deschedule": {"enabled": ["PodLifeTime"]}, point: {"enabled": ["DefaultEvictor"], "disabled": []}}
    said = document({"name": "DefaultEvictor"}, LIFE, plugins=chosen)
    assert load(said).profiles[0].plugins.enabled("preEvictionFilter") == ("DefaultEvictor",)


def test_to_disable_the_evictor_changes_nothing_as_upstream_has_it():
    chosen = {"deschedule": {"enabled": ["PodLifeTime"], "disabled": ["*"]}, "filter": {"disabled": ["DefaultEvictor"]}}
    assert load(document(plugins=chosen)).profiles[0].plugins.enabled("filter") == ("DefaultEvictor",)


def test_null_is_nothing_and_arguments_may_say_their_kind():
    kind = {"apiVersion": "descheduler/v1alpha2", "kind": "PodLifeTimeArgs"}
    said = document({"name": "PodLifeTime", "args": {**LIFE["args"], **kind, "namespaces": None}}, nodeSelector=None)
    assert load(said) == load(document())


def test_what_was_read_can_be_written_and_read_again():
    said = document(
        {"name": "DefaultEvictor", "args": {"minPodAge": "1h30m", "nodeFit": True, "labelSelector": {"matchLabels": {"a": "b"}}}},
        {"name": "LowNodeUtilization", "args": {"thresholds": {"cpu": 20.5, "memory": 20}, "targetThresholds": {"cpu": 50, "memory": 50}}},
        plugins={"balance": {"enabled": ["LowNodeUtilization"]}},
        nodeSelector="pool in (a, b)",
        maxNoOfPodsToEvictPerNode=1,
        maxNoOfPodsToEvictPerNamespace=2,
        maxNoOfPodsToEvictTotal=0,
        gracePeriodSeconds=0,
        metricsProviders=[{"source": "KubernetesMetrics"}],
        evictionFailureEventNotification=True,
    )
    policy = load(said)
    assert load(written(policy)) == policy
    again = written(policy)
    assert again["profiles"][0]["pluginConfig"][0]["args"]["minPodAge"] == "1h30m0s"
    assert again["profiles"][0]["pluginConfig"][1]["args"]["thresholds"] == {"cpu": 20.5, "memory": 20}
    assert list(again)[:2] == ["apiVersion", "kind"]
    assert (again["maxNoOfPodsToEvictTotal"], again["gracePeriodSeconds"]) == (0, 0), "nothing is not the same as 0"


def test_what_is_on_by_default_is_written_as_upstream_writes_it():
    spread = "RemovePodsViolatingTopologySpreadConstraint"

    def args(**said):
        profile = load(document({"name": spread, "args": said}, plugins={"balance": {"enabled": [spread]}}))
        return written(profile)["profiles"][0]["pluginConfig"][1]["args"]

    assert args() == {"constraints": ["DoNotSchedule"], "topologyBalanceNodeFit": True}
    assert args(topologyBalanceNodeFit=False)["topologyBalanceNodeFit"] is False
    assert args(labelSelector={})["labelSelector"] == {}, "an empty selector is not the same as none"


def test_percentages_are_what_was_written():
    from fractions import Fraction

    said = document(
        {"name": "LowNodeUtilization", "args": {"thresholds": {"cpu": 33.3}, "targetThresholds": {"cpu": 66.6}}},
        plugins={"balance": {"enabled": ["LowNodeUtilization"]}},
    )
    assert load(said).profiles[0].plugin_config[-1].args.thresholds["cpu"] == Fraction(333, 10)


REFUSED = {
    "no object": ([1], "the policy: list; allowed: an object of kind DeschedulerPolicy"),
    "another version": ({**document(), "apiVersion": "descheduler/v1alpha1"}, "apiVersion: 'descheduler/v1alpha1'; allowed: descheduler/v1alpha2"),
    "another kind": ({**document(), "kind": "Policy"}, "kind: 'Policy'; allowed: DeschedulerPolicy"),
    "no version": ({"kind": "DeschedulerPolicy", "profiles": document()["profiles"]}, "apiVersion: ''; allowed: descheduler/v1alpha2"),
    "no kind": ({"apiVersion": "descheduler/v1alpha2", "profiles": document()["profiles"]}, "kind: ''; allowed: DeschedulerPolicy"),
    "no profiles": (HEAD, "profiles: none; allowed: at least one"),
    "an unknown field": (document(maxPods=1), "the policy: Object contains unknown field `maxPods`; allowed: apiVersion, kind, profiles"),
    "a number that is none": (document(maxNoOfPodsToEvictTotal="3"), "maxNoOfPodsToEvictTotal: Expected `int"),
    "a negative limit": (document(maxNoOfPodsToEvictPerNode=-1), "maxNoOfPodsToEvictPerNode: Expected `int` >= 0"),
    "a negative grace": (document(gracePeriodSeconds=-1), "gracePeriodSeconds: -1; allowed: 0 or more"),
    "a selector that is none": (document(nodeSelector="a b"), "nodeSelector: 'a b'; allowed: a label selector"),
    "an unknown plugin": (document({"name": "Nope"}), "profiles[0].pluginConfig[0].name: 'Nope'; allowed: DefaultEvictor"),
    "plugin at the wrong point": (
        document(plugins={"balance": {"enabled": ["PodLifeTime"]}}),
        "profiles[0].plugins.balance.enabled[0]: 'PodLifeTime'; allowed: Defragmentation, HighNodeUtilization",
    ),
    "a point that no plugin has": (
        document(plugins={"sort": {"enabled": ["PodLifeTime"]}}),
        "profiles[0].plugins.sort.enabled[0]: 'PodLifeTime'; allowed: no plugin has this extension point",
    ),
    "an unknown point": (document(plugins={"evict": {"enabled": []}}), "profiles[0].plugins: Object contains unknown field `evict`"),
    "a plugin without arguments' entry": (
        document({"name": "DefaultEvictor"}),
        "profiles[0].plugins.deschedule.enabled[0]: 'PodLifeTime' has no entry in pluginConfig",
    ),
    "enabled twice": (
        document(plugins={"deschedule": {"enabled": ["PodLifeTime", "PodLifeTime"]}}),
        "profiles[0].plugins.deschedule.enabled[1]: 'PodLifeTime' is there twice; allowed: once",
    ),
    "configured twice": (document(LIFE, LIFE), "profiles[0].pluginConfig[1].name: 'PodLifeTime' is there twice; allowed: once"),
    "a disabled plugin that is none": (
        document(plugins={"deschedule": {"enabled": ["PodLifeTime"], "disabled": ["Nope"]}}),
        "profiles[0].plugins.deschedule.disabled[0]: 'Nope'",
    ),
    "an unknown argument": (
        document({"name": "PodLifeTime", "args": {"maxAge": 1}}),
        "profiles[0].pluginConfig[0].args: Object contains unknown field `maxAge`; allowed: ",
    ),
    "namespaces that overlap": (
        document({"name": "PodLifeTime", "args": {**LIFE["args"], "namespaces": {"include": ["a"], "exclude": ["b"]}}}),
        "profiles[0].pluginConfig[0].args.namespaces: has include and exclude; allowed: one of them",
    ),
    "an operator that is none": (
        evictor(labelSelector={"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}),
        "args.labelSelector.matchExpressions[0].operator: 'Is'; allowed: In, NotIn, Exists, DoesNotExist",
    ),
    "In without values": (
        evictor(namespaceLabelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        "args.namespaceLabelSelector.matchExpressions[0].values: none; allowed: at least one with In",
    ),
    "Exists with values": (
        evictor(labelSelector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        "args.labelSelector.matchExpressions[0].values: b; allowed: none with Exists",
    ),
    "a key that no label has": (
        evictor(labelSelector={"matchLabels": {"a b": "c"}}),
        "args.labelSelector.matchLabels: 'a b'; allowed: the key of a label, such as app or example.com/app",
    ),
    "a domain that is none": (
        document({"name": "PodLifeTime", "args": {**LIFE["args"], "labelSelector": {"matchExpressions": [{"key": "A_/x", "operator": "Exists"}]}}}),
        "args.labelSelector.matchExpressions[0].key: 'A_/x'; allowed: the key of a label",
    ),
    "a value that no label has": (
        evictor(namespaceLabelSelector={"matchLabels": {"a": "-"}}),
        "args.namespaceLabelSelector.matchLabels.a: '-'; allowed: the value of a label",
    ),
    "a value that is too long": (
        evictor(labelSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c" * 64]}]}),
        "args.labelSelector.matchExpressions[0].values[1]: 'ccc",
    ),
    "an age that is none": (evictor(minPodAge="old"), "profiles[0].pluginConfig[0].args.minPodAge: 'old' is not a duration"),
    "an age without unit": (evictor(minPodAge=3600), "profiles[0].pluginConfig[0].args.minPodAge: allowed: a duration such as 50m or 1h30m"),
    "a negative age": (evictor(minPodAge="-1m"), "args.minPodAge: -60000"),
    "negative replicas": (evictor(minReplicas=-1), "profiles[0].pluginConfig[0].args.minReplicas: Expected `int` >= 0"),
    "two thresholds": (evictor(priorityThreshold={"value": 1, "name": "high"}), "args.priorityThreshold: has value and name; allowed: one of them"),
    "a threshold too high": (evictor(priorityThreshold={"value": 2_000_000_001}), "args.priorityThreshold.value: 2000000001; allowed: up to 2000000000"),
    "a policy of no eviction": (evictor(noEvictionPolicy="Never"), "args.noEvictionPolicy: 'Never'; allowed: Preferred, Mandatory"),
    "an unknown protection": (evictor(podProtections={"extraEnabled": ["Nice"]}), "args.podProtections.extraEnabled[0]: 'Nice'; allowed: PodsWithPVC"),
    "a default one as extra": (evictor(podProtections={"extraEnabled": ["DaemonSetPods"]}), "args.podProtections.extraEnabled[0]: 'DaemonSetPods'"),
    "a protection twice": (
        evictor(podProtections={"defaultDisabled": ["DaemonSetPods", "DaemonSetPods"]}),
        "args.podProtections.defaultDisabled[1]: 'DaemonSetPods' is there twice",
    ),
    "both ways to protect": (
        evictor(evictDaemonSetPods=True, podProtections={"extraEnabled": ["PodsWithPVC"]}),
        "args.podProtections: is given beside the deprecated evictDaemonSetPods; allowed: one of the two",
    ),
    "the evictor's selector": (evictor(nodeSelector="!!"), "args.nodeSelector: '!!'; allowed: a label selector"),
    "an unknown source": (document(metricsProviders=[{"source": "Graphite"}]), "metricsProviders[0].source: 'Graphite'; allowed: KubernetesMetrics, Prometheus"),
    "a source twice": (
        document(metricsProviders=[{"source": "KubernetesMetrics"}] * 2),
        "metricsProviders[1].source: KubernetesMetrics is there twice; allowed: once",
    ),
    "a password in a url": (
        document(metricsProviders=[{"source": "Prometheus", "prometheus": {"url": "https://me:s3cret@p:9090"}}]),
        "metricsProviders[0].prometheus.url: 'https://me:***@p:9090': the policy is logged, and so a password in it would be",
    ),
    "a token in a url": (
        document(metricsProviders=[{"source": "Prometheus", "prometheus": {"url": "https://p:9090/?token=s3cret"}}]),
        "metricsProviders[0].prometheus.url: 'https://p:9090/?token=***': the policy is logged",
    ),
    "a password in what is no url": (
        document(metricsProviders=[{"source": "Prometheus", "prometheus": {"url": "ftp://me:s3cret@p:9090"}}]),
        "metricsProviders[0].prometheus.url: 'ftp://me:***@p:9090'; allowed",
    ),
    "a Prometheus without url": (document(metricsProviders=[{"source": "Prometheus", "prometheus": {}}]), "metricsProviders[0].prometheus.url: nothing"),
    "a Prometheus that is none": (document(metricsProviders=[{"source": "Prometheus"}]), "metricsProviders[0].prometheus: nothing"),
    "a protected storage class without a name": (
        evictor(podProtections={"extraEnabled": ["PodsWithPVC"], "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": ""}]}}}),
        "podProtections.config.PodsWithPVC.protectedStorageClasses[0].name: nothing; allowed: a storage class's name",
    ),
    "a token of nothing": (
        document(metricsProviders=[{"source": "Prometheus", "prometheus": {"url": "https://p", "authToken": {}}}]),
        "metricsProviders[0].prometheus.authToken.secretReference: nothing; allowed: namespace and name of a secret",
    ),
}


def measured(source, **more):
    said = {"source": source} | ({"prometheus": {"query": "q"}} if source == "Prometheus" else {})
    name = "MetricResource" if source == "Prometheus" else "cpu"
    args = {"thresholds": {name: 1}, "targetThresholds": {name: 2}, "metricsUtilization": said}
    return document({"name": "LowNodeUtilization", "args": args}, plugins={"balance": {"enabled": ["LowNodeUtilization"]}}, **more)


PROVIDED = {
    "KubernetesMetrics": {"source": "KubernetesMetrics"},
    "Prometheus": {"source": "Prometheus", "prometheus": {"url": "https://p"}},
}


@pytest.mark.parametrize("source", PROVIDED)
def test_metrics_that_a_plugin_goes_by_must_be_provided(source):
    """Upstream cannot build the plugin then."""
    (other,) = (one for name, one in PROVIDED.items() if name != source)
    for more in ({}, {"metricsProviders": [other]}):
        (reason,) = refusals(measured(source, **more))
        said = f"profiles[0], LowNodeUtilization: metricsUtilization: {source}, which metricsProviders do not have"
        assert reason.startswith(said)
    assert load(measured(source, metricsProviders=[other, PROVIDED[source]])).provides(source)


def test_the_deprecated_collector_provides_metrics_too():
    assert load(measured("KubernetesMetrics", metricsCollector={"enabled": True})).wants_metrics


@pytest.mark.parametrize("plugin", ["HighNodeUtilization", "LowNodeUtilization", "LoadAware"])
def test_namespaces_to_include_are_what_upstreams_validation_refuses(plugin):
    """Its plugin knows how to do it: one pass does it with a warning, and the service, which runs day after day, refuses it."""
    args = {"thresholds": {"cpu": 1}, "evictableNamespaces": {"include": ["a", "b"]}}
    if plugin != "HighNodeUtilization":
        args["targetThresholds"] = {"cpu": 2}
    policy = load(document({"name": plugin, "args": args}, plugins={"balance": {"enabled": [plugin]}}))
    assert refused_upstream(policy) == [f"profiles[0], {plugin}: evictableNamespaces.include: a, b; allowed: exclude alone, as upstream has it"]
    assert refused_upstream(load(document())) == []


@pytest.mark.parametrize(("said", "refusal"), REFUSED.values(), ids=REFUSED)
def test_bad_policies(said, refusal):
    (reason,) = refusals(said)
    assert refusal in reason


def test_all_that_is_wrong_is_said_at_once():
    said = evictor(noEvictionPolicy="Never") | {"gracePeriodSeconds": -1, "nodeSelector": "a b"}
    assert len(refusals(said)) == 3


def test_two_profiles_of_one_name():
    said = document()
    said["profiles"] *= 2
    assert "profiles[1].name: 'p' is there twice" in refusals(said)[0]


def test_upstream_reads_what_it_then_cannot_run():
    """pol-13: decoding knows nothing of extension points; `load` does."""
    said = document({"name": "DefaultEvictor"})
    assert read(said).profiles[0].args("PodLifeTime") is not None
    assert refusals(said)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("a=b", {"a": "b"}, {"a": "c"}),
        ("a==b,c!=d", {"a": "b"}, {"a": "b", "c": "d"}),
        ("!gpu", {}, {"gpu": ""}),
        ("example.com/pool", {"example.com/pool": ""}, {}),
        ("zone in (a, b), tier notin (x)", {"zone": "b"}, {"zone": "b", "tier": "x"}),
        ("a=", {"a": ""}, {"a": "b"}),
        ("", {}, None),
    ],
)
def test_label_selectors_as_text(text, yes, no):
    assert selects(parsed(text), yes)
    assert no is None or not selects(parsed(text), no)


@pytest.mark.parametrize("text", ["a b", "=b", "a=b,", "in (a)", "a in", "a in ()extra", "a=b c=d", "a in (b c)", ",", "a>1", "!", "é=1"])
def test_text_that_is_no_label_selector(text):
    with pytest.raises(ValueError, match="allowed: a label selector"):
        parsed(text)


FULL = document(
    {"name": "DefaultEvictor", "args": {"nodeFit": True, "minPodAge": "1m", "podProtections": {"extraEnabled": ["PodsWithPVC"]}}},
    {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1, "namespaces": {"include": ["a"]}, "labelSelector": {"matchLabels": {"a": "b"}}}},
    {"name": "LowNodeUtilization", "args": {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 2}}},
    plugins={"deschedule": {"enabled": ["PodLifeTime"]}, "balance": {"enabled": ["LowNodeUtilization"]}},
    metricsProviders=[{"source": "Prometheus", "prometheus": {"url": "https://p", "authToken": {"secretReference": {"namespace": "n", "name": "s"}}}}],
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


@settings(max_examples=examples(300))
@given(st.data())
def test_whatever_is_written_is_read_or_refused(data):
    said = copy.deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([p for p in places(said) if p]))
        holder = said
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = data.draw(JUNK)
    try:
        policy = load(said)
    except PolicyError:
        return
    assert load(written(policy)) == policy


@pytest.mark.parametrize("percent", [float("inf"), float("nan"), True, "20", None, 10**400])
def test_percentages_that_are_none(percent):
    args = {"thresholds": {"cpu": percent}, "targetThresholds": {"cpu": 50}}
    refusals(document({"name": "LowNodeUtilization", "args": args}, plugins={"balance": {"enabled": ["LowNodeUtilization"]}}))


def test_a_document_without_end_is_refused():
    loop: list = []
    loop.append(loop)
    assert "nested too deeply" in refusals({**HEAD, "profiles": loop})[0]
    wide: list = [[]]
    for _ in range(20):
        wide = [wide, wide]
    assert "allowed: up to 100000" in refusals({**HEAD, "profiles": wide})[0]


def test_a_policy_of_an_older_version_is_told_what_became_of_it():
    """And not that its first field is unknown."""
    with pytest.raises(PolicyError, match=r"v1alpha1'; allowed: descheduler/v1alpha2, where each of the `strategies` is a plugin of a profile"):
        read({"apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy", "strategies": {"RemoveDuplicates": {"enabled": True}}})
