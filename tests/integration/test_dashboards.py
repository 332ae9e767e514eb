"""Dashboards and rules on a real Prometheus that scrapes a run of the demo: every panel has something to show, every rule can be evaluated, and nothing fires while
all is well."""

import json
import re
import runpy
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from prometheus import needs_prometheus, prometheus

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARDS = runpy.run_path(str(DEPLOY / "dashboards.py"))
ALERTS = runpy.run_path(str(DEPLOY / "alerts.py"))
SERVICES = ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector")
PANELS = [(board, panel, expr) for board in BOARDS["DASHBOARDS"] for panel, expr in BOARDS["queries"](board)]
PATIENCE = 400.0
"""Seconds for the demo: many times what it takes."""
FILLED = {"$__rate_interval": "10s", "$namespace": "restow-system", "$instance": ".*"}
"""What Grafana would fill in."""
NOT_HERE = {
    "kubelet_volume_stats_available_bytes": "there is no kubelet",
    "kubelet_volume_stats_capacity_bytes": "there is no kubelet",
    "restow_auto_pause_queries_answered": "the policy has no queries",
    "restow_metrics_source_usable": "the policy goes by no metrics",
    "restow_nominations_honoured": "the policy names no other scheduler",
}


class Scraped:
    """What Prometheus has of the run."""

    def __init__(self, url: str, began: float, ended: float) -> None:
        self.url, self.began, self.ended = url, began, ended

    def _get(self, path: str, **parameters: object) -> dict:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def series(self, expr: str) -> list[dict]:
        """All series that the query had at some time of the run. Raises HTTPError where it cannot be asked."""
        return self._get("/api/v1/query_range", query=expr, start=self.began, end=self.ended, step=1)["result"]

    def rules(self) -> list[dict]:
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scraped")
    work, targets = folder / "work", folder / "targets.json"
    work.mkdir()
    targets.write_text("[]")
    rules = folder / "rules.yaml"
    rules.write_text((DEPLOY / "chart" / "files" / "monitoring" / "rules.yaml").read_text())
    job = {"job_name": "restow", "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]}
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "2s"}, "rule_files": [str(rules)], "scrape_configs": [job]}
    command = [sys.executable, "-m", "restow.cli.main", "demo", "--nodes", "96", "-o", "json"]
    with prometheus(folder, json.dumps(config)) as found, (folder / "said").open("wb+") as said:
        began = time.time()
        process = subprocess.Popen(command, cwd=work, stdout=said, stderr=said)
        try:
            there = found.until("all services have an address", lambda: _addresses(work))
            targets.write_text(json.dumps([{"targets": there, "labels": {"namespace": "restow-system"}}]))
            assert process.wait(PATIENCE) == 0, (folder / "said").read_text(errors="replace")[-3000:]
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)
        yield Scraped(found.url, began, time.time())


def _addresses(work: Path) -> list[str]:
    """Of all services, once all are up."""
    files = [work / ".restow" / "demo" / "run" / f"{name}.http" for name in SERVICES]
    said = [file.read_text().strip() if file.exists() else "" for file in files]
    return [one.removeprefix("http://") for one in said] if all(said) else []


def filled(expr: str) -> str:
    for name, value in FILLED.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


@needs_prometheus
def test_no_panel_is_empty_and_every_query_can_be_asked(scraped):
    found = {(board.name, panel.title, expr): scraped.series(filled(expr)) for board, panel, expr in PANELS}
    assert [key for key, series in found.items() if not series] == [
        (board.name, panel.title, expr) for board, panel, expr in PANELS if panel.empty and not found[board.name, panel.title, expr]
    ]


@needs_prometheus
def test_every_rule_can_be_evaluated_and_nothing_fires_while_all_is_well(scraped):
    rules = scraped.rules()
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == {alert.name for alert in (*ALERTS["ALERTS"], *ALERTS["BURNS"])}
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert scraped.series('ALERTS{alertstate="firing"}') == []


@needs_prometheus
def test_whatever_an_alert_asks_for_is_there(scraped):
    """An alert on what nobody says would never fire."""
    alerts = {alert.name: re.findall(r"\b((?:restow|kubelet)_\w+)(\{[^}]*\})", alert.expr) for alert in ALERTS["ALERTS"]}
    assert all(alerts.values())
    asked = {name + labels for found in alerts.values() for name, labels in found}
    silent = {one for one in asked if not scraped.series(one)}
    assert {one for one in silent if one.partition("{")[0] not in NOT_HERE} == set()


@needs_prometheus
def test_every_objective_has_its_share_of_errors(scraped):
    for window in ("5m", "3d"):
        series = scraped.series(f"restow:slo_errors:{window}")
        assert {one["metric"]["slo"] for one in series} == {one.name for one in ALERTS["OBJECTIVES"]}
        for one in series:
            assert all(value == "NaN" or -1e-9 <= float(value) <= 1 for _, value in one["values"])


# -- the files -----------------------------------------------------------------------------------------------------------


def test_the_files_are_what_the_declaration_says():
    made = {f"{board.name}.json": BOARDS["text"](board) for board in BOARDS["DASHBOARDS"]}
    assert {path.name: path.read_text() for path in (DEPLOY / "dashboards").glob("*.json")} == made, "run `make dashboards`"


@pytest.mark.parametrize("name", ["cluster", "scheduling", "migrations", "log"])
def test_each_panel_says_what_it_shows_in_which_unit_and_where_it_is(name):
    board = json.loads((DEPLOY / "dashboards" / f"{name}.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) >= 10
    for panel in panels:
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert all('namespace=~"$namespace",instance=~"$instance"' in target["expr"] for target in panel["targets"])
    taken = [(x, y) for panel in board["panels"] for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"]) for y in [panel["gridPos"]["y"]]]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "namespace", "instance"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
