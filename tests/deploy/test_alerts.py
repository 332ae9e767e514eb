"""Alerts: each fires for what it is about and keeps still otherwise, as the real promtool evaluates it; each asks for metrics that there are, and has its section
in docs/runbooks.md, whose commands exist."""

import re
import runpy
import subprocess

import pytest
import yaml
from deploy.manifests import DEPLOY, ROOT, named, rendered
from docs.pages import outside_fences
from prometheus import needs_prometheus

MADE = runpy.run_path(str(DEPLOY / "alerts.py"))
RULES = DEPLOY / "chart" / "files" / "monitoring" / "rules.yaml"
ALERTS = {rule["alert"]: rule for group in MADE["rules"]()["groups"] for rule in group["rules"] if "alert" in rule}
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
NAMES = ("cluster", "session", "reservation", "migration", "gc")

LEADERS = {f"restow_leader:family={family},pod=a": "1x20" for family in NAMES}
CLAIM = "persistentvolumeclaim=data-restow-nats-0"


def histogram(name: str, bound: str, good: str, all: str, *labels: str) -> dict[str, str]:
    more = "".join(f",{one}" for one in labels)
    return {f"{name}_bucket:le={bound}{more}": good, f"{name}_count:pod=a{more}": all}


def reactions(good: str, all: str) -> dict[str, str]:
    return histogram("restow_reaction_seconds", "0.5", good, all, "family=session")


