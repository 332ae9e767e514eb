"""The pages for users explain every reason that a waiting pod can be told, and name every metric and setting that there is."""

import ast
import re
from collections.abc import Iterator
from types import SimpleNamespace

import yaml
from docs.pages import ALL, PAGES, ROOT, section
from prometheus_client import CollectorRegistry

from restow.descheduler.api import routes
from restow.descheduler.metrics import DeschedulerMetrics
from restow.domain import pod_controllers
from restow.domain.config import SWITCHES, GcConfig, MigrationConfig
from restow.domain.defragmentation.costs import FLOOR, MOVE, USUAL
from restow.domain.descheduling.plugins import PLUGINS as DESCHEDULING
from restow.domain.session.actions.args import ARGS as ACTIONS
from restow.domain.session.plugins import PLUGINS
from restow.domain.session_config import read_conf
from restow.domain.state import ClusterState
from restow.domain.verdicts import CANCELLED, ENDED, RETURNED, SENTENCES
from restow.garbage_collector.conf import read as read_collector
from restow.reservation_cache.gauges import Gauges
from restow.runtime.policy_file import NOT_HERE
from restow.runtime.policy_file import read as read_policy
from restow.runtime.telemetry import Metrics

DOMAIN = ROOT / "libs" / "restow" / "domain"
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+")
OTHERS = {"DaemonSet", "NoExecute", "NoSchedule", "PodSpec", "PreferNoSchedule", "StatefulSet", "NotThere"}
"""Kubernetes' own words, and a note that the session takes for itself."""
SKEWED = "node(s) didn't match pod topology spread constraints"
VERDICT = re.compile(r"([A-Z][A-Za-z]+(?: code)?): .")
NO_VERDICTS = {*DESCHEDULING, "DefaultEvictor", "Deprecated"}
"""What docstrings begin with."""
KNOWN = (*SENTENCES, "NotOnSource", "NotLookedAt")
NODES = re.compile(r"node\(s\) |node has |cannot align |not enough cpus |the requested CPUs |Insufficient |Too many pods|proportional of resource ")


def strings(*paths: str) -> Iterator[str]:
    for path in paths:
        for file in sorted((DOMAIN / path).rglob("*.py")) if (DOMAIN / path).is_dir() else [DOMAIN / path]:
            for one in ast.walk(ast.parse(file.read_text())):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield one.value


def test_every_reason_of_the_session_is_in_the_table():
    reasons = {text for text in strings("session") if REASON.fullmatch(text) and not text.endswith("Enable")} - OTHERS
    assert {"QueueQuota", "NotEnqueued", "NoLongerFits"} < reasons
    explained = section("When pods wait")
    assert {reason for reason in reasons if f"`{reason}`" not in explained} == set()


def test_every_rule_about_nodes_is_in_the_table():
    places = ("predicates.py", "numa.py", "cores", "topology", "volumes", "session")
    rules = {text.rstrip("{ ") for text in strings(*places) if NODES.match(text)} - {f"{SKEWED} (missing required label)"}
    assert len(rules) > 20
    first_cells = "\n".join(line.split("|")[1] for line in ALL.splitlines() if line.startswith("|"))
    assert {rule for rule in rules if f"`{rule}" not in first_cells} == set()


def test_every_metric_is_in_the_table():
    described = set(re.findall(r"`(restow_[a-z_]+)`", ALL))
    metrics = Metrics("session").registry.collect()
    assert {metric.name + "_total" * (metric.type == "counter") for metric in metrics} <= described
    assert {f"restow_state_{name}" for name in ClusterState().counts()} <= described
    assert {f"restow_{gauge.name}" for gauge in Gauges(ClusterState).read()} <= described


def test_every_metric_of_the_descheduler_is_in_the_table():
    described = set(re.findall(r"`((?:restow|descheduler)_[a-z_]+)`", ALL))
    registry = CollectorRegistry()
    metrics = SimpleNamespace(registry=registry, labelled=lambda read: None)
    ours = DeschedulerMetrics(SimpleNamespace(metrics=metrics, state=ClusterState(), clock=SimpleNamespace(now=lambda: 0)))
    made = {metric.name + "_total" * (metric.type == "counter") for metric in registry.collect()}
    assert {"descheduler_pods_evicted", "restow_plans_total"} < made
    assert made | {f"restow_{gauge.name}" for gauge in ours.read()} <= described


