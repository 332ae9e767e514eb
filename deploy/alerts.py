"""When operators are to be told: one declaration of every alert and of every service level objective. `make alerts` writes Prometheus' rules from it; docs/runbooks.md
has a section for each alert, docs/slo.md says what the objectives mean, and tests/deploy/test_alerts.py lets each of them fire and keep still.

    python deploy/alerts.py            writes deploy/chart/files/monitoring/rules.yaml

The file is a Prometheus rule file for the namespace `restow-system`; the chart puts its own in that place.
"""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

RULES = Path(__file__).parent / "chart" / "files" / "monitoring" / "rules.yaml"
NAMESPACE = "restow-system"
HERE = f'namespace="{NAMESPACE}"'
RUNBOOKS = "https://github.com/restow/restow/blob/main/docs/runbooks.md"
HEADER = "# Written by `make alerts` from deploy/alerts.py; change it there.\n"
FAMILIES = ("cluster", "session", "reservation", "migration", "gc")
CRITICAL, WARNING = "critical", "warning"


class Alert(NamedTuple):
    """`after`: for how long it must hold. `summary` is one line, `description` says what to look at first."""

    name: str
    expr: str
    after: str
    severity: str
    summary: str
    description: str


class Objective(NamedTuple):
    """`errors`: PromQL of the share of what went wrong within `{w}`. `budget`: the share that may go wrong within 28 days."""

    name: str
    budget: float
    errors: str


def m(name: str, *more: str) -> str:
    """A metric of ours, of this installation."""
    return f"{name}{{{','.join((HERE, *more))}}}"


NOBODY = "\n".join(
    [f"sum by (family) ({m('restow_leader')}) < 1", *("or absent(" + m("restow_leader", f'family="{family}"') + ")" for family in FAMILIES)]
)
DISK = "kubelet_volume_stats_{}_bytes"
BROKERS = 'persistentvolumeclaim=~"data-restow-nats-.*"'
OTHERS_BUSINESS = 'kind!~"Evict.*|AskConsent|TellWorkload"'
"""What waits for disruption budgets and workloads, which have deadlines of their own."""

RETRIED = 'outcome="retried"'
MISSED, ALL = m("restow_landings_total", 'result="missed"'), m("restow_landings_total")

