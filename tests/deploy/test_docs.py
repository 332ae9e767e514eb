"""The pages for operators name what the code and the manifests have."""

import re
from pathlib import Path

import pytest
from deploy.test_chart import known_env, users
from docs.pages import ALL, FOR_USERS, section

from restow.contracts.ids import WRITERS
from restow.runtime.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
ARCHITECTURE = (DOCS / "architecture.md").read_text()


def test_every_setting_is_described_with_its_default():
    rows = dict(re.findall(r"^\| `(RESTOW_\w+)` \| (.+?) \|", ALL, re.MULTILINE))
    assert set(rows) == known_env()
    settings = Settings()
    for name, shown in rows.items():
        default = str(getattr(settings, name.removeprefix("RESTOW_").lower()))
        if name != "RESTOW_IDENTITY":
            assert shown == (f"`{default}`" if default else "empty"), name


def test_the_secret_gets_every_password():
    broker = ALL.partition("create secret generic restow-nats")[2].partition("```")[0]
    assert set(re.findall(r"--from-literal=(\w+)=", broker)) == users() | {"route"}, "and that of routes between brokers"


def test_the_subject_table_is_the_catalogue():
    rows = re.findall(r"^\| `restow\.<cluster>\.(\w+)` \| (\w+) \|", ARCHITECTURE, re.MULTILINE)
    assert dict(rows) == WRITERS


@pytest.mark.parametrize("page", [f"{name}.md" for name in (*FOR_USERS, "architecture", "sessions", "migrations", "failures", "writing-a-plugin")])
def test_links_and_paths_lead_somewhere(page):
    text = (DOCS / page).read_text()
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (DOCS / link).exists(), link
    for path in re.findall(r"`((?:deploy|tests|libs|services|proto)/[\w./-]+)`", text):
        assert (DOCS.parent / path).exists(), path


def test_every_metric_is_described():
    from types import SimpleNamespace

    from restow.cluster_watcher.metrics import expose
    from restow.cluster_watcher.observer import Observer
    from restow.contracts.ids import FAMILIES
    from restow.descheduler.auto_pause import Watch
    from restow.descheduler.metrics import DeschedulerMetrics
    from restow.descheduler.sampler import Sampler
    from restow.domain.state import ClusterState
    from restow.domain.undecided import Undecided
    from restow.garbage_collector.metrics import CollectorMetrics
    from restow.reservation_cache.gauges import Gauges
    from restow.runtime.telemetry import Metrics
    from restow.runtime.undecided_gauges import undecided_gauges
    from restow.scheduler_session.nomination_checks import NominationChecks

    metrics = Metrics(FAMILIES[0])
    gauges = {"leader", "ready", "log_sequence", "log_lag", "log_stuck", "log_broken", "log_repairs", "log_too_new", "clock_ahead_seconds", "broker_certificate_due", "effects_owed", *(f"state_{n}" for n in ClusterState().counts())}
    metrics.gauges(lambda: dict.fromkeys(gauges, 0.0))
    descheduler = DeschedulerMetrics(SimpleNamespace(metrics=metrics, state=ClusterState(), clock=SimpleNamespace(now=lambda: 0)))
    sources = Sampler(SimpleNamespace(metrics=Metrics(FAMILIES[0]), state=ClusterState()))._usable()
    state, clock = ClusterState(), SimpleNamespace(now=lambda: 0)
    session = SimpleNamespace(client=None, metrics=Metrics(FAMILIES[0]), state=state, health=SimpleNamespace(notes=[]), clock=clock)
    collector = SimpleNamespace(metrics=Metrics(FAMILIES[0]), state=state, settings=SimpleNamespace(archive_of=lambda cluster: "/"), log=SimpleNamespace(cluster="c"))
    expose(metrics, Observer(), dict, ClusterState)
    sources = (*sources, *NominationChecks(session)._gauges(), *Watch(session)._answers(), *undecided_gauges(Undecided(state), 0), *CollectorMetrics(collector, bool, bool).read())
    of_services = {f"restow_{gauge.name}" for gauge in (*Gauges(ClusterState).read(), *descheduler.read(), *sources)} | {"restow_lineages_bounced", "restow_moves_beside_rest", "restow_gates_refused", "restow_effect_oldest_seconds"}
    exposed = of_services | {m.name + ("_total" if m.type == "counter" else "") for m in metrics.registry.collect()}
    assert set(re.findall(r"`((?:restow|descheduler)_\w+)`", section("Metrics"))) == exposed