def test_every_key_of_the_policy_and_every_route_of_the_descheduler_is_named():
    page = PAGES["descheduling"]
    keys = set(MigrationConfig.__struct_encode_fields__) - set(NOT_HERE)
    assert {key for key in keys if f"`{key}`" not in page and f"restow.{key}`" not in page} == set()
    paths = {(route.method, route.path) for route in routes(SimpleNamespace(), SimpleNamespace())}
    assert {(method, path) for method, path in paths if f"`{method} {path}`" not in page} == set()


def test_every_verdict_of_a_plan_is_in_the_table():
    said = {found[1] for text in strings("descheduling", "migration/run_once.py") if (found := VERDICT.match(text))} - NO_VERDICTS
    assert {"Settling", "MinReplicas", "Exit code"} < said
    explained = section("Why pods stay")
    assert {verdict for verdict in said | set(KNOWN) if f"`{verdict}`" not in explained} == set()


def test_every_reason_for_which_a_migration_ends_or_a_plan_is_cancelled_is_in_the_table_and_in_the_registry():
    said = {text for text in strings("migration") if REASON.fullmatch(text)} - {"NotLookedAt", "MovePod", "MoveGang", "DaemonSet", "StatefulSet", "MigrationDecider"}
    assert {"HoldTaken", "PodMoved", "SlotTimeout"} < said
    assert said <= set(ENDED) | set(CANCELLED) | set(SENTENCES) | set(RETURNED)
    explained = section("Why moves end")
    assert {reason for reason in (*ENDED, *CANCELLED) if f"`{reason}`" not in explained} == set()


def test_every_reason_for_which_a_node_is_not_emptied_is_named():
    explained = section("Cluster autoscalers")
    assert {reason for reason in RETURNED if f"`{reason}`" not in explained} == set()


def test_every_reason_of_a_reservation_is_in_the_table():
    said = {text for text in strings("evolve/phases.py", "held_capacity.py") if REASON.fullmatch(text)} - {"NodeLost"}
    assert {"PreAllocation", "HoldLost", "AllHandedOver"} < said
    explained = section("Phases of a Reservation")
    assert {reason for reason in said if f"`{reason}`" not in explained} == set()


def test_the_configuration_that_it_shows_is_the_default():
    shown = section("Scheduler configuration")
    assert read_conf(yaml.safe_load(shown.partition("```yaml\n")[2].partition("```")[0])) == read_conf({})


def test_every_argument_and_switch_of_actions_and_plugins_is_named():
    names = {name for args in (*ACTIONS.values(), *(plugin.Args for plugin in PLUGINS.values())) for name in args.__struct_encode_fields__}
    names.discard("overcommit-factors")  # as `overcommit-factor.<resource>` is logged
    assert {name for name in {*names, *ACTIONS, *PLUGINS, *SWITCHES} if f"`{name}`" not in ALL} == set()


def test_the_collectors_configuration_that_it_shows_is_the_default_and_the_one_that_is_shipped():
    shown = yaml.safe_load(section("How Reservations end").partition("```yaml\n")[2].partition("```")[0])
    shipped = yaml.safe_load((ROOT / "deploy" / "chart" / "files" / "config" / "garbage-collector.conf").read_text())
    assert read_collector(shown) == read_collector(shipped) == GcConfig()
    assert set(shown) == set(GcConfig.__struct_encode_fields__)


def test_the_policy_to_begin_with_is_accepted():
    shown = read_policy(yaml.safe_load(section("Policy").partition("```yaml\n")[2].partition("```")[0]))
    assert (shown.policy["kind"], shown.mode, shown.defragmentation.objective) == ("DeschedulerPolicy", "propose", "value")


def test_the_table_of_costs_has_the_defaults():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", section("What a move costs"), re.M)
    assert {name: int(default) for name, default in rows} == {FLOOR: MOVE, "age": 0, **USUAL}


def test_the_table_of_owners_is_the_one_that_the_code_goes_by():
    text = section("Whose pods may move").partition("\n### ")[0]
    table = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert table == pod_controllers.rows()
    labels = {label for owner in pod_controllers.OWNERS for label in owner.roles}
    assert {label for label in labels if label in text} >= {pod_controllers.TASK_ANNOTATION, pod_controllers.REPLICA_INDEX, pod_controllers.RAY_GROUP, pod_controllers.COMPLETION_INDEX}
