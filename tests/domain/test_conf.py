"""volcano-scheduler.conf (DESIGN 6, RULES 000-5, 002-5): what Volcano publishes loads as it is; what makes no sense is refused
with path, value and what is allowed."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.domain import config
from restow.domain import session_config as conf
from restow.domain.session.actions.args import ARGS as ACTIONS
from restow.domain.session.args import MAX_FACTOR, ArgsError, thousandths
from restow.domain.session.plugins import PLUGINS
from restow.domain.session.plugins.reserve.args import ReserveLabel

KINDS = (*ACTIONS.values(), *(module.Args for module in PLUGINS.values()))

PUBLISHED = {
    "the installer's default": """
        actions: "enqueue, reserve, allocate, backfill"
        tiers:
        - plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
        - plugins:
          - name: overcommit
          - {name: drf, enablePreemptable: false}
          - name: predicates
          - name: proportion
          - name: nodeorder
          - name: binpack
          - name: reservation
        """,
    "the default of the binary": """
        actions: "enqueue, allocate, backfill"
        tiers:
        - plugins: [{name: priority}, {name: gang}, {name: conformance}]
        - plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
        """,
    "the default of its end-to-end tests": """
        actions: "enqueue, allocate, backfill, reclaim, preempt"
        tiers:
        - plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}, {name: sla}]
        - plugins:
          - name: overcommit
          - {name: drf, enablePreemptable: false}
          - name: predicates
          - name: proportion
          - name: nodeorder
          - name: binpack
        """,
    "capacity instead of proportion": """
        actions: "enqueue, allocate, backfill, reclaim"
        tiers:
        - plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
        - plugins: [{name: drf, enablePreemptable: false}, {name: predicates}, {name: capacity}, {name: nodeorder}, {name: binpack}]
        """,
    "a hierarchy of queues": """
        actions: "enqueue, allocate, backfill"
        tiers:
        - plugins: [{name: priority}, {name: gang}, {name: conformance}]
        - plugins: [{name: predicates}, {name: capacity, enableHierarchy: true}, {name: nodeorder}]
        """,
    "weights of scores": """
        actions: "reclaim, allocate, backfill, preempt"
        tiers:
        - plugins: [{name: priority}, {name: gang}, {name: conformance}]
        - plugins:
          - name: drf
          - name: predicates
          - name: proportion
          - name: nodeorder
            arguments:
              leastrequested.weight: 1
              mostrequested.weight: 0
              nodeaffinity.weight: 2
              podaffinity.weight: 2
              balancedresource.weight: 1
              tainttoleration.weight: 3
              imagelocality.weight: 1
              podtopologyspread.weight: 2
        """,
    "binpack over more resources": """
        actions: "enqueue, reclaim, allocate, backfill, preempt"
        tiers:
        - plugins:
          - name: binpack
            arguments:
              binpack.weight: 10
              binpack.cpu: 5
              binpack.memory: 1
              binpack.resources: nvidia.com/gpu, example.com/foo
              binpack.resources.nvidia.com/gpu: 2
              binpack.resources.example.com/foo: 3
        """,
    "switches of predicates": """
        actions: "reclaim, allocate, backfill, preempt"
        tiers:
        - plugins: [{name: priority}, {name: gang}, {name: conformance}]
        - plugins:
          - name: drf
          - name: predicates
            arguments:
              predicate.NodeAffinityEnable: true
              predicate.NodePortsEnable: true
              predicate.TaintTolerationEnable: true
              predicate.PodAffinityEnable: true
              predicate.NodeVolumeLimitsEnable: true
              predicate.VolumeZoneEnable: true
              predicate.PodTopologySpreadEnable: true
              predicate.GPUSharingEnable: true
              predicate.GPUNumberEnable: true
              predicate.CacheEnable: true
              predicate.ProportionalEnable: true
              predicate.resources: nvidia.com/gpu
              predicate.resources.nvidia.com/gpu.cpu: 4
              predicate.resources.nvidia.com/gpu.memory: 8
          - name: proportion
          - name: nodeorder
        """,
    "how long a job may wait": """
        actions: "enqueue, allocate, backfill"
        tiers:
        - plugins:
          - name: priority
          - name: gang
          - name: sla
            arguments:
              sla-waiting-time: 1h2m3s
        """,
    "overcommit per resource": """
        actions: "enqueue, allocate, backfill"
        tiers:
        - plugins:
          - name: overcommit
            arguments:
              overcommit-factor.cpu: 1.2
              overcommit-factor.memory: 1.0
              overcommit-factor: 1.2
        """,
    "arguments of actions": """
        actions: "enqueue, allocate, backfill"
        configurations:
        - name: enqueue
          arguments:
            overcommit-factor: 1.5
        - name: allocate
          arguments:
            predicateErrorCacheEnable: false
        - name: preempt
          arguments:
            enableTopologyAwarePreemption: true
            topologyAwarePreemptWorkerNum: 32
        tiers:
        - plugins: [{name: priority}, {name: gang}, {name: conformance}]
        - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
        """,
    "the reserve plugin (seed 001)": """
        tiers:
        - plugins:
           - name: reserve
             arguments:
               reservelabels:
               - nodeSelector:
                   business_type: ebook
                 resources:
                   cpu: "32"
                   memory: 64Gi
                 startReserveAgo: 2h
                 podNumToReserve: 10
                 cron: "0 3 - 4 * * *"
        """,
    "actions as objects (seed 002)": """
        actions:
        - name: enqueue
        - name: allocate
        - name: reserve
          arguments:
            starvingJobTimeThreshold: 172800
            reservedNodePercent: 50
        tiers:
        - plugins: [{name: gang}, {name: predicates}, {name: nodeorder, enableResourceNodeOrder: true}]
        """,
}


def read(text: str) -> config.SessionConfig:
    return conf.read_conf(yaml.safe_load(text))


def plugin(read: config.SessionConfig, name: str) -> config.PluginConfig:
    return next(one for tier in read.tiers for one in tier if one.name == name)


def args(read: config.SessionConfig, name: str):
    return PLUGINS[name].Args.read(plugin(read, name).arguments)


@pytest.mark.parametrize("case", PUBLISHED)
def test_what_volcano_publishes_loads_unchanged_and_survives_the_log(case):
    said = yaml.safe_load(PUBLISHED[case])
    got = conf.read_conf(said)
    text = config.text_of(got)
    assert config.read(config.SessionConfig, text) == got
    if isinstance(said.get("actions"), str):
        assert [action.name for action in got.actions] == said["actions"].replace(",", " ").split()
    for tier, said_tier in zip(got.tiers, said["tiers"], strict=True):
        names = [plugin["name"] for plugin in said_tier["plugins"]]
        assert [plugin.name for plugin in tier][: len(names)] == names


@pytest.mark.parametrize("case", PUBLISHED)
def test_what_was_logged_is_a_file_that_means_the_same(case):
    got = read(PUBLISHED[case])
    again = {
        "schedulerNames": list(got.scheduler_names),
        "actions": [{"name": action.name, "arguments": action.arguments} for action in got.actions],
        "tiers": [{"plugins": [{"name": p.name, **p.enabled, "arguments": p.arguments} for p in tier]} for tier in got.tiers],
    }
    assert conf.read_conf(msgspec.json.decode(msgspec.json.encode(again))) == got


def test_arguments_are_typed_and_defaults_are_written_out():
    got = read(PUBLISHED["binpack over more resources"])
    assert args(got, "binpack").weights == {"cpu": 5, "memory": 1, "nvidia.com/gpu": 2, "example.com/foo": 3}
    got = read(PUBLISHED["the default of the binary"])
    assert plugin(got, "nodeorder").arguments["tainttoleration.weight"] == 3
    assert args(got, "overcommit").milli("cpu") == 1200
    assert args(got, "predicates").node_ports is True


def test_factors_are_thousandths_per_resource():
    got = args(read(PUBLISHED["overcommit per resource"]), "overcommit")
    assert [got.milli(name) for name in ("cpu", "memory", "nvidia.com/gpu")] == [1200, 1000, 1200]
    rates = args(read(PUBLISHED["switches of predicates"]), "predicates").resources
    assert {name: (rate.cpu, rate.memory) for name, rate in rates.items()} == {"nvidia.com/gpu": ("4", "8")}
    assert args(read(PUBLISHED["how long a job may wait"]), "sla").waiting == 3_723_000


def test_a_factor_is_a_number_up_to_a_bound():
    most = thousandths("f", MAX_FACTOR)
    assert most == MAX_FACTOR * 1000
    for value in (f"{MAX_FACTOR}.001", MAX_FACTOR + 1, "1.0001", "0.999", True):
        with pytest.raises(ArgsError, match=rf"allowed: a number from 1 to {MAX_FACTOR}, of at most three decimals"):
            thousandths("f", value, least=1000)


def test_numbers_and_booleans_may_be_quoted():
    got = read("tiers: [{plugins: [{name: nodeorder, arguments: {leastrequested.weight: '0'}}, {name: predicates, arguments: {predicate.NodePortsEnable: 'false'}}]}]")
    assert args(got, "nodeorder").least_requested == 0
    assert args(got, "predicates").node_ports is False


def test_without_a_file_it_is_volcanos_default_with_holds():
    got = conf.read_conf(None)
    assert [action.name for action in got.actions] == ["enqueue", "reserve", "allocate", "backfill"]
    assert [[p.name for p in tier] for tier in got.tiers] == [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "proportion", "nodeorder", "reservation"],
    ]
    assert [p.name for tier in got.tiers for p in tier if not p.on("enablePreemptable")] == ["gang", "drf"]
    assert got.scheduler_names == ("restow",)


def test_only_who_says_nothing_about_tiers_gets_the_default_ones():
    assert conf.read_conf({"actions": "allocate"}).tiers == conf.read_conf(None).tiers
    assert conf.read_conf({"tiers": []}).tiers == ()


def test_every_switch_of_volcano_is_known_in_each_of_its_spellings():
    for switch in config.SWITCHES:
        for spelling in (switch, switch.replace("enable", "enabled"), switch.replace("enable", "Enabled")):
            got = conf.read_conf({"tiers": [{"plugins": [{"name": "capacity", spelling: False}]}]})
            assert not plugin(got, "capacity").on(switch)
            got = conf.read_conf({"tiers": [{"plugins": [{"name": "capacity", spelling: True}]}]})
            assert plugin(got, "capacity").on(switch)


def test_a_switch_at_its_default_and_one_that_is_left_out_are_the_same():
    said = {"name": "capacity", "enableJobOrder": True, "enableHierarchy": False}
    assert conf.read_conf({"tiers": [{"plugins": [said]}]}) == conf.read_conf({"tiers": [{"plugins": [{"name": "capacity"}]}]})


def test_reserve_hands_over_before_allocate_and_serves_starving_jobs_after_it():
    """RULES 000-5."""
    got = conf.read_conf(
        {
            "actions": "enqueue, reserve, allocate, backfill, reserve",
            "configurations": [{"name": "reserve", "arguments": {"starvingJobTimeThreshold": 60}}],
        }
    )
    assert [conf.hands_over(got.actions, i) for i in range(5)] == [False, True, False, False, False]
    assert got.actions[1].arguments == {}
    starving = ACTIONS["reserve"].read(got.actions[4].arguments)
    assert (starving.starving_job_time_threshold, starving.reserved_node_percent) == (60, 100)


def test_overcommit_of_the_action_enqueue_is_the_plugins():
    """Volcano 1.0's place for it."""
    said = {"configurations": [{"name": "enqueue", "arguments": {"overcommit-factor": 1.5}}]}
    assert args(conf.read_conf(said), "overcommit").milli("cpu") == 1500
    bare = conf.read_conf(said | {"tiers": [{"plugins": [{"name": "gang"}]}]})
    assert [p.name for p in bare.tiers[0]] == ["gang", "overcommit"]
    own = {"tiers": [{"plugins": [{"name": "overcommit", "arguments": {"overcommit-factor": 1.1}}]}]}
    with pytest.raises(conf.ConfError, match=r"\$\.configurations\[0\]\.arguments\.overcommit-factor: 1.5; allowed: in the plugin"):
        conf.read_conf(said | own)