ALERTS = (
    # -- the services ----------------------------------------------------------------------------------------------------
    # Where no pod is left, there is no series either.
    Alert("RestowNobodyLeads", NOBODY, "1m", CRITICAL, "Nobody decides for {{ $labels.family }}", "No pod of this service leads. `restow doctor` says why."),
    Alert("RestowNotReady", f"max by (family) ({m('restow_ready')}) < 1", "5m", CRITICAL, "No pod of {{ $labels.family }} is ready", "Its /readyz says why, and so does `restow doctor`."),
    Alert("RestowReleaseTooOld", f"max by (family) ({m('restow_log_too_new')}) > 0", "15m", CRITICAL, "A pod of {{ $labels.family }} is of a release that is too old for the log", "It stands by. Its /readyz names the release to run."),
    Alert("RestowBehindTheLog", f"min by (family) ({m('restow_log_lag')}) > 1000", "5m", WARNING, "{{ $labels.family }} is {{ $value }} commits behind the log", "Even the pod that is least behind decides on an old state. Give it more CPU."),
    Alert("RestowStandbyBehind", f"max by (family) ({m('restow_log_lag')}) > 10000", "15m", WARNING, "A pod of {{ $labels.family }} is {{ $value }} commits behind the log", "It cannot take over at once."),
    Alert("RestowClockWrong", f"max by (family) (abs({m('restow_clock_ahead_seconds')})) > 2", "10m", WARNING, "A clock of {{ $labels.family }} is {{ $value }} s off", "Deadlines follow the log's clock; Leases and windows of whoever has the wrong clock do not."),
    # -- the log ---------------------------------------------------------------------------------------------------------
    Alert("RestowLogBroken", f"max({m('restow_log_broken')}) > 0", "", CRITICAL, "The log has lost records, or holds changed ones, and nothing is decided", f"`kubectl -n {NAMESPACE} exec deploy/restow-garbage-collector -- restow log verify` says what is missing."),
    Alert("RestowLogDamaged", f"max({m('restow_log_damaged')}) > 0", "", WARNING, "Records of the log have changed on the broker's disk", "Once a snapshot holds what they said (the collector's /readyz says whether), nothing is lost; the next time it may be. Look at that disk."),
    Alert("RestowLogStuck", f"max by (family) ({m('restow_log_stuck')}) > 0", "2m", CRITICAL, "The log takes no commits of {{ $labels.family }}", "The broker's store is full, or the broker does not answer. /readyz says which."),
    Alert("RestowForeignRecords", f"max(delta({m('restow_state_foreign_records')}[1h])) > 0", "", WARNING, "Somebody else has written into the log", "These records are void. Find out whose password of the broker it was."),
    Alert("RestowBrokerDiskFull", f"min({m(DISK.format('available'), BROKERS)} / {m(DISK.format('capacity'), BROKERS)}) < 0.25", "10m", CRITICAL, "A broker's volume has {{ $value | humanizePercentage }} left", "At 15 % its store is full, and nothing is decided any more."),
    Alert("RestowCertificateEnds", f"max({m('restow_broker_certificate_due')}) > 0", "10m", WARNING, "A certificate of the broker or of its clients ends soon, or has ended, and is not renewed", "Once it has ended, all stops with the next restart of a broker. /readyz says which one, and when."),
    Alert("RestowKeeperFails", f"max({m('restow_keeper_failing')}) > 0", "10m", CRITICAL, "No snapshot or archive can be stored, and the log grows", "The garbage collector's /readyz says why."),
    Alert("RestowSnapshotsOld", f"max({m('restow_snapshot_behind')}) > 3 * max({m('restow_snapshot_every')})", "15m", WARNING, "The last snapshot is {{ $value }} commits old", "Whoever starts folds all of them, and none of them can be truncated."),
    Alert("RestowArchiveBehind", f"max({m('restow_archive_behind')}) > 3 * max({m('restow_snapshot_every')})", "15m", WARNING, "The archive is {{ $value }} commits behind", "Nothing of that can be truncated, so the broker's volume fills up."),
    Alert("RestowArchiveDiskFull", f"min({m('restow_archive_disk_free_bytes')} / {m('restow_archive_disk_size_bytes')}) < 0.1", "10m", WARNING, "The archive's volume has {{ $value | humanizePercentage }} left", "When it is full, the broker's volume is next."),
    # -- facts -----------------------------------------------------------------------------------------------------------
    Alert("RestowWatcherNotSynced", f"max by (kind) ({m('restow_watch_synced')}) < 1", "5m", CRITICAL, "{{ $labels.kind }} cannot be listed", "No pod is reported before everything else was listed once. The cluster watcher's /readyz has the API's answer."),
    Alert("RestowWatcherBehind", f"max({m('restow_watch_oldest_seconds')}) > 30", "2m", WARNING, "A change of the API waits for {{ $value }} s for being in the log", "All decisions are as old as that."),
    Alert("RestowObjectsUndecodable", f"sum by (kind) (increase({m('restow_objects_undecodable_total')}[15m])) > 0", "", WARNING, "Objects of kind {{ $labels.kind }} cannot be read", "They stay as they were known last. The cluster watcher's /readyz names them."),
    # -- decisions and effects -------------------------------------------------------------------------------------------
    Alert("RestowPodsUndecided", f"max({m('restow_undecided_oldest_seconds')}) > 60", "2m", CRITICAL, "A pod waits for {{ $value }} s for a decision, and nothing keeps it from running", "The session is away, behind, or busy for too long."),
    Alert("RestowEffectsStuck", f"max by (family, kind) ({m('restow_effect_oldest_seconds', OTHERS_BUSINESS)}) > 300", "1m", WARNING, "{{ $labels.kind }} of {{ $labels.family }} is owed for {{ $value }} s", "The API refuses it again and again. The service's log says with which words."),
    Alert("RestowEffectsFail", f"sum by (family, kind) (rate({m('restow_effects_total', RETRIED, OTHERS_BUSINESS)}[10m])) / sum by (family, kind) (rate({m('restow_effects_total', OTHERS_BUSINESS)}[10m])) > 0.5", "15m", WARNING, "{{ $value | humanizePercentage }} of {{ $labels.kind }} of {{ $labels.family }} come to nothing", "The API is overloaded or refuses them."),
    # -- moves -----------------------------------------------------------------------------------------------------------
    Alert("RestowPlansFail", f"max({m('restow_plans_failing')}) > 0", "5m", WARNING, "Plans fail, or come to no end", "The descheduler's /readyz says which, and why. Other plugins of the policy plan, and moves go on."),
    Alert("RestowMovesPaused", f"max({m('restow_moves_paused')}) > 0", "15m", WARNING, "No pod is moved, for somebody or Restow itself has paused all moves", "`restow state` says since when, who, and why. `restow resume` ends it."),
    Alert("RestowAutoPauseBlind", f"max({m('restow_auto_pause_queries_answered')}) < 1", "15m", WARNING, "Prometheus does not answer the queries of autoPause, so they pause nothing", "The descheduler's log says why."),
    Alert("RestowLandingsMissed", f"sum(increase({MISSED}[30m])) >= 5", "", WARNING, "{{ $value | humanize }} evicted pods have missed their slots within 30 minutes", "`restow get migrations` says which, and why."),
    Alert("RestowHoldsStolen", f"max({m('restow_moves_beside_rest')}) > 0", "", WARNING, "Moves beside another scheduler rest, because holds were stolen", "Somebody preempts or deletes the placeholders in restow-holds."),
    Alert("RestowGatesRefused", f"max({m('restow_gates_refused')}) > 0", "5m", CRITICAL, "{{ $value }} pods keep their scheduling gate, and nothing is held for them", "The API does not let the gate be taken off. They will not run before somebody does that."),
    Alert("RestowNominationsIgnored", f"max by (scheduler) ({m('restow_nominations_honoured')}) < 1", "30m", WARNING, "Whether {{ $labels.scheduler }} honours nominations is not known, or it does not", "Its pods are not moved."),
    Alert("RestowMetricsUnusable", f"max by (source) ({m('restow_metrics_source_usable')}) < 1", "30m", WARNING, "{{ $labels.source }} cannot be relied on", "Plugins of the policy that go by it evict nobody."),
)  # fmt: skip

