"""Settings and configuration: refused at start with name, value and what is allowed; a bad change keeps the last good one."""

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from structlog.testing import capture_logs

from restow.domain import config
from restow.domain.migration import check_in
from restow.reservation_cache import service as reservation_cache
from restow.runtime import config_source, settings
from restow.runtime import policy_file as policy
from restow.runtime import scheduler_conf as session_conf
from restow.runtime.config_source import BadConfig, ConfigSource, parse, plain

from .rig import idle, memory, running, until

SESSION = session_conf.read

GOOD = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: predicates
  - name: binpack
schedulerNames: [restow, volcano]
"""


def names(rig) -> list[str]:
    return [action.name for action in rig.state.session_config.actions]


@asynccontextmanager
async def followed(log, folder):
    """A session that leads and uses what its file says, one action."""
    file = folder / "volcano-scheduler.conf"
    file.write_text("actions: allocate\n")
    async with running(log) as rig:
        source = ConfigSource(str(file), SESSION, rig.commander)
        source.load()
        await rig.lead()
        await until(lambda: names(rig) == ["allocate"], rig.follower)
        yield rig, source, file


async def test_a_changed_file_is_logged_and_used_and_a_bad_one_keeps_the_last_good_one(tmp_path):
    async with followed(memory(), tmp_path) as (rig, source, file):
        file.write_text("actions: [allocate, numb]\n")
        source.reload()
        await idle()
        assert names(rig) == ["allocate"]
        assert source.problem == f"{file}: $.actions[1]: 'numb'; allowed: enqueue, reserve, allocate, backfill, preempt, reclaim"
        file.write_text(GOOD)
        source.reload()
        await until(lambda: names(rig) == ["allocate", "backfill"], rig.follower)
        assert rig.state.session_config.scheduler_names == ("restow", "volcano")
        assert source.problem == ""


async def test_a_file_that_could_not_be_read_is_read_once_it_can_be(tmp_path, monkeypatch):
    """Who may read it changes no time of the file. (Whoever runs this test may be root, who may read everything.)"""
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text("actions: allocate\n")
    may, whole = False, Path.read_bytes

    def reading(path):
        if path == file and not may:
            raise PermissionError(13, "Permission denied")
        return whole(path)

    async with running(memory()) as rig:
        source = ConfigSource(str(file), SESSION, rig.commander)
        source.load()
        await rig.lead()
        monkeypatch.setattr(Path, "read_bytes", reading)
        file.write_text(GOOD)
        watching = asyncio.create_task(source.watch(0.001))
        with capture_logs() as said:
            await asyncio.sleep(0.05)
        assert source.problem == f"{file}: cannot be read: Permission denied"
        assert len([one for one in said if one["log_level"] == "error"]) == 1
        may = True
        await until(lambda: names(rig) == ["allocate", "backfill"], rig.follower)
        assert source.problem == ""
        watching.cancel()


async def test_half_of_a_file_that_is_being_written_is_not_used(tmp_path):
    async with followed(memory(), tmp_path) as (rig, source, file):
        watching, used = asyncio.create_task(source.watch(0.1)), []
        with file.open("w") as half:
            # An empty file is a configuration, too: the default one.
            for line in GOOD.splitlines(keepends=True):
                await asyncio.sleep(0.06)
                used.append(names(rig))
                half.write(line)
                half.flush()
        await until(lambda: names(rig) == ["allocate", "backfill"], rig.follower)
        assert used == [["allocate"]] * len(used)
        watching.cancel()


async def test_a_file_that_changes_at_every_look_is_read_nevertheless(tmp_path):
    """Somebody's generator writes it each tenth of a second; it was never read again."""
    async with followed(memory(), tmp_path) as (rig, source, file):
        begun = asyncio.get_running_loop().time()

        def changing(path):
            """Each tenth of a second."""
            return (int(10 * (asyncio.get_running_loop().time() - begun)), 1, 1)

        file.write_text(GOOD)
        with patch.object(config_source, "stamp", changing):
            watching = asyncio.create_task(source.watch(0.11))
            await until(lambda: names(rig) == ["allocate", "backfill"], rig.follower)
            watching.cancel()