def one(name: str, **arguments) -> dict:
    return {"tiers": [{"plugins": [{"name": name, "arguments": arguments}]}]}


def label(**change) -> dict:
    said = {"nodeSelector": {"a": "b"}, "resources": {"cpu": "1"}, "cron": "0 3-4 * * *"} | change
    return one("reserve", reservelabels=[{key: value for key, value in said.items() if value is not None}])


P = r"\$\.tiers\[0\]\.plugins\[0\]"
L = P + r"\.arguments\.reservelabels\[0\]"
REFUSED = [
    ([], r"\$: \[\]; allowed: a mapping"),
    ({"score": "binpack"}, r"\$\.score: unknown; allowed: schedulerNames, actions, tiers, configurations"),
    ({"schedulerNames": []}, r"\$\.schedulerNames: \[\]; allowed: one name"),
    ({"schedulerNames": ["a", "a"]}, r"\$\.schedulerNames\[1\]: 'a' again"),
    ({"schedulerNames": "a"}, r"\$\.schedulerNames: 'a'; allowed: a list"),
    ({"schedulerNames": [" "]}, r"\$\.schedulerNames\[0\]: ' '; allowed"),
    ({"actions": ""}, r"\$\.actions: ''; allowed: one action at least of enqueue, reserve"),
    ({"actions": "enqueue,,allocate"}, r"\$\.actions: ''; allowed: enqueue"),
    ({"actions": "enqueue, elect, allocate"}, r"\$\.actions: 'elect'; allowed: enqueue, reserve, allocate, backfill, preempt, reclaim"),
    ({"actions": ["allocate", {"name": 3}]}, r"\$\.actions\[1\]\.name: 3; allowed: a name"),
    ({"actions": [{"name": "allocate", "argument": {}}]}, r"\$\.actions\[0\]\.argument: unknown; allowed: name, arguments"),
    ({"actions": "allocate, allocate"}, r"\$\.actions: allocate, allocate; allowed: allocate once"),
    ({"actions": "enqueue, reserve"}, r"allowed: reserve together with allocate"),
    ({"actions": "reserve, reserve, allocate"}, r"allowed: reserve once before allocate .* and once after"),
    ({"actions": "allocate, reserve, reserve"}, r"allowed: reserve once before allocate .* and once after"),
    ({"actions": [{"name": "reserve", "arguments": {"reservedNodePercent": 5}}, "allocate"]}, r"\$\.actions\[0\]\.arguments: .*allowed: none for reserve before"),
    ({"actions": ["allocate", {"name": "reserve", "arguments": {"reservedNodePercent": 0}}]}, r"\$\.actions\[1\]\.arguments\.reservedNodePercent: 0; allowed: 1 to 100"),
    ({"actions": ["allocate", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": -1}}]}, r"starvingJobTimeThreshold: -1; allowed: 0 to"),
    ({"actions": ["allocate", {"name": "reserve", "arguments": {"reservedNodePercent": "half"}}]}, r"\$\.actions\[1\]\.arguments\.reservedNodePercent: Expected `int`, got `str`"),
    ({"configurations": [{"name": "reserve", "arguments": {"reservedNodePercent": 5}}]}, r"\$\.configurations\[0\]\.arguments: .*allowed: with reserve after allocate"),
    ({"configurations": [{"name": "elect"}]}, r"\$\.configurations\[0\]\.name: 'elect'; allowed: enqueue"),
    ({"configurations": [{"name": "allocate"}, {"name": "allocate"}]}, r"\$\.configurations\[1\]\.name: 'allocate' again"),
    ({"configurations": [{"name": "reclaim", "arguments": {"a": 1}}]}, r"\$\.configurations\[0\]\.arguments\.a: unknown; allowed: predicateErrorCacheEnable"),
    (
        {"actions": [{"name": "allocate", "arguments": {"predicateErrorCacheEnable": True}}], "configurations": [{"name": "allocate"}]},
        r"\$\.actions\[0\]\.arguments: set here and in \$\.configurations\[0\]; allowed: one of them",
    ),
    ({"tiers": {}}, r"\$\.tiers: \{\}; allowed: a list"),
    ({"tiers": [{"plugin": []}]}, r"\$\.tiers\[0\]\.plugin: unknown; allowed: plugins"),
    ({"tiers": [{"plugins": ["gang"]}]}, P + r": 'gang'; allowed: a mapping"),
    ({"tiers": [{"plugins": [{"name": "numaaware"}]}]}, P + r"\.name: 'numaaware'; allowed: binpack, capacity, conformance, drf"),
    ({"tiers": [{"plugins": [{"enableJobOrder": True}]}]}, P + r"\.name: None; allowed: a name"),
    ({"tiers": [{"plugins": [{"name": "drf", "enableJobsOrder": True}]}]}, P + r"\.enableJobsOrder: unknown; allowed: name, arguments, enableJobOrder"),
    ({"tiers": [{"plugins": [{"name": "drf", "enableJobOrder": "no"}]}]}, P + r"\.enableJobOrder: 'no'; allowed: true, false"),
    ({"tiers": [{"plugins": [{"name": "drf", "enableVictim": True, "enabledVictim": True}]}]}, P + r"\.enabledVictim: says enableVictim again"),
    ({"tiers": [{"plugins": [{"name": "drf"}, {"name": "drf"}]}]}, r"plugins\[1\]\.name: 'drf', as in " + P),
    ({"tiers": [{"plugins": [{"name": "drf"}]}, {"plugins": [{"name": "drf"}]}]}, r"\$\.tiers\[1\]\.plugins\[0\]\.name: 'drf', as in " + P),
    ({"tiers": [{"plugins": [{"name": "capacity"}]}, {"plugins": [{"name": "proportion"}]}]}, P + r"\.name: 'capacity'; allowed: one of proportion and capacity"),
    ({"tiers": [{"plugins": [{"name": "drf", "enableHierarchy": True}, {"name": "proportion"}]}]}, P + r"\.enableHierarchy: true; allowed: false \(for queues below"),
    (one("gang", weight=1), P + r"\.arguments\.weight: unknown; allowed: no arguments"),
    ({"tiers": [{"plugins": [{"name": "gang", "arguments": [1]}]}]}, P + r"\.arguments: \[1\]; allowed: a mapping"),
    ({"tiers": [{"plugins": [{"name": "gang", "arguments": {1: 2}}]}]}, P + r"\.arguments: 1; allowed: names"),
    (one("nodeorder", **{"leastrequested.weight": -1}), P + r"\.arguments\.leastrequested\.weight: -1; allowed: 0 to 1000000"),
    (one("nodeorder", **{"leastrequested.weight": 10**9}), r"leastrequested\.weight: 1000000000; allowed"),
    (one("nodeorder", **{"leastrequested.weight": 1.5}), r"arguments\.leastrequested\.weight: Expected `int`, got `float`"),
    (one("nodeorder", **{"leastrequested.weight": True}), r"leastrequested\.weight: Expected `int`, got `bool`"),
    (one("nodeorder", **{"least.weight": 1}), P + r"\.arguments\.least\.weight: unknown; allowed: balancedresource\.weight, .*tainttoleration\.weight"),
    (one("binpack", **{"binpack.resources.nvidia.com/gpu": 2}), r"binpack\.resources\.nvidia\.com/gpu: 2; allowed: for resources that binpack\.resources names"),
    (one("binpack", **{"binpack.resources": "a, a"}), r"binpack\.resources: a, a; allowed: each resource once"),
    (one("binpack", **{"binpack.resources": "cpu"}), r"binpack\.resources: cpu; allowed: resources other than cpu and memory"),
    (one("binpack", **{"binpack.resources": "x", "binpack.resources.x": -3}), r"binpack\.resources\.x: -3; allowed: 0 to"),
    (one("binpack", **{"binpack.resources": 5}), r"binpack\.resources: 5; allowed: names of resources"),
    (one("overcommit", **{"overcommit-factor": 0.5}), r"overcommit-factor: 0.5; allowed: a number from 1 to 1000000"),
    (one("overcommit", **{"overcommit-factor.cpu": "lots"}), r"overcommit-factor\.cpu: 'lots'; allowed: a number"),
    (one("overcommit", **{"overcommit-factor": 1.00001}), r"overcommit-factor: 1.00001; allowed: .*three decimals"),
    (one("sla", **{"sla-waiting-time": "-1h"}), r"sla-waiting-time: '-1h'; allowed: a duration above 0"),
    (one("sla", **{"sla-waiting-time": 5}), r"sla-waiting-time: 5; allowed: a duration"),
    (one("sla", **{"sla-waiting-time": "soon"}), r"sla-waiting-time: 'soon'; allowed: a duration"),
    (one("predicates", **{"predicate.DynamicResourceAllocationEnable": True}), r"DynamicResourceAllocationEnable: true; allowed: false"),
    (one("predicates", **{"predicate.NodePortEnable": True}), r"predicate\.NodePortEnable: unknown; allowed: .*predicate\.NodePortsEnable"),
    (one("predicates", **{"predicate.resources.gpu.cpu": 1}), r"predicate\.resources\.gpu\.cpu: unknown; allowed: none without predicate\.resources"),
    (one("predicates", **{"predicate.resources": "g", "predicate.resources.g.cpu": -1}), r"predicate\.resources\.g\.cpu: -1; allowed: a number from 0"),
    (one("reserve", reservelabels={}), P + r"\.arguments\.reservelabels: \{\}; allowed: a list"),
    (one("reserve", reservelabels=[3]), L + r": 3; allowed: a mapping"),
    (label(cron=None), L + r": Object missing required field `cron`"),
    (label(cron="0 3 * * *"), L + r"\.cron: '0 3 \* \* \*' has a firing with no other within an hour; allowed: two"),
    (label(cron="0 3-4 * *"), L + r"\.cron: '0 3-4 \* \*' has 4 fields; allowed: 5"),
    (label(cron="0 25 * * *"), L + r"\.cron, hour '25': '25'; allowed: 0 to 23"),
    (label(cron="0 4-3 * * *"), L + r"\.cron, hour '4-3': range '4-3'; allowed: a range that goes up"),
    (label(cron="0 3-4 31 2 *"), L + r"\.cron: '0 3-4 31 2 \*' never fires"),
    (label(cron="0 * * * *"), L + r"\.cron: '0 \* \* \* \*' makes a window of more than 31 days"),
    (label(timeZone="Mars/Olympus"), L + r"\.timeZone: 'Mars/Olympus' is unknown; allowed: an IANA name"),
    (label(resources={"cpu": "-1"}), L + r"\.resources\['cpu'\]: -1; allowed: 0 to 45035"),
    (label(resources={"cpu": "-1", "memory": "1Gi"}), L + r"\.resources\['cpu'\]: -1; allowed: 0 to 45035"),
    (label(resources={"cpu": "much"}), L + r"\.resources\['cpu'\]: 'much' is not a quantity"),
    (label(resources={}), L + r"\.resources: \{\}; allowed: one resource at least"),
    (label(resources={"cpu": 0}), L + r"\.resources: .*allowed: one resource at least, above 0"),
    (label(nodeSelector={}), L + r"\.nodeSelector: \{\}; allowed: one label"),
    (label(nodeSelector={"gpu": True}), L + r"\.nodeSelector\[\.\.\.\]: Expected `str`, got `bool`"),
    (label(startReserveAgo="-2h"), L + r"\.startReserveAgo: -2h0m0s; allowed: 0s to 168h0m0s"),
    (label(startReserveAgo="30d"), L + r"\.startReserveAgo: '30d' is not a duration"),
    (label(podNumToReserve=-1), L + r"\.podNumToReserve: -1; allowed: 0 or more"),
    (label(podsToReserve=1), L + r"\.podsToReserve: unknown; allowed: "),
]


@pytest.mark.parametrize(("said", "why"), REFUSED, ids=[why[-60:] for _, why in REFUSED])
def test_what_makes_no_sense_is_refused_with_path_value_and_what_is_allowed(said, why):
    with pytest.raises(conf.ConfError, match=why):
        conf.read_conf(said)


def test_arguments_of_every_action_and_plugin_survive_the_log():
    for kind in KINDS:
        default = kind.read({})
        assert default.check() == ""
        assert kind.read(msgspec.json.decode(msgspec.json.encode(default))) == default
        with pytest.raises(ArgsError):
            kind.read({"no such": 1})


def test_the_configuration_of_older_logs_is_read_as_what_it_means_now():
    old = '{"schedulerNames":["restow","volcano"],"score":"%s","weights":{"cpu":1,"memory":1,"restow.dev/gpu-milli":2}}'
    got = config.read(config.SessionConfig, old % "leastAllocated")
    assert got == config.SessionConfig(scheduler_names=("restow", "volcano"))
    got = config.read(config.SessionConfig, old % "binpack")
    assert args(got, "binpack").weights == {"cpu": 1, "memory": 1, "restow.dev/gpu-milli": 2}
    assert (args(got, "nodeorder").least_requested, args(got, "nodeorder").taint_toleration) == (0, 3)
    with pytest.raises(msgspec.ValidationError, match="scores"):
        config.read(config.SessionConfig, '{"scores":"binpack"}')


CONFIGURATION = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_configurations_in_the_documentation_are_accepted_and_the_first_is_the_default():
    examples = [text for text in re.findall(r"```yaml\n(.*?)```", CONFIGURATION.read_text(), re.DOTALL) if "tiers:" in text]
    assert len(examples) == 2
    default, windows = (read(text) for text in examples)
    assert default == conf.read_conf(None)
    assert plugin(windows, "reserve")


def test_the_documentation_names_every_action_plugin_argument_and_switch():
    text = CONFIGURATION.read_text()
    named = [*ACTIONS, *PLUGINS, *config.SWITCHES, *ReserveLabel.__struct_fields__]
    for kind in KINDS:
        named += [name for name in kind.__struct_encode_fields__ if name != "overcommit-factors"]
    assert [name for name in named if f"`{name}`" not in text] == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(["", "a", "1", "x.weight", "0 3-4 * * *", "cpu, x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "cpu", "name", 1, None]), inner, max_size=2),
    max_leaves=4,
)
NAMES = sorted({name for kind in KINDS for name in kind.__struct_encode_fields__})
DYNAMIC = ["overcommit-factor.cpu", "binpack.resources.x", "predicate.resources.x.cpu", "predicate.resources.x", "binpack.resources."]
ARGUMENTS = st.dictionaries(st.sampled_from([*NAMES, *DYNAMIC, "other"]), ANYTHING, max_size=3)
LABELS = st.lists(st.dictionaries(st.sampled_from([*ReserveLabel.__struct_fields__, "other"]), ANYTHING, max_size=6), max_size=2)
ENTRY = st.fixed_dictionaries(
    {"name": st.sampled_from([*PLUGINS, *ACTIONS]) | ANYTHING},
    optional={"arguments": ARGUMENTS | LABELS.map(lambda labels: {"reservelabels": labels}) | ANYTHING, "enableJobOrder": ANYTHING},
)
TIER = st.fixed_dictionaries({"plugins": st.lists(ENTRY, max_size=2) | ANYTHING})
CONF = st.fixed_dictionaries(
    {},
    optional={
        "actions": st.lists(ENTRY | st.sampled_from([*ACTIONS]), max_size=3) | ANYTHING,
        "configurations": st.lists(ENTRY, max_size=2) | ANYTHING,
        "tiers": st.lists(TIER | ANYTHING, max_size=2) | ANYTHING,
        "schedulerNames": ANYTHING,
    },
)


@settings(max_examples=examples(200))
@for_all(CONF | ANYTHING)
def test_whatever_a_file_says_is_read_or_refused_with_a_path(said):
    try:
        got = conf.read_conf(said)
    except conf.ConfError as error:
        why = str(error)
    else:
        assert config.read(config.SessionConfig, config.text_of(got)) == got
        return
    assert why.startswith("$")


@settings(max_examples=examples(300))
@for_all(st.data(), st.sampled_from([kind for kind in KINDS if kind.__struct_fields__]))
def test_whatever_arguments_say_is_read_or_refused(data, kind):
    names = [*kind.__struct_encode_fields__, *(name for name in DYNAMIC if name.startswith(kind.__struct_encode_fields__))]
    said = data.draw(st.dictionaries(st.sampled_from(names), ANYTHING, max_size=3) | LABELS.map(lambda labels: {"reservelabels": labels}))
    try:
        got = kind.read(said)
    except ArgsError:
        return
    assert isinstance(got.check(), str)
