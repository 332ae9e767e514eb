"""The base and the overlays build, and what they build holds together."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from deploy.manifests import DEPLOY, ROOT, SERVICES, build, containers, env, named, of_kind

from restow.descheduler import policy as policies
from restow.runtime.settings import Settings
from restow.scheduler_session import conf

FOLDERS = ("base", "overlays/dev", "overlays/production")
WORKLOADS = ("Deployment", "StatefulSet")
SCHEDULERS = {DEPLOY / "base" / "config" / "volcano-scheduler.conf", DEPLOY / "compose" / "volcano-scheduler.conf"}
MADE_BY_HAND = {"restow-nats", "restow-descheduler-api"}
"""Secrets that no manifest holds; docs/install.md says how to make them."""


def known_env() -> set[str]:
    """What a service reads from its environment."""
    return {f"RESTOW_{name.upper()}" for name in Settings.__struct_fields__}


def users() -> set[str]:
    """The users of the broker, as its permissions name them."""
    return set(re.findall(r"^\s+user: (\w+)", (DEPLOY / "nats" / "permissions.conf").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", sorted(set(DEPLOY.rglob("*.yaml")) - SCHEDULERS), ids=lambda p: str(p.relative_to(DEPLOY)))
def test_every_file_is_yaml_with_kind_and_name(path: Path):
    for manifest in yaml.safe_load_all(path.read_text()):
        assert manifest["apiVersion"]
        assert manifest["kind"]
        if manifest["kind"] not in {"Kustomization", "DeschedulerPolicy"}:
            assert manifest["metadata"]["name"]


@pytest.mark.parametrize("folder", FOLDERS)
class TestBuild:
    def test_has_every_service_and_the_broker(self, folder):
        names = {w["metadata"]["name"] for w in of_kind(build(folder), *WORKLOADS)}
        assert names == {f"restow-{s}" for s in SERVICES} | {"restow-nats"}

    def test_puts_everything_into_one_namespace_with_one_label(self, folder):
        clustered = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
        for manifest in build(folder):
            assert manifest["metadata"]["labels"]["app.kubernetes.io/part-of"] == "restow"
            if manifest["kind"] not in clustered:
                assert manifest["metadata"]["namespace"] == "restow-system"

    def test_every_reference_leads_somewhere(self, folder):
        manifests = build(folder)
        have = {(m["kind"], m["metadata"]["name"]) for m in manifests} | {("Secret", s) for s in MADE_BY_HAND}
        for workload in of_kind(manifests, *WORKLOADS):
            for wanted in references(workload):
                assert wanted in have, f"{workload['metadata']['name']}: {wanted}"

    def test_selectors_select_the_pods(self, folder):
        for workload in of_kind(build(folder), *WORKLOADS):
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()

    def test_volumes_and_mounts_match(self, folder):
        for workload in of_kind(build(folder), *WORKLOADS):
            spec = workload["spec"]["template"]["spec"]
            have = {v["name"] for v in spec.get("volumes", [])}
            have |= {c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", [])}
            used = {m["name"] for c in containers(workload) for m in c.get("volumeMounts", [])}
            assert used == have

    def test_nothing_runs_as_root_or_writes_its_root(self, folder):
        for workload in of_kind(build(folder), *WORKLOADS):
            pod = workload["spec"]["template"]["spec"]["securityContext"]
            assert pod["runAsNonRoot"] is True
            assert pod["runAsUser"] > 0
            assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in containers(workload):
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "privileged": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }

    def test_everything_has_resources_probes_and_a_grace_period(self, folder):
        for workload in of_kind(build(folder), *WORKLOADS):
            assert workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 30
            for container in containers(workload):
                assert set(container["resources"]["requests"]) == {"cpu", "memory"}
                assert "memory" in container["resources"]["limits"]
                ports = {p["name"] for p in container["ports"]}
                for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                    assert container[probe]["httpGet"]["port"] in ports

    def test_images_are_pinned(self, folder):
        for workload in of_kind(build(folder), *WORKLOADS):
            for container in containers(workload):
                assert re.search(r"(:(?!latest)[\w.-]+|@sha256:[0-9a-f]{64})$", container["image"])

    def test_configuration_is_the_file_that_the_service_is_told(self, folder):
        manifests = build(folder)
        for workload in of_kind(manifests, "Deployment"):
            (container,) = containers(workload)
            path = env(container).get("RESTOW_CONFIG")
            mounted = [v["configMap"]["name"] for v in workload["spec"]["template"]["spec"]["volumes"] if "configMap" in v]
            assert bool(path) == bool(mounted)
            if path:
                assert Path(path).name in named(manifests, "ConfigMap", mounted[0])["data"]


def references(workload: dict) -> set[tuple[str, str]]:
    """Every ConfigMap, Secret, claim and ServiceAccount that the workload names."""
    spec = workload["spec"]["template"]["spec"]
    found = {("ServiceAccount", spec["serviceAccountName"])}
    for volume in spec.get("volumes", []):
        found |= {("ConfigMap", volume["configMap"]["name"])} if "configMap" in volume else set()
        found |= {("Secret", volume["secret"]["secretName"])} if "secret" in volume else set()
        if "persistentVolumeClaim" in volume:
            found.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
    for container in containers(workload):
        for value in env(container).values():
            if isinstance(value, dict) and "secretKeyRef" in value:
                found.add(("Secret", value["secretKeyRef"]["name"]))
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_started_and_configured(service):
    (container,) = containers(named(build("base"), "Deployment", f"restow-{service}"))
    given = env(container)
    user = service.replace("-", "_")
    assert container["command"] == [f"restow-{service}"]
    assert {p["name"]: p["containerPort"] for p in container["ports"]} == {"http": 8080}
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert set(given) <= known_env()
    assert given["RESTOW_NATS_USER"] == user
    assert user in users()
    assert given["RESTOW_NATS_PASSWORD"] == {"secretKeyRef": {"name": "restow-nats", "key": user}}


@pytest.mark.parametrize("folder", ["base", "overlays/dev", "overlays/production"])
def test_a_service_is_told_the_image_that_it_runs_from(folder):
    for workload in of_kind(build(folder), "Deployment"):
        (container,) = containers(workload)
        assert env(container)["RESTOW_IMAGE"] == container["image"]


@pytest.mark.parametrize("folder", ["base", "overlays/dev", "overlays/production"])
def test_the_image_that_is_told_follows_the_one_that_is_pinned(folder, tmp_path):
    """As `kustomize edit set image` pins it, in whichever of them."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    file = tmp_path / "deploy" / folder / "kustomization.yaml"
    said = yaml.safe_load(file.read_text())
    pinned = {"name": "ghcr.io/restow/restow", "newName": "registry.example/restow", "digest": "sha256:" + "0" * 64}
    file.write_text(yaml.safe_dump(said | {"images": [pinned]}))
    for workload in of_kind(build(str(tmp_path / "deploy" / folder)), "Deployment"):
        (container,) = containers(workload)
        assert env(container)["RESTOW_IMAGE"] == container["image"] == f"registry.example/restow@sha256:{'0' * 64}"


