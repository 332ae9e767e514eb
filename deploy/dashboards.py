"""Grafana's dashboards: one declaration of every panel. `make dashboards` writes them; tests/integration/test_dashboards.py lets a real Prometheus scrape a run of the demo
and asks it for every panel.

    python deploy/dashboards.py        writes deploy/chart/files/dashboards/*.json
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "chart" / "files" / "dashboards"
WIDTH, HEIGHT = 24, 8
SELECT = 'namespace=~"$namespace",instance=~"$instance"'
"""What every query is about. Grafana fills the variables in."""
RATE = "$__rate_interval"
QUANTILES = (0.5, 0.99)


class Panel(NamedTuple):
    """`queries`: PromQL and its legend. `unit`: Grafana's name of it. `empty`: why it may have nothing to show, where that is so."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8
    empty: str = ""


class Dashboard(NamedTuple):
    name: str
    title: str
    description: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def s(metric: str, *labels: str) -> str:
    """A metric of the chosen installation."""
    return f"{metric}{{{','.join((SELECT, *labels))}}}"


def rate(metric: str, *labels: str, by: str = "") -> str:
    return f"sum{f' by ({by})' * bool(by)} (rate({s(metric, *labels)}[{RATE}]))"


def quantiles(metric: str, *labels: str, by: str = "family") -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile of a histogram in seconds."""
    return tuple(
        (f"histogram_quantile({share:g}, sum by (le, {by}) (rate({s(f'{metric}_bucket', *labels)}[{RATE}])))", f"p{share * 100:g} {{{{{by}}}}}")
        for share in QUANTILES
    )


def top(metric: str, *labels: str, by: str = "", how: str = "max") -> str:
    return f"{how}{f' by ({by})' * bool(by)} ({s(metric, *labels)})"


SESSION, MIGRATION, CLUSTER, GC = (f'family="{family}"' for family in ("session", "migration", "cluster", "gc"))
FAULTS = "counts only what went wrong; its labels are known once it has"

CLUSTER_BOARD = Dashboard(
    "cluster", "Restow / Cluster", "Who leads, what the cluster has, and how far the services are behind it.",
    (
        ("Services", (
            Panel("Leaders", "Processes that lead, by service. Each must be 1.", "none", ((top("restow_leader", by="family", how="sum"), "{{family}}"),), "stat", 12),
            Panel("Ready", "Processes whose /readyz answers 200, by service.", "none", ((top("restow_ready", by="family", how="sum"), "{{family}}"),), "stat", 12),
            Panel("Behind the log", "Commits in the log that are not folded yet, of the slowest process of a service.", "none", ((top("restow_log_lag", by="family"), "{{family}}"),)),
            Panel("Clock", "How far a process's clock is ahead of the log's.", "s", ((top("restow_clock_ahead_seconds", by="family"), "{{family}}"),)),
            Panel("Effects owed", "What was decided and is not done yet.", "none", ((top("restow_effects_owed", by="family"), "{{family}}"),)),
        )),
        ("Cluster", (
            Panel("Nodes and pods", "As the log knows them.", "none", ((top("restow_state_nodes", SESSION), "nodes"), (top("restow_state_pods", SESSION), "pods"))),
            Panel("Waiting pods", "Restow's pods without a node: most of them wait for capacity.", "none", ((top("restow_state_queue", SESSION), "wait"), (top("restow_undecided"), "nobody has decided"))),
            Panel("Reservations", "By phase.", "none", ((f"sum by (phase) ({s('restow_reservations')}) > 0 or sum({s('restow_reservations')})", "{{phase}}"),)),
        )),
        ("Facts from the API", (
            Panel("Changes that wait", "Changes that the watcher has got and that are not in the log.", "none", ((top("restow_watch_waiting"), "changes"),)),
            Panel("Lag of the watcher", "From when a change came until it was in the log; of each commit its oldest.", "s", quantiles("restow_watch_lag_seconds")),
            Panel("Collections that are not synced", "Kinds that could not be listed to their end. Must be 0.", "none", ((f"count({s('restow_watch_synced')} < 1) or vector(0)", "kinds"),), "stat"),
            Panel("Objects that cannot be read", "By kind, a second.", "ops", ((rate("restow_objects_undecodable_total", by="kind"), "{{kind}}"),)),
            Panel("Watches that began again", "By kind and reason, a second.", "ops", ((rate("restow_watch_restarts_total", by="kind, reason"), "{{kind}} {{reason}}"),), empty="watches of kinds that everybody serves begin again only where something went wrong"),
        )),
    ),
)  # fmt: skip

SCHEDULING = Dashboard(
    "scheduling", "Restow / Scheduling", "How fast pods are decided on and bound, and what comes between.",
    (
        ("Decisions", (
            Panel("Reaction", "From the first fact that the session had not looked at until what it decided is durable. Objective: 99 % within 0.5 s.", "s", quantiles("restow_reaction_seconds", SESSION)),
            Panel("Deciding", "Time to decide one commit.", "s", quantiles("restow_decide_seconds", SESSION)),
            Panel("Longest wait for a decision", "Of pods that nothing known keeps from running. Objective: below 10 s for 99.5 % of the time.", "s", ((top("restow_undecided_oldest_seconds"), "oldest"),)),
            Panel("Events decided", "By service, a second.", "ops", ((rate("restow_events_decided_total", by="family"), "{{family}}"),)),
            Panel("Commands rejected", "Commands that made no sense, a second.", "ops", ((rate("restow_commands_rejected_total", by="family"), "{{family}}"),)),
            Panel("Pods bound", "A second.", "ops", ((rate("restow_effects_total", 'kind="Bind"', 'outcome="done"'), "bound"),)),
        )),
        ("Effects", (
            Panel("Effects done", "By kind, a second.", "ops", ((rate("restow_effects_total", 'outcome="done"', by="kind") + " > 0", "{{kind}}"),)),
            Panel("Effects tried again", "By kind, a second: the API refused them, or did not answer.", "ops", ((rate("restow_effects_total", 'outcome="retried"', by="kind"), "{{kind}}"),)),
            Panel("Time of an effect", "One attempt, 99th percentile.", "s", ((f"histogram_quantile(0.99, sum by (le, kind) (rate({s('restow_effect_seconds_bucket')}[{RATE}]))) > 0", "{{kind}}"),)),
            Panel("Oldest effect owed", "By kind; what has to wait for its turn does not count.", "s", ((top("restow_effect_oldest_seconds", by="kind"), "{{kind}}"),)),
        )),
        ("Reservations", (
            Panel("Slots held", "For somebody who is to come.", "none", ((top("restow_state_holds", SESSION), "slots"),)),
            Panel("What Reservations have", "By resource: what they hold or gave.", "none", ((top("restow_reservation_resource", 'kind="allocatable"', by="resource"), "{{resource}}"),), empty="a cluster without Reservations has no resources of them"),
        )),
    ),
)  # fmt: skip

MIGRATIONS = Dashboard(
    "migrations", "Restow / Migrations", "Plans, moves under way, and where evicted pods have come to.",
    (
        ("Now", (
            Panel("Paused", "1 while nobody is moved: `restow state` says why.", "none", ((top("restow_moves_paused"), "paused"),), "stat", 6),
            Panel("Under way", "Migrations that have not ended, by step.", "none", ((top("restow_migrations", by="step"), "{{step}}"),), width=12),
            Panel("Bounced", "Workloads that are left alone on a node.", "none", ((top("restow_lineages_bounced"), "workloads"),), "stat", 6),
        )),
        ("Outcome", (
            Panel("Landings", "Evicted pods that came to their slots, and that missed them. Objective: 99 % land.", "none", ((f"sum by (result) ({s('restow_landings_total')})", "{{result}}"),)),
            Panel("Migrations that ended", "By result, since the processes have started.", "none", ((f"sum by (result) ({s('restow_migrations_ended_total')})", "{{result}}"),)),
            Panel("Why moves were given up", "By reason, since the processes have started.", "none", ((top("restow_migrations_ended_total", 'result="failed"', by="reason", how="sum"), "{{reason}}"),), empty=FAULTS),
            Panel("From plan to landing", "Of pods that landed.", "s", quantiles("restow_migration_duration_seconds", by="strategy")),
            Panel("Pods evicted", "By result and strategy, since the processes have started.", "none", ((f"sum by (result, strategy) ({s('descheduler_pods_evicted_total')})", "{{result}} {{strategy}}"),)),
        )),
        ("Plans", (
            Panel("Plans", "By trigger, and whether they had moves.", "none", ((f"sum by (trigger, moves) ({s('restow_plans_total')})", "{{trigger}}: {{moves}}"),)),
            Panel("Moves of these plans", "By planner.", "none", ((f"sum by (planner) ({s('restow_planned_moves_total')})", "{{planner}}"),)),
            Panel("What the last plan gains", "Free nodes, free devices, and devices that are no longer fragmented.", "none", ((f"max by (what) ({s('restow_last_plan_gain')})", "{{what}}"),)),
        )),
        ("Others", (
            Panel("Moves beside another scheduler rest", "1 while they do, because holds were stolen.", "none", ((top("restow_moves_beside_rest"), "rest"),), "stat", 6),
            Panel("Gates that stay", "Pods that keep a gate although nothing is held for them. Must be 0.", "none", ((top("restow_gates_refused"), "pods"),), "stat", 6),
            Panel("Nodes emptied", "By plans, and still there.", "none", ((top("restow_nodes_empty"), "nodes"),), "stat", 6),
            Panel("Workloads asked", "By their word.", "none", ((top("restow_consents", by="word"), "{{word}}"),), "stat", 6),
        )),
    ),
)  # fmt: skip

LOG = Dashboard(
    "log", "Restow / Log", "What is written, whether the log is whole, and how far snapshot and archive are behind.",
    (
        ("Health", (
            Panel("Broken", "1 while the log lacks records or holds changed ones. Must be 0.", "none", ((top("restow_log_broken"), "broken"),), "stat", 6),
            Panel("Stuck", "1 while the log takes no commits of a service. Must be 0.", "none", ((top("restow_log_stuck", by="family"), "{{family}}"),), "stat", 6),
            Panel("Too new", "1 where a process is of a release that is too old for the log.", "none", ((top("restow_log_too_new", by="family"), "{{family}}"),), "stat", 6),
            Panel("Void records", "Records that Restow did not write, and repairs.", "none", ((top("restow_state_foreign_records"), "foreign"), (top("restow_log_repairs"), "repairs")), "stat", 6),
        )),
        ("Commits", (
            Panel("Commits", "By service, a second.", "ops", ((rate("restow_commits_total", by="family"), "{{family}}"),)),
            Panel("Bytes", "By service, a second.", "Bps", ((rate("restow_commit_bytes_total", by="family"), "{{family}}"),)),
            Panel("Time to make a commit durable", "By service.", "s", quantiles("restow_append_seconds")),
            Panel("Conflicts and lost answers", "A second. Conflicts come with a change of the leader.", "ops", ((rate("restow_commit_conflicts_total", by="family"), "conflicts {{family}}"), (rate("restow_commits_unanswered_total", by="family"), "unanswered {{family}}"))),
            Panel("Sequence", "The last commit that is folded, by service.", "none", ((top("restow_log_sequence", by="family"), "{{family}}"),)),
        )),
        ("Snapshots and archive", (
            Panel("Commits that the log holds", "What was not truncated.", "none", ((top("restow_log_kept", GC), "commits"),)),
            Panel("Behind", "Commits since the last snapshot, and since the last one in the archive; a snapshot is due at the line.", "none", ((top("restow_snapshot_behind"), "snapshot"), (top("restow_archive_behind"), "archive"), (top("restow_snapshot_every"), "due"))),
            Panel("Archive's disk", "What is left on it.", "percentunit", ((f"min({s('restow_archive_disk_free_bytes')} / {s('restow_archive_disk_size_bytes')})", "free"),)),
            Panel("Cannot be stored", "1 while no snapshot or archive can be stored. Must be 0.", "none", ((top("restow_keeper_failing"), "failing"),), "stat"),
        )),
    ),
)  # fmt: skip

DASHBOARDS = (CLUSTER_BOARD, SCHEDULING, MIGRATIONS, LOG)


def queries(dashboard: Dashboard) -> list[tuple[Panel, str]]:
    return [(panel, expr) for _, panels in dashboard.rows for panel in panels for expr, _ in panel.queries]


def model(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in dashboard.rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}})
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x += panel.width
        y += HEIGHT
    return {
        "uid": f"restow-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["restow"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["restow"], "asDropdown": True, "includeVars": True, "keepTime": True, "title": "Restow"}],
        "annotations": {"list": []},
        "templating": {"list": _variables()},
        "panels": panels,
    }


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0, "refresh": 1},
        _asked("namespace", "Namespace", "label_values(restow_ready, namespace)", many=False),
        _asked("instance", "Process", 'label_values(restow_ready{namespace=~"$namespace"}, instance)', many=True),
    ]


def _asked(name: str, label: str, query: str, *, many: bool) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    stat = panel.kind == "stat"
    options: dict[str, Any] = (
        {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value", "graphMode": "none", "textMode": "auto"}
        if stat
        else {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}
    )
    custom = {} if stat else {"custom": {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0 if panel.title != "Clock" else None, **custom}, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend, "range": True, "instant": False}
            for i, (expr, legend) in enumerate(panel.queries)
        ],
    }


def text(dashboard: Dashboard) -> str:
    return json.dumps(model(dashboard), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in DASHBOARDS:
        (FOLDER / f"{one.name}.json").write_text(text(one))