# Series that let an alert fire, and such that do not, as `metric:label=value,…` → promtool's values, one a minute; and when it is looked.
CASES = {
    "RestowNobodyLeads": (LEADERS | {"restow_leader:family=gc,pod=a": "1 0x20"}, LEADERS),
    "RestowNotReady": ({"restow_ready:family=gc,pod=a": "0x20", "restow_ready:family=gc,pod=b": "0x20"}, {"restow_ready:family=gc,pod=a": "0x20", "restow_ready:family=gc,pod=b": "1x20"}),
    "RestowReleaseTooOld": ({"restow_log_too_new:family=gc": "1x30"}, {"restow_log_too_new:family=gc": "0x30"}),
    "RestowBehindTheLog": ({"restow_log_lag:family=gc,pod=a": "5000x20", "restow_log_lag:family=gc,pod=b": "2000x20"}, {"restow_log_lag:family=gc,pod=a": "5000x20", "restow_log_lag:family=gc,pod=b": "0x20"}),
    "RestowStandbyBehind": ({"restow_log_lag:family=gc,pod=a": "50000x30", "restow_log_lag:family=gc,pod=b": "0x30"}, {"restow_log_lag:family=gc,pod=a": "9000x30"}),
    "RestowClockWrong": ({"restow_clock_ahead_seconds:family=gc": "-3x20"}, {"restow_clock_ahead_seconds:family=gc": "1x20"}),
    "RestowLogBroken": ({"restow_log_broken:family=gc": "1x5"}, {"restow_log_broken:family=gc": "0x5"}),
    "RestowLogDamaged": ({"restow_log_damaged:family=gc": "1x5"}, {"restow_log_damaged:family=gc": "0x5"}),
    "RestowLogStuck": ({"restow_log_stuck:family=gc": "1x5"}, {"restow_log_stuck:family=gc": "1 0x5"}),
    "RestowForeignRecords": ({"restow_state_foreign_records:family=gc": "3x50 4x5"}, {"restow_state_foreign_records:family=gc": "3x55"}),
    "RestowBrokerDiskFull": (
        {f"kubelet_volume_stats_available_bytes:{CLAIM}": "24x20", f"kubelet_volume_stats_capacity_bytes:{CLAIM}": "100x20"},
        {f"kubelet_volume_stats_available_bytes:{CLAIM}": "26x20", f"kubelet_volume_stats_capacity_bytes:{CLAIM}": "100x20"},
    ),
    "RestowCertificateEnds": ({"restow_broker_certificate_due:family=gc,pod=a": "0x20", "restow_broker_certificate_due:family=gc,pod=b": "1x20"}, {"restow_broker_certificate_due:family=gc": "1 1 1 0x20"}),
    "RestowKeeperFails": ({"restow_keeper_failing:family=gc": "1x20"}, {"restow_keeper_failing:family=gc": "1 1 0x20"}),
    "RestowSnapshotsOld": (
        {"restow_snapshot_behind:family=gc": "30001x30", "restow_snapshot_every:family=gc": "10000x30"},
        {"restow_snapshot_behind:family=gc": "9000x30", "restow_snapshot_every:family=gc": "10000x30"},
    ),
    "RestowArchiveBehind": (
        {"restow_archive_behind:family=gc": "30001x30", "restow_snapshot_every:family=gc": "10000x30"},
        {"restow_archive_behind:family=gc": "9000x30", "restow_snapshot_every:family=gc": "10000x30"},
    ),
    "RestowArchiveDiskFull": (
        {"restow_archive_disk_free_bytes:family=gc": "9x20", "restow_archive_disk_size_bytes:family=gc": "100x20"},
        {"restow_archive_disk_free_bytes:family=gc": "11x20", "restow_archive_disk_size_bytes:family=gc": "100x20"},
    ),
    "RestowWatcherNotSynced": ({"restow_watch_synced:kind=pods": "0x20"}, {"restow_watch_synced:kind=pods": "0 1x20"}),
    "RestowWatcherBehind": ({"restow_watch_oldest_seconds:family=cluster": "31x20"}, {"restow_watch_oldest_seconds:family=cluster": "2x20"}),
    "RestowObjectsUndecodable": ({"restow_objects_undecodable_total:kind=Pod": "0 0 0 1x5"}, {"restow_objects_undecodable_total:kind=Pod": "0x8"}),
    "RestowPodsUndecided": (
        {"restow_undecided_oldest_seconds:family=session": "0 _x20", "restow_undecided_oldest_seconds:family=migration": "70+60x20"},
        {"restow_undecided_oldest_seconds:family=session": "0 0 90 0x20"},
    ),
    "RestowEffectsStuck": ({"restow_effect_oldest_seconds:family=session,kind=Bind": "301+60x20"}, {"restow_effect_oldest_seconds:family=migration,kind=Evict": "301+60x20"}),
    "RestowEffectsFail": (
        {"restow_effects_total:kind=Bind,outcome=retried": "0+60x40", "restow_effects_total:kind=Bind,outcome=done": "0+10x40"},
        {"restow_effects_total:kind=Bind,outcome=retried": "0+10x40", "restow_effects_total:kind=Bind,outcome=done": "0+60x40"},
    ),
    "RestowPlansFail": ({"restow_plans_failing:family=migration": "1x20"}, {"restow_plans_failing:family=migration": "1 1 0x20"}),
    "RestowMovesPaused": ({"restow_moves_paused:family=migration": "1x30"}, {"restow_moves_paused:family=migration": "0x30"}),
    "RestowAutoPauseBlind": ({"restow_auto_pause_queries_answered:family=migration": "0x30"}, {"restow_auto_pause_queries_answered:family=migration": "1x30"}),
    "RestowLandingsMissed": ({"restow_landings_total:result=missed": "0 2 4 6x20"}, {"restow_landings_total:result=missed": "0 1x20", "restow_landings_total:result=landed": "0+10x20"}),
    "RestowHoldsStolen": ({"restow_moves_beside_rest:family=migration": "1x5"}, {"restow_moves_beside_rest:family=migration": "0x5"}),
    "RestowGatesRefused": ({"restow_gates_refused:family=session": "1x20"}, {"restow_gates_refused:family=session": "0x20"}),
    "RestowNominationsIgnored": ({"restow_nominations_honoured:scheduler=other": "0x50"}, {"restow_nominations_honoured:scheduler=other": "1x50"}),
    "RestowMetricsUnusable": ({"restow_metrics_source_usable:source=Prometheus": "0x50"}, {"restow_metrics_source_usable:source=Prometheus": "1x50"}),
    "RestowBudgetBurnsFast": (reactions("0+50x70", "0+100x70"), reactions("0+995x70", "0+1000x70")),
    "RestowBudgetBurns": ({"restow_undecided_oldest_seconds:family=session": "0x10 20x10 0x10 20x10 " * 14}, {"restow_undecided_oldest_seconds:family=session": "0x10 9x530"}),
    "RestowBudgetBurnsSlowly": (
        {"restow_landings_total:result=missed": "0+1x600", "restow_landings_total:result=landed": "0+60x600"},
        {"restow_landings_total:result=missed": "0+1x600", "restow_landings_total:result=landed": "0+600x600"},
    ),
}  # fmt: skip


def series(said: str) -> str:
    name, _, labels = said.partition(":")
    pairs = [f"namespace={MADE['NAMESPACE']}", *labels.split(",")]
    quoted = ",".join(f'{key}="{value}"' for key, _, value in (pair.partition("=") for pair in pairs))
    return f"{name}{{{quoted}}}"


def minutes(values: dict[str, str]) -> int:
    """How long the series are."""
    return max(sum(int(part.partition("x")[2] or 0) + 1 for part in said.split()) for said in values.values()) - 1


def test_each_alert_has_its_cases():
    assert set(CASES) == set(ALERTS)


@needs_prometheus
@pytest.mark.parametrize(("every", "names"), [(1, [one.name for one in MADE["ALERTS"]]), (10, [one.name for one in MADE["BURNS"]])], ids=["alerts", "burns"])
def test_each_alert_fires_for_what_it_is_about_and_keeps_still_otherwise(tmp_path, every, names):
    """`every`: minutes between two evaluations; where hours are looked at, fewer do."""
    tests = []
    for name in names:
        fires, quiet = CASES[name]
        for what, values, count in (("fires", fires, 1), ("quiet", quiet, 0)):
            firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > bool 0 or vector(0)'
            tests.append({
                "name": f"{name} {what}",
                "interval": "1m",
                "input_series": [{"series": series(one), "values": said.strip()} for one, said in values.items()],
                "promql_expr_test": [{"expr": firing, "eval_time": f"{minutes(values) // every * every}m", "exp_samples": [{"labels": "{}", "value": count}]}],
            })  # fmt: skip
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": f"{every}m", "tests": tests}))
    run = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-6000:]