async def test_what_is_written_otherwise_but_means_the_same_is_not_logged_again(tmp_path):
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(GOOD)
    async with running(memory()) as rig:
        source = ConfigSource(str(file), SESSION, rig.commander)
        source.load()
        logged = rig.commander.configuration
        written_out = {
            "actions": ["allocate", {"name": "backfill", "arguments": {}}],
            "tiers": [{"plugins": [{"name": "predicates", "enablePredicate": True}, {"name": "binpack", "arguments": {"binpack.weight": "1"}}]}],
            "schedulerNames": ["restow", "volcano"],
        }
        file.write_text(json.dumps(written_out))
        source.reload()
        assert source.problem == ""
        assert rig.commander.configuration == logged


async def test_without_a_file_the_default_is_logged_once_and_the_logs_own_stays():
    log = memory()
    other = SESSION({"actions": "allocate"})
    async with running(log) as rig:
        ConfigSource("", SESSION, rig.commander, other).load()
        await rig.lead()
        await until(lambda: "session" in rig.state.configured, rig.follower)
    async with running(log, holder="two") as rig:
        await rig.lead()
        ConfigSource("", SESSION, rig.commander, SESSION(None)).load()
        rig.commander.wake()
        await idle()
        assert names(rig) == ["allocate"]


def test_the_configmaps_manifest_is_read_as_well_as_its_file():
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "volcano-scheduler-configmap"}}
    data = {"volcano-scheduler.conf": GOOD}
    assert SESSION(manifest | {"data": data}) == SESSION(parse(GOOD))
    for bad, said in [
        ({"other.conf": GOOD}, r"\$\.data: other.conf; allowed: a ConfigMap with the key volcano-scheduler.conf"),
        ({"volcano-scheduler.conf": "actions: ["}, r"\$\.data\['volcano-scheduler.conf'\]: not YAML"),
        ({"volcano-scheduler.conf": "actions: allot"}, r"\$\.data\['volcano-scheduler.conf'\]: \$\.actions: 'allot'; allowed: enqueue"),
        (None, r"\$\.data: None; allowed"),
    ]:
        with pytest.raises(BadConfig, match=said):
            SESSION(manifest | {"data": bad})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("actions: 7\n", ["$.actions: 7", "allowed: a list"]),
        ("action: allocate\n", ["$.action: unknown", "allowed: schedulerNames, actions, tiers, configurations"]),
        ("tiers:\n- plugins:\n  - name: drf\n    name: gang\n", ["line 4", "'name' is there twice"]),
        ("- a\n", ["$", "['a']"]),
        ("a: [\n", ["not YAML"]),
        ("actions: allocate\n---\nactions: allocate\n", ["not YAML", "single document"]),
    ],
)
def test_a_bad_configuration_says_file_path_value_and_what_is_allowed(tmp_path, text, said):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(BadConfig) as refusal:
        ConfigSource(str(file), SESSION, None).load()
    for part in (str(file), *said):
        assert part in str(refusal.value)


def test_merged_keys_may_be_said_again_but_no_key_twice():
    assert parse("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")["b"] == {"x": 3, "y": 2}
    with pytest.raises(BadConfig, match="line 2: key 'x' is there twice"):
        parse("a: &a {x: 1}\nb: {<<: *a, x: 2, x: 3}\n")


def test_what_is_merged_before_it_is_read_itself_has_no_key_twice():
    assert parse("a: &a {x: 1}\nouter: {b: &b {<<: *a, x: 2}}\nc: {<<: *b, y: 3}\n")["c"] == {"x": 2, "y": 3}
    assert parse("a: &a {<<: *a, x: 1}\n") == {"a": {"x": 1}}


def test_merges_of_merges_are_refused_before_they_fill_the_memory():
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 10)]
    started = time.monotonic()
    with pytest.raises(BadConfig, match="more than 100000 keys are merged"):
        parse("\n".join(lines))
    assert time.monotonic() - started < 5


def test_durations_may_be_written_as_in_kubernetes():
    read = plain(config.GcConfig, durations=("retention",))
    assert read({"retention": "90s"}).retention == 90_000
    with pytest.raises(BadConfig, match=r"\$\.retention.*soon"):
        read({"retention": "soon"})


POLICY = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "p",
            "pluginConfig": [
                {
                    "name": "Defragmentation",
                    "args": {
                        "ResourceType": "cpu",
                        "protectionThresholds": {"cpu": 90},
                        "defragmentThresholds": {"cpu": 70},
                        "lowThresholds": {"cpu": 30},
                        "coolDownTime": 60,
                    },
                }
            ],
            "plugins": {"balance": {"enabled": ["Defragmentation"]}},
        }
    ],
    "restow": {"interval": "5m", "holdDeadline": "10s", "concurrent": 3},
}