def test_entry_points_exist():
    scripts = (ROOT / "pyproject.toml").read_text()
    for service in SERVICES:
        assert f"restow-{service} = " in scripts


def test_the_cluster_is_the_one_that_the_broker_permits():
    subjects = set(re.findall(r'"restow\.(\w+)\.', (DEPLOY / "nats" / "permissions.conf").read_text()))
    (container,) = containers(named(build("base"), "Deployment", "restow-descheduler"))
    assert {env(container)["RESTOW_CLUSTER"]} == subjects


def test_the_deschedulers_api_has_its_token_from_a_secret_that_may_come_later():
    deployment = named(build("base"), "Deployment", "restow-descheduler")
    (container,) = containers(deployment)
    file = Path(env(container)["RESTOW_API_TOKEN_FILE"])
    (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == str(file.parent)]
    (volume,) = [v for v in deployment["spec"]["template"]["spec"]["volumes"] if v["name"] == mount["name"]]
    assert volume["secret"]["optional"] is True
    page = (ROOT / "docs" / "descheduling.md").read_text()
    assert f"--from-literal={file.name}=" in page
    assert volume["secret"]["secretName"] in page


def test_leaders_have_a_standby_and_a_disruption_budget():
    manifests = build("overlays/production")
    for service in set(SERVICES) - {"garbage-collector"}:
        workload = named(manifests, "Deployment", f"restow-{service}")
        assert workload["spec"]["replicas"] == 2
        (spread,) = workload["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["whenUnsatisfiable"] == "DoNotSchedule"
        assert spread["matchLabelKeys"] == ["app.kubernetes.io/name"]
        budget = named(manifests, "PodDisruptionBudget", f"restow-{service}")["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["selector"] == workload["spec"]["selector"]


def test_the_archive_is_written_by_one():
    collector = named(build("base"), "Deployment", "restow-garbage-collector")
    assert collector["spec"]["replicas"] == 1
    assert collector["spec"]["strategy"] == {"type": "Recreate"}
    mounts = {m["mountPath"] for m in containers(collector)[0]["volumeMounts"]}
    assert env(containers(collector)[0])["RESTOW_DATA"] in mounts


def test_production_is_critical_and_never_schedules_itself():
    for workload in of_kind(build("overlays/production"), *WORKLOADS):
        spec = workload["spec"]["template"]["spec"]
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec.get("schedulerName", "default-scheduler") == "default-scheduler"


def test_dev_has_the_crds_and_production_leaves_them_alone():
    assert len(of_kind(build("overlays/dev"), "CustomResourceDefinition")) == 4
    assert of_kind(build("overlays/production"), "CustomResourceDefinition") == []


def test_dev_runs_one_of_each_from_a_local_image():
    for workload in of_kind(build("overlays/dev"), "Deployment"):
        assert workload["spec"]["replicas"] == 1
        assert containers(workload)[0]["image"] == "ghcr.io/restow/restow:dev"
        assert env(containers(workload)[0])["RESTOW_LOG_LEVEL"] == "debug"


# -- the broker ------------------------------------------------------------------------------------------------------


def test_the_broker_has_its_files_its_volume_and_every_password():
    manifests = build("base")
    broker = named(manifests, "StatefulSet", "restow-nats")
    (container,) = containers(broker)
    (volume,) = [v for v in broker["spec"]["template"]["spec"]["volumes"] if v["name"] == "config"]
    assert set(named(manifests, "ConfigMap", volume["configMap"]["name"])["data"]) == {"nats.conf", "permissions.conf"}
    wanted = set()
    for file in ("nats.conf", "permissions.conf"):
        wanted |= set(re.findall(r":\s*\$(RESTOW_\w+)", (DEPLOY / "nats" / file).read_text()))
    assert set(env(container)) == wanted
    for user in users():
        key = env(container)[f"RESTOW_NATS_{user.upper()}_PASSWORD"]
        assert key == {"secretKeyRef": {"name": "restow-nats", "key": user}}
    store = re.search(r'store_dir: "(.+?)"', (DEPLOY / "nats" / "nats.conf").read_text())
    assert store
    assert store[1] in {m["mountPath"] for m in container["volumeMounts"]}


def test_the_broker_is_reached_by_the_services_alone():
    manifests = build("base")
    (rule,) = named(manifests, "NetworkPolicy", "restow-log")["spec"]["ingress"]
    (peer,) = rule["from"]
    for service in SERVICES:
        pods = named(manifests, "Deployment", f"restow-{service}")["spec"]["template"]["metadata"]["labels"]
        assert peer["podSelector"]["matchLabels"].items() <= pods.items()
    deny = named(manifests, "NetworkPolicy", "restow-default-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_way_out_to_hooks_is_the_deschedulers_and_leads_to_pods():
    spec = named(build("hooks"), "NetworkPolicy", "restow-hooks")["spec"]
    pods = named(build("base"), "Deployment", "restow-descheduler")["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= pods.items()
    assert not any(spec["podSelector"]["matchLabels"].items() <= named(build("base"), "Deployment", f"restow-{one}")["spec"]["template"]["metadata"]["labels"].items()
                   for one in SERVICES if one != "descheduler")
    (rule,) = spec["egress"]
    assert rule["to"] == [{"namespaceSelector": {}}]


# -- configuration ---------------------------------------------------------------------------------------------------


def configuration(name: str):
    return yaml.safe_load((DEPLOY / "base" / "config" / name).read_text())


def test_the_descheduler_takes_its_policy():
    policy = configuration("descheduler-policy.yaml")
    (profile,) = policy["profiles"]
    (plugin,) = profile["pluginConfig"]
    assert set(plugin["args"]) == {
        "ResourceType",
        "protectionThresholds",
        "defragmentThresholds",
        "lowThresholds",
        "numberOfNodes",
        "evictableNamespaces",
        "coolDownTime",
    }
    config = policies.read(policy)
    args = config.defragmentation
    assert args.resourceType == "nvidia.com/gpu"
    low, defragment, protection = (
        t[args.resourceType] for t in (args.lowThresholds, args.defragmentThresholds, args.protectionThresholds)
    )
    assert 0 < low < defragment < protection <= 100
    assert {"kube-system", "restow-system"} <= set(args.evictableNamespaces.exclude)
    assert config.interval == 600_000


def test_the_session_takes_its_configuration():
    for path in SCHEDULERS:
        config = conf.read(yaml.safe_load(path.read_text()))
        plugins = {plugin.name: plugin for tier in config.tiers for plugin in tier}
        assert plugins["binpack"].arguments["binpack.weight"] == 10
        assert plugins["nodeorder"].arguments["leastrequested.weight"] == 0
        wanted = ("restow",) if "base" in path.relative_to(DEPLOY).parts else ("restow", "volcano", "koord-scheduler")
        assert config.scheduler_names == wanted