def share(wrong: str, of: str) -> str:
    """`wrong` of `of`, as if there had been FEW at least."""
    return f"({wrong}) / clamp_min({of}, FEW)"


def within(metric: str, bound: str, *more: str) -> str:
    """The share of what took longer than `bound` seconds, which is one of the histogram's."""
    labels = ",".join((HERE, *more))
    every = f"sum(increase({metric}_count{{{labels}}}[WINDOW]))"
    return share(f'{every} - sum(increase({metric}_bucket{{{labels},le="{bound}"}}[WINDOW]))', every)


OBJECTIVES = (
    Objective("decisions", 0.01, within("restow_reaction_seconds", "0.5", 'family="session"')),
    Objective("landings", 0.01, share(f"sum(increase({MISSED}[WINDOW]))", f"sum(increase({ALL}[WINDOW]))")),
    Objective("watcher", 0.01, within("restow_watch_lag_seconds", "1.0")),
    Objective("pending", 0.005, f"avg_over_time({m('restow:undecided:late')}[WINDOW])"),
)
LATE = 10
"""Seconds for which a pod may wait that nothing keeps from running."""
WINDOWS = {"5m": 20, "30m": 20, "1h": 20, "6h": 200, "3d": 200}
"""Each with how many decisions, landings or commits it counts at least: in a quiet cluster one that goes wrong of three says little, and no alert may fire for it, be it that
of the smallest share which asks for this window (14.4, 6 or 1 %)."""
BURNS = (
    Alert("RestowBudgetBurnsFast", "1h 5m 14.4", "2m", CRITICAL, "The error budget of {{ $labels.slo }} is used up within two days if this goes on", "{{ $value | humanizePercentage }} went wrong within the last hour."),
    Alert("RestowBudgetBurns", "6h 30m 6", "15m", CRITICAL, "The error budget of {{ $labels.slo }} is used up within five days if this goes on", "{{ $value | humanizePercentage }} went wrong within the last six hours."),
    Alert("RestowBudgetBurnsSlowly", "3d 6h 1", "1h", WARNING, "The error budget of {{ $labels.slo }} will not last", "{{ $value | humanizePercentage }} went wrong within the last three days."),
)  # fmt: skip
"""`expr` is the long window, the short one, and how many times the budget."""


def rules() -> dict[str, Any]:
    """The rule file."""
    return {
        "groups": [
            {"name": "restow", "rules": [_alert(alert, alert.expr) for alert in ALERTS]},
            {"name": "restow-slo", "rules": [*_recorded(), *(_alert(alert, _burns(alert)) for alert in BURNS)]},
        ]
    }


def _alert(alert: Alert, expr: str) -> dict[str, Any]:
    annotations = {"summary": alert.summary, "description": alert.description, "runbook_url": f"{RUNBOOKS}#{alert.name.lower()}"}
    held = {"for": alert.after} if alert.after else {}
    return {"alert": alert.name, "expr": expr, **held, "labels": {"severity": alert.severity, "namespace": NAMESPACE}, "annotations": annotations}


def _recorded() -> list[dict[str, Any]]:
    labels = {"namespace": NAMESPACE}
    late = {"record": "restow:undecided:late", "expr": f"max({m('restow_undecided_oldest_seconds')}) > bool {LATE}", "labels": labels}
    shares = [
        {"record": f"restow:slo_errors:{window}", "expr": one.errors.replace("WINDOW", window).replace("FEW", str(few)), "labels": labels | {"slo": one.name}}
        for one in OBJECTIVES
        for window, few in WINDOWS.items()
    ]
    budgets = [{"record": "restow:slo_budget", "expr": f"vector({one.budget:g})", "labels": labels | {"slo": one.name}} for one in OBJECTIVES]
    return [late, *shares, *budgets]


def _burns(alert: Alert) -> str:
    long, short, times = alert.expr.split()
    sides = [f"{m(f'restow:slo_errors:{window}')} > {times} * {m('restow:slo_budget')}" for window in (long, short)]
    return "\nand ".join(sides)


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))


def text() -> str:
    return HEADER + yaml.dump(rules(), Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


if __name__ == "__main__":
    RULES.parent.mkdir(exist_ok=True)
    RULES.write_text(text())