def test_a_descheduler_policy_in_upstreams_form_is_read():
    read = policy.read(POLICY)
    assert read.defragmentation.resourceType == "cpu"
    assert read.defragmentation.coolDownTime == 60
    assert (read.interval, read.hold_deadline, read.concurrent) == (300_000, 10_000, 3)


@pytest.mark.parametrize("name", ["interval", "holdDeadline", "evictDeadline", "landDeadline", "abortDeadline", "budgetPatience"])
@pytest.mark.parametrize("said", [2**63 - 1, 10**30, "876601h", -1, "-1s"])
def test_a_deadline_that_no_time_can_be_added_to_is_refused(name, said):
    """Now and near to 2^63 milliseconds are no time any more: the event would be void for every reader, and made again for ever."""
    python = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
    with pytest.raises(BadConfig, match=rf"\$: {python}: -?\d+; allowed: [01] to 3155760000000"):
        policy.read(POLICY | {"restow": {name: said}})
    assert policy.read(POLICY | {"restow": {name: "876600h"}})


@pytest.mark.parametrize("said", [0, -1, "876601h", 10**30])
def test_a_default_ttl_that_is_none_or_leads_out_of_the_calendar_is_refused(said):
    with pytest.raises(BadConfig, match=r"\$\.defaultTtl: .*; allowed: 1ms to 876600h0m0s"):
        reservation_cache.read({"defaultTtl": said})
    assert reservation_cache.read({"defaultTtl": "1h"}).default_ttl == 3_600_000


def upstream(plugin="PodLifeTime", point="deschedule", args=None, name="u", evictor=None):
    args = {"maxPodLifeTimeSeconds": 60} if args is None and plugin == "PodLifeTime" else args or {}
    configs = [{"name": plugin, "args": args}, *([{"name": "DefaultEvictor", "args": evictor}] if evictor is not None else [])]
    return {"name": name, "pluginConfig": configs, "plugins": {point: {"enabled": [plugin]}}}


OURS = POLICY["profiles"][0]


def test_an_unknown_key_of_restow_is_refused_with_the_keys_that_a_policy_may_have():
    with pytest.raises(BadConfig) as refused:
        policy.read(POLICY | {"restow": {"besides": ["default-scheduler"]}})
    said, allowed = str(refused.value).split("; allowed: ")
    assert said == "$.restow.besides: unknown"
    assert {"beside", "interval", "maxMoves"} <= set(allowed.split(", "))
    assert not set(policy.NOT_HERE) & set(allowed.split(", "))


def test_a_policy_with_defragmentation_alone_brings_its_filters_and_limits():
    evictor = {"name": "DefaultEvictor", "args": {"minReplicas": 2}}
    limits = {"nodeSelector": "pool=a", "maxNoOfPodsToEvictPerNode": 1, "maxNoOfPodsToEvictPerNamespace": 2, "maxNoOfPodsToEvictTotal": 0}
    read = policy.read(POLICY | {"profiles": [OURS | {"pluginConfig": [*OURS["pluginConfig"], evictor]}]} | limits)
    assert (read.profile, read.defragment_at, read.grace, read.max_moves) == ("p", 0, None, 1)
    assert {key: read.policy[key] for key in limits} == limits
    assert read.policy["profiles"][0]["pluginConfig"][0]["args"]["minReplicas"] == 2
    assert config.read(config.MigrationConfig, config.text_of(read)) == read


def test_a_whole_policy_is_in_the_configuration_with_all_its_defaults_and_without_defragmentation():
    read = policy.read(POLICY | {"profiles": [upstream(evictor={"minReplicas": 2}), OURS], "gracePeriodSeconds": 7, "maxNoOfPodsToEvictTotal": 5})
    assert read.defragmentation.resourceType == "cpu"
    assert (read.profile, read.max_moves, read.grace) == ("p", 5, 7)
    first, second = read.policy["profiles"]
    assert (first["name"], first["plugins"]["deschedule"], second["name"]) == ("u", {"enabled": ["PodLifeTime"]}, "p")
    assert "Defragmentation" not in str(read.policy)
    assert config.read(config.MigrationConfig, config.text_of(read)) == read