ALONE = {
    "decisions": reactions("0x500", "0x20 1x480"),
    "landings": {"restow_landings_total:result=missed": "0x20 1x480", "restow_landings_total:result=landed": "0x500"},
    "watcher": histogram("restow_watch_lag_seconds", "1.0", "0x20 1x480", "0x20 2x480"),
}
"""By objective: one thing goes wrong in hours in which next to nothing happens."""


@needs_prometheus
@pytest.mark.parametrize("slo", ALONE)
def test_one_thing_that_goes_wrong_in_a_quiet_cluster_uses_up_no_budget(tmp_path, slo):
    """Of three decisions one is a third: a page in the night, and moves that autoPause stops until somebody comes."""
    ever = 'max_over_time(count(ALERTS{alertname=~"RestowBudget.*",alertstate="firing"})[8h:1m]) or vector(0)'
    case = {
        "name": slo,
        "interval": "1m",
        "input_series": [{"series": series(one), "values": values} for one, values in ALONE[slo].items()],
        "promql_expr_test": [{"expr": ever, "eval_time": "500m", "exp_samples": [{"labels": "{}", "value": 0}]}],
    }
    file = tmp_path / "alone.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}))
    run = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-6000:]


@needs_prometheus
def test_promtool_takes_the_rules():
    run = subprocess.run(["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(RULES)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_file_is_what_the_declaration_says():
    assert RULES.read_text() == MADE["text"](), "run `make alerts`"


def test_the_chart_has_them_for_its_namespace_and_ones_own_runbooks():
    values = str(ROOT / "tests" / "deploy" / "values" / "everything.yaml")
    groups = named(rendered("--values", values, namespace="elsewhere"), "PrometheusRule", "restow")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert [alert["alert"] for alert in alerts] == list(ALERTS)
    assert {alert["annotations"]["runbook_url"] for alert in alerts} == {f"https://wiki.example/restow#{name.lower()}" for name in ALERTS}
    for rule in (rule for group in groups for rule in group["rules"] if not rule["expr"].startswith("vector")):
        assert 'namespace="elsewhere"' in rule["expr"]
        assert MADE["NAMESPACE"] not in str(rule)


def test_they_ask_for_metrics_that_there_are():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    asked = {name for alert in MADE["ALERTS"] for name in re.findall(r"\brestow_\w+", alert.expr)}
    asked |= {name for one in MADE["OBJECTIVES"] for name in re.findall(r"\brestow_\w+", one.errors)}
    known = {re.sub(r"_(bucket|count)$", "", name) for name in asked}
    assert len(known) > 20
    assert {name for name in known if f"`{name}`" not in pages} == set()


def test_that_nobody_is_left_to_lead_is_an_alert_too():
    """A family without a pod has no series, and a sum of none is none."""
    assert re.findall(r'or absent\(restow_leader\{namespace="restow-system",family="(\w+)"\}\)', ALERTS["RestowNobodyLeads"]["expr"]) == list(NAMES)


# -- the runbooks --------------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """Of docs/runbooks.md, by alert."""
    marks = list(re.finditer(r"^### (Restow\w+)$", outside_fences(RUNBOOKS), re.MULTILINE))
    ends = [*(mark.start() for mark in marks[1:]), len(RUNBOOKS)]
    return {mark[1]: RUNBOOKS[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}


def test_each_alert_has_its_section_and_each_section_its_alert():
    assert list(sections()) == list(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_a_section_says_what_it_means_how_to_look_what_to_do_and_what_it_is_not(name):
    said = sections()[name]
    parts = ["**It means:**", "**Look:**", "**Do:**", "**It is not:**"]
    assert [said.count(part) for part in parts] == [1, 1, 1, 1]
    assert sorted(parts, key=said.index) == parts
    assert f"`{ALERTS[name]['labels']['severity']}`" in said


def test_commands_of_the_runbooks_exist():
    from restow.cli.main import main

    commands = [line for block in re.findall(r"^```\n(.*?)^```", RUNBOOKS, re.M | re.S) for line in block.splitlines() if line.strip()]
    commands += re.findall(r"`((?:restow|kubectl) [^`]+)`", RUNBOOKS)
    assert len(commands) > 20
    for line in commands:
        for words in re.findall(r"(?:^|-- )restow ([a-z][^|]*)", line):
            command = main
            for word in words.split():
                if not hasattr(command, "commands"):
                    break
                command = command.commands[word]
        assert line.split()[0] in {"restow", "kubectl", "curl"}, line