@pytest.mark.parametrize("said", ["true", "false"])
def test_a_log_that_speaks_of_swaps_is_read_and_a_policy_is_not(said):
    read = policy.read(POLICY)
    old = config.text_of(read).replace('"wholeNodes":', f'"swaps":{said},"wholeNodes":')
    assert "swaps" in old
    assert config.read(config.MigrationConfig, old) == read
    with pytest.raises(msgspec.ValidationError, match="unknown field `retries`"):
        config.read(config.MigrationConfig, old.replace('"swaps":', '"retries":'))
    args = OURS["pluginConfig"][0]["args"] | {"swaps": said == "true"}
    with pytest.raises(BadConfig, match="swaps"):
        policy.read(POLICY | {"profiles": [OURS | {"pluginConfig": [{"name": "Defragmentation", "args": args}]}]})


CAPACITY = {"planner": "optimizing", "objective": "capacity", "capacity": {"cpu": "4"}}
ROOM = {"planner": "optimizing", "objective": "room", "room": {"cpu": "4"}}


def with_args(args: dict) -> dict:
    return POLICY | {"profiles": [OURS | {"pluginConfig": [{"name": "Defragmentation", "args": args}]}]}


def test_a_policy_that_says_room_means_capacity_and_its_author_is_told_the_new_word():
    with capture_logs() as logged:
        old = policy.read(with_args(ROOM))
    assert [line["event"] for line in logged] == ["Defragmentation: room is called capacity now; objective room is called capacity now"]
    with capture_logs() as logged:
        assert policy.read(with_args(CAPACITY)) == old
    assert logged == []
    with pytest.raises(BadConfig, match="has room and capacity; allowed: capacity, which is the same"):
        policy.read(with_args(ROOM | CAPACITY))


def test_a_log_that_says_room_is_read_as_capacity():
    read = policy.read(with_args(CAPACITY))
    old = config.text_of(read).replace('"objective":"capacity"', '"objective":"room"').replace('"capacity":{', '"room":{')
    assert '"room":{"cpu":"4"}' in old
    assert config.read(config.MigrationConfig, old) == read


def test_where_defragmentation_stands_among_the_balance_plugins_is_kept():
    balance = upstream("RemoveDuplicates", "balance", name="p")
    mixed = OURS | {"pluginConfig": [*OURS["pluginConfig"], *balance["pluginConfig"]]}
    for order, at in ((["Defragmentation", "RemoveDuplicates"], 0), (["RemoveDuplicates", "Defragmentation"], 1)):
        read = policy.read(POLICY | {"profiles": [mixed | {"plugins": {"balance": {"enabled": order}}}]})
        assert (read.profile, read.defragment_at) == ("p", at)
        assert read.policy["profiles"][0]["plugins"]["balance"] == {"enabled": ["RemoveDuplicates"]}


def test_without_defragmentation_everything_is_as_upstream_has_it():
    limits = {"nodeSelector": "pool=a", "maxNoOfPodsToEvictPerNode": 1, "maxNoOfPodsToEvictPerNamespace": 2, "maxNoOfPodsToEvictTotal": 0}
    read = policy.read(POLICY | {"profiles": [upstream(evictor={"minReplicas": 2})]} | limits)
    assert read.defragmentation is None
    assert {key: read.policy[key] for key in limits} == limits


@pytest.mark.parametrize(
    ("profiles", "more", "said"),
    [
        ([upstream("Foo")], {}, r"\$\.profiles\[0\]\.pluginConfig\[0\]\.name: 'Foo'; allowed: DefaultEvictor, Defragmentation, High"),
        ([upstream("RemoveDuplicates", "deschedule")], {}, r"plugins\.deschedule\.enabled\[0\]: 'RemoveDuplicates'; allowed: Pod"),
        ([OURS | {"plugins": {"deschedule": {"enabled": ["Defragmentation"]}}}], {}, r"deschedule\.enabled\[0\]: 'Defragmentation'; allowed: "),
        ([OURS, OURS | {"name": "q"}], {}, r"profiles\[1\]: enables Defragmentation again"),
        ([upstream(args={"states": ["Nowhere"]})], {}, r"pluginConfig\[0\]\.args\.states"),
        (
            [OURS | {"pluginConfig": [*OURS["pluginConfig"], {"name": "PodLifeTime", "args": {"states": ["Nowhere"]}}]}],
            {},
            r"\$\.profiles\[0\]\.pluginConfig\[1\]\.args\.states",
        ),
        (
            [OURS | {"plugins": {"balance": {"enabled": ["Defragmentation", "RemoveDuplicates"]}}}],
            {},
            r"\$\.profiles\[0\]\.plugins\.balance\.enabled\[1\]: 'RemoveDuplicates' has no entry in pluginConfig",
        ),
        ([OURS | {"plugins": {"balance": {"enabled": ["Defragmentation"] * 2}}}], {}, r"balance\.enabled\[1\]: 'Defragmentation' is there twice"),
        ([OURS | {"pluginConfig": OURS["pluginConfig"] * 2}], {}, r"pluginConfig\[1\]: 'Defragmentation' is there twice"),
        ([OURS], {"nodeSelector": "a b"}, r"\$\.nodeSelector: 'a b'; allowed: a label selector"),
        ([OURS], {"maxNoOfPodsToEvictPerNode": -3}, r"\$\.maxNoOfPodsToEvictPerNode: .*>= 0"),
        (
            [OURS | {"pluginConfig": [*OURS["pluginConfig"], {"name": "DefaultEvictor", "args": {"minReplica": 2}}]}],
            {},
            r"\$\.profiles\[0\]\.pluginConfig\[1\]\.args: .*`minReplica`; allowed: .*minReplicas",
        ),
        (
            [upstream("HighNodeUtilization", "balance", {"thresholds": {"cpu": 20}, "evictableNamespaces": {"include": ["a"]}})],
            {},
            r"\$\.profiles\[0\], HighNodeUtilization: evictableNamespaces\.include: a; allowed: exclude alone",
        ),
        ([upstream(), upstream()], {}, r"profiles\[1\]\.name: 'u' is there twice"),
        (["u"], {}, r"profiles"),
        ({"name": "u"}, {}, r"profiles"),
        ([OURS | {"plugins": ["balance"]}], {}, r"plugins"),
        ([OURS | {"pluginConfig": {"name": "x"}}], {}, r"pluginConfig"),
        ([upstream()], {"gracePeriodSeconds": -1}, r"\$\.gracePeriodSeconds: -1"),
        ([upstream()], {"restow": {"policy": {}}}, r"\$\.restow\.policy: set; allowed: profiles\[\]"),
    ],
)
def test_what_the_service_would_not_follow_is_refused(profiles, more, said):
    with pytest.raises(BadConfig, match=said):
        policy.read(POLICY | {"profiles": profiles} | more)


def test_a_plugin_that_no_profile_enables_is_off():
    assert policy.read(POLICY | {"profiles": [POLICY["profiles"][0] | {"plugins": {}}]}).defragmentation is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apiVersion": "descheduler/v1"}, r"\$\.apiVersion: 'descheduler/v1'; allowed: descheduler/v1alpha2"),
        ({"profile": []}, r"\$\.profile: unknown; allowed: .*profiles"),
        ({"profiles": [{"plugins": {"balance": {"enabled": ["LowNodeUtilization"]}}}]}, r"balance\.enabled\[0\].*LowNodeUtilization.*no entry in pluginConfig"),
        ({"profiles": [{"pluginConfig": [{"name": "Defragmentation", "args": {"lowThresholds": {"cpu": 400}}}]}]}, r"lowThresholds.*"),
        ({"restow": {"intervals": "5m"}}, r"\$\.restow.*intervals.*allowed: .*interval"),
        ({"restow": {"interval": "often"}}, r"\$\.restow\.interval.*often"),
    ],
)
def test_a_bad_policy_is_refused_with_its_path(change, said):
    with pytest.raises(BadConfig, match=said):
        policy.read(POLICY | change)


def test_settings_come_from_flags_over_environment_and_never_show_the_password():
    read = settings.read(
        "cluster_watcher", ["--cluster", "east"],
        {"RESTOW_CLUSTER": "west", "RESTOW_NATS_PASSWORD": "hunter2", "RESTOW_HTTP": "127.0.0.1:0", "RESTOW_DRAIN": "2.5"},
    )
    assert (read.cluster, read.nats_password, read.listen, read.drain) == ("east", "hunter2", ("127.0.0.1", 0), 2.5)
    assert "hunter2" not in str(read.shown())


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("RESTOW_CLUSTER", "East!", "lower-case"),
        ("RESTOW_NATS_URL", "localhost", "nats://host:port"),
        ("RESTOW_HTTP", "8080", "host:port"),
        ("RESTOW_LOG_LEVEL", "loud", "debug, info"),
        ("RESTOW_LEASE", "maybe", "on, off"),
        ("RESTOW_READ_ONLY", "on", "off"),
        ("RESTOW_READ_ONLY", "maybe", "off"),
        ("RESTOW_LEASE_DURATION", "0", "1 to 99"),
        ("RESTOW_LEASE_DURATION", "2.5", "1 to 99"),
        ("RESTOW_KUBE", "/no/such/file", "kubeconfig"),
        ("RESTOW_CONFIG", "/no/such/file", "exists"),
        ("RESTOW_DRAIN", "soon", "seconds"),
        ("RESTOW_PLACEHOLDER_IMAGE", "two words", "the name of an image"),
        ("RESTOW_DRAIN", "nan", "0 to 86400"),
        ("RESTOW_DRAIN", "inf", "0 to 86400"),
        ("RESTOW_DRAIN", "-3", "0 to 86400"),
        ("RESTOW_NATS_URL", "nats://x:99999", "port of 1 to 65535"),
        ("RESTOW_NATS_URL", "nats://x:abc", "port of 1 to 65535"),
        ("RESTOW_NATS_URL", "nats://x:0", "port of 1 to 65535"),
        ("RESTOW_NATS_URL", "nats://[::1", "nats://host:port"),
        ("RESTOW_NATS_URL", "nats://", "nats://host:port"),
        ("RESTOW_NATS_URL", "nats://a:4222,", "several separated by commas"),
        ("RESTOW_NATS_URL", "http://a:4222", "nats://host:port"),
        ("RESTOW_NATS_REPLICAS", "2", "1, 3, 5"),
        ("RESTOW_NATS_CA", "/no/such/file", "exists"),
        ("RESTOW_NATS_CERTIFICATE", "/no/such/file", "exists"),
    ],
)
def test_a_bad_setting_is_refused_with_name_value_and_what_is_allowed(name, value, allowed):
    with pytest.raises(settings.BadSetting) as refusal:
        settings.read("cluster_watcher", [], {name: value})
    for part in (name, value, allowed):
        assert part in str(refusal.value)


def test_a_certificate_without_its_key_is_refused():
    for name, other in (("CERTIFICATE", "KEY"), ("KEY", "CERTIFICATE")):
        with pytest.raises(settings.BadSetting, match=f"RESTOW_NATS_{name} names a file and RESTOW_NATS_{other} none; give both, or neither"):
            settings.read("cluster_watcher", [], {f"RESTOW_NATS_{name}": __file__})


def test_a_seed_or_key_where_its_path_belongs_is_not_shown():
    for name, value in (("CREDENTIALS", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"), ("KEY", "-----BEGIN PRIVATE KEY-----MIIE")):
        with pytest.raises(settings.BadSetting) as refusal:
            settings.read("cluster_watcher", [], {f"RESTOW_NATS_{name}": value})
        assert value not in str(refusal.value)
        assert "the path of a file that exists" in str(refusal.value)


def test_the_copies_of_the_log_are_a_number_and_nothing_said_is_any():
    assert settings.read("cluster_watcher", [], {"RESTOW_NATS_REPLICAS": "3"}).nats_replicas == 3
    assert settings.read("cluster_watcher", [], {"RESTOW_NATS_REPLICAS": ""}).nats_replicas == 0


def test_a_seed_in_a_file_and_a_password_are_two_ways_of_which_one_is_meant(tmp_path):
    seed = tmp_path / "seed"
    seed.write_text("SUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n")
    given = {"RESTOW_NATS_CREDENTIALS": str(seed), "RESTOW_NATS_USER": "cli"}
    assert settings.read("cluster_watcher", [], given).nats_files.credentials == str(seed)
    with pytest.raises(settings.BadSetting, match="nothing beside RESTOW_NATS_PASSWORD"):
        settings.read("cluster_watcher", [], given | {"RESTOW_NATS_PASSWORD": "hunter2"})


@pytest.mark.parametrize("name", ["RESTOW_KUBE", "RESTOW_CONFIG", "RESTOW_NATS_CA", "RESTOW_NATS_CREDENTIALS"])
@pytest.mark.parametrize("value", ["a" * 300, "users:\n- name: a\n  user:\n    token: s3cret\n" + "0" * 300, "a\0b"])
def test_a_files_content_where_its_path_belongs_is_refused_and_not_shown(name, value):
    with pytest.raises(settings.BadSetting) as refusal:
        settings.check({name.removeprefix("RESTOW_").lower(): value})
    said = str(refusal.value)
    assert said.startswith(f"{name} is ")
    assert "allowed: " in said
    assert "s3cret" not in said
    assert len(said) < 400


@pytest.mark.parametrize("url", ["nats://a", "nats://u:p%40@a:4222", "tls://a:1,nats://[::1]:4222", "wss://a.b.c:443/path"])
def test_an_address_of_a_broker_is_taken(url):
    assert settings.read("cluster_watcher", [], {"RESTOW_NATS_URL": url}).nats_url == url


def test_a_mistyped_address_does_not_show_its_password():
    with pytest.raises(settings.BadSetting) as refusal:
        settings.read("cluster_watcher", [], {"RESTOW_NATS_URL": "nats://me:hunter2@a:99999"})
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [("nats://me:hunter2@a", "you", "x"), ("nats://hunter2@a", "you", "x"), ("nats://me:hunter2@a", "me", "x"), ("nats://a,nats://me:hunter2@b", "you", "")],
)
def test_an_address_and_the_settings_beside_it_do_not_name_two_users(url, user, password):
    """Whichever of them won, somebody would have meant the other."""
    given = {"RESTOW_NATS_URL": url, "RESTOW_NATS_USER": user, "RESTOW_NATS_PASSWORD": password}
    with pytest.raises(settings.BadSetting, match="RESTOW_NATS_USER") as refusal:
        settings.read("cluster_watcher", [], given)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(("url", "password"), [("nats://a", "x"), ("nats://me:p%40@a", "p@"), ("nats://me:x@a", "")])
def test_an_address_and_the_settings_beside_it_may_name_the_same_user(url, password):
    given = {"RESTOW_NATS_URL": url, "RESTOW_NATS_USER": "me", "RESTOW_NATS_PASSWORD": password}
    assert settings.read("cluster_watcher", [], given).nats_user == "me"


WRONG = {
    "a day that there is not": "retention: 2026-02-30",
    "an hour that there is not": "a: 2026-01-01T25:00:00Z",
    "a zone that there is not": "a: 2026-01-01T00:00:00+99:99",
    "a hexadecimal number without digits": "a: 0x_",
    "a binary number without digits": "a: 0b_",
    "a number that is said to be one": "a: !!int abc",
    "a fraction that is said to be one": "a: !!float abc",
    "a truth value that is said to be one": "a: !!bool x",
    "a time that is said to be one": "a: !!timestamp x",
    "a number of 5 000 digits": "a: " + "9" * 5_000,
    "5 000 brackets": "[" * 5_000,
    "200 brackets": "[" * 200 + "]" * 200,
    "half of a surrogate pair": 'a: "\\uD800"',
    "half of a surrogate pair as a key": '"\\uD800": a',
    "a list within itself": "a: &a [*a]",
    "a mapping within itself": "&a {b: *a}",
    "aliases of aliases": "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)),
}


@pytest.mark.parametrize("case", WRONG)
async def test_whatever_stands_in_a_file_the_last_good_configuration_stays(case, tmp_path):
    """And at the start it is refused, so that the service ends with 2."""
    file = tmp_path / "policy.yaml"
    file.write_text("actions: allocate\n")
    async with running(memory()) as rig:
        source = ConfigSource(str(file), SESSION, rig.commander)
        source.load()
        await rig.lead()
        file.write_text(WRONG[case])
        source.reload()
        assert source.problem.startswith(f"{file}: ")
        assert "allowed: " in source.problem
        assert len(source.problem) < 400
        source.problem.encode()
        await idle()
        assert names(rig) == ["allocate"]
        with pytest.raises(BadConfig, match="allowed: "):
            ConfigSource(str(file), SESSION, rig.commander).load()


async def test_a_configuration_that_the_log_cannot_hold_is_refused_and_the_last_good_one_stays(tmp_path):
    """It stands in the command and in its event: it is never offered to the log again and again."""
    log = memory()
    async with followed(log, tmp_path) as (rig, source, file):
        log.max_body = 20_000
        file.write_text(f"actions: allocate\nschedulerNames: [restow, {', '.join(f's{i}' for i in range(2_000))}]\n")
        source.reload()
        await idle()
        assert "it takes a commit of" in source.problem
        assert "allowed: up to 20000" in source.problem
        assert rig.state.session_config.scheduler_names != ()
        with pytest.raises(BadConfig, match="allowed: up to 20000"):
            ConfigSource(str(file), SESSION, rig.commander).load()


async def test_an_alias_means_what_it_repeats(tmp_path):
    assert parse("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2026-02-28}")["c"]["x"] == 1


async def test_a_scheduler_beside_ours_is_another_one(tmp_path):
    """Which names are ours the session's configuration says; without one it is `restow`."""
    file = tmp_path / "policy.yaml"
    document = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nrestow: {{beside: [{}]}}\n"
    async with running(memory()) as rig:
        source = ConfigSource(str(file), policy.read, rig.commander, fits=check_in)
        file.write_text(document.format("default-scheduler"))
        source.load()
        file.write_text(document.format("default-scheduler, restow"))
        source.reload()
        why = "beside: 'restow' is Restow's own scheduler, whose pods move without a placeholder; allowed: names of other schedulers"
        assert source.problem == f"{file}: {why}"
        with pytest.raises(BadConfig, match=re.escape(why)):
            ConfigSource(str(file), policy.read, rig.commander, fits=check_in).load()


def test_the_archive_is_in_a_folder_or_in_a_bucket_each_cluster_for_itself():
    assert settings.check({}).archive_of("main") is None
    assert settings.check({"data": "/data"}).archive_of("main") == "/data/archive/main"
    assert settings.check({"data": "/data", "archive": "s3://bucket/backups/"}).archive_of("main") == "s3://bucket/backups/main"
    assert settings.check({"archive": "s3://bucket"}).archive_of("main") == "s3://bucket/main"


@pytest.mark.parametrize("address", ["/var/lib/archive", "s3://key:hidden@bucket/p", "s3://bucket/p?X-Amz-Signature=hidden", "gs://bucket"])
def test_a_bad_address_of_a_bucket_is_refused_and_not_shown(address):
    with pytest.raises(settings.BadSetting, match=r"RESTOW_ARCHIVE is '\*\*\*'; allowed: s3://BUCKET or s3://BUCKET/PREFIX, .* for a folder there is RESTOW_DATA") as refused:
        settings.check({"archive": address})
    assert "hidden" not in str(refused.value)


PERIODS = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
restow:
  timeZone: Europe/Berlin
  windows:
  - {cron: 0 22 * * 1-5, duration: 8h}
  blackouts:
  - {start: 2026-12-18T00:00:00Z, end: "2027-01-04T00:00:00+01:00", reason: change freeze}
"""


def test_windows_and_blackouts_are_read_as_people_write_them():
    """A YAML reader takes a time without quotes for a time."""
    read = policy.read(parse(PERIODS))
    assert read.windows == (config.Period("0 22 * * 1-5", 8 * 3_600_000),)
    assert (read.blackouts[0].end, read.blackouts[0].reason) == ("2027-01-04T00:00:00+01:00", "change freeze")
    for wrong, said in (("duration: 8h", "duration: 8d"), ("00Z, end", "00, end"), ("start:", "begin:")):
        with pytest.raises(BadConfig, match=r"\$\.restow\.(windows|blackouts)|blackouts\[0\]"):
            policy.read(parse(PERIODS.replace(wrong, said)))


BUDGETS = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
restow:
  budgets:
  - {name: prod, evictions: 5, within: day, namespaces: [shop], namespaceSelector: {matchLabels: {tier: gold}}}
  - {name: pools, evictions: 10, within: 12h, perNodeLabel: cloud.google.com/gke-nodepool}
  - {name: queues, evictions: 0, per: queue}
"""


def test_eviction_budgets_are_read_as_people_write_them():
    assert policy.read(parse(BUDGETS)).budgets == (
        config.EvictionBudget("prod", 5, "day", ("shop",), config.Selector({"tier": "gold"})),
        config.EvictionBudget("pools", 10, 12 * 3_600_000, per_node_label="cloud.google.com/gke-nodepool"),
        config.EvictionBudget("queues", 0, 24 * 3_600_000, per="queue"),
    )
    for wrong, said in (("12h", "12d"), ("day", "week"), ("per: queue", "per: pod"), ("evictions: 5", "evictions: many"), ("name: prod", "nam: prod")):
        with pytest.raises(BadConfig, match=r"\$\.restow\.budgets"):
            policy.read(parse(BUDGETS.replace(wrong, said)))
