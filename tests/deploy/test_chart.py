"""The chart: what it makes of its values holds together, and its default is deploy/restow.yaml. Without Helm that file is checked, and the values."""

import base64
import contextlib
import copy
import functools
import json
import operator
import re
import runpy
import ssl
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml
from deploy.manifests import DEPLOY, ROOT, SERVICES, containers, env, named, of_kind, rendered, whole

from restow.kube.placeholder import IMAGE
from restow.runtime import policy_file as policies
from restow.runtime import scheduler_conf as conf
from restow.runtime.settings import Settings, check

CHART = DEPLOY / "chart"
FILES = CHART / "files"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CASES = Path(__file__).with_name("values")
WAYS = ("restow.yaml", "default", *(path.stem for path in sorted(CASES.glob("*.yaml"))))
"""deploy/restow.yaml, the chart with its own values, and with those of each file in tests/deploy/values."""
WORKLOADS = ("Deployment", "StatefulSet")
SCHEDULERS = (FILES / "config" / "volcano-scheduler.conf", DEPLOY / "compose" / "volcano-scheduler.conf")
GIVEN = {"restow-nats", "restow-descheduler-api", "my-passwords", "my-token", "my-access", "restow-webhook-tls", "my-claim", "my-bucket", "my-authority", "my-headers"}
"""Secrets and a claim that their owner makes, where the values say so; docs/install.md says how."""


def made(way: str) -> tuple[dict, ...]:
    if way == "restow.yaml":
        return whole()
    return rendered(*([] if way == "default" else ["--values", str(CASES / f"{way}.yaml")]))


def known_env() -> set[str]:
    """What a service reads from its environment."""
    return {f"RESTOW_{name.upper()}" for name in Settings.__struct_fields__}


def users() -> set[str]:
    """The users of the broker, as its permissions name them."""
    return set(re.findall(r"^\s+user: (\w+)", (FILES / "nats" / "permissions.conf").read_text(), re.MULTILINE))


# -- in every way --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
class TestEveryWay:
    def test_has_every_service(self, way):
        names = {w["metadata"]["name"] for w in of_kind(made(way), *WORKLOADS)}
        assert {f"restow-{s}" for s in SERVICES} <= names <= {f"restow-{s}" for s in SERVICES} | {"restow-nats", "restow-webhook", "restow-console", "restow-traces"}

    def test_everything_has_a_namespace_and_the_label_that_restow_uninstall_goes_by(self, way):
        for manifest in made(way):
            assert manifest["metadata"]["labels"]["app.kubernetes.io/part-of"] == "restow", manifest["metadata"]["name"]
            clustered = manifest["kind"] in {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"} or "admissionregistration" in manifest["apiVersion"]
            assert clustered or manifest["metadata"]["namespace"] in {"restow-system", "restow-holds", "restow-holds-ports", "shop"}, manifest["metadata"]["name"]

    def test_no_two_objects_have_one_name(self, way):
        keys = [(m["apiVersion"], m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in made(way)]
        assert len(keys) == len(set(keys))

    def test_every_reference_leads_somewhere(self, way):
        manifests = made(way)
        have = {(m["kind"], m["metadata"]["name"]) for m in manifests} | {(kind, one) for one in GIVEN for kind in ("Secret", "PersistentVolumeClaim")}
        for workload in of_kind(manifests, *WORKLOADS):
            for wanted in references(workload):
                assert wanted in have, f"{workload['metadata']['name']}: {wanted}"

    def test_selectors_select_the_pods(self, way):
        for workload in of_kind(made(way), *WORKLOADS):
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()

    def test_volumes_and_mounts_match(self, way):
        for workload in of_kind(made(way), *WORKLOADS):
            spec = workload["spec"]["template"]["spec"]
            have = {v["name"] for v in spec.get("volumes", [])}
            have |= {c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", [])}
            used = {m["name"] for c in containers(workload) for m in c.get("volumeMounts", [])}
            assert used == have

    def test_nothing_runs_as_root_or_writes_its_root(self, way):
        for workload in of_kind(made(way), *WORKLOADS):
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

    def test_everything_has_resources_probes_and_a_grace_period(self, way):
        for workload in of_kind(made(way), *WORKLOADS):
            hook, console, traces = (workload["metadata"]["name"] == f"restow-{name}" for name in ("webhook", "console", "traces"))
            assert workload["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30) >= (15 if hook else 30)
            for container in containers(workload):
                assert set(container["resources"]["requests"]) >= {"cpu", "memory"}
                assert "memory" in container["resources"]["limits"]
                if traces:
                    assert not {"ports", "livenessProbe"} & set(container), "it answers nobody, and ends where it cannot go on"
                    continue
                if console:
                    assert all("exec" in container[probe] for probe in ("livenessProbe", "readinessProbe")), "on loopback a kubelet asks for nothing"
                    continue
                ports = {p["name"] for p in container["ports"]}
                for probe in ("livenessProbe", "readinessProbe", *([] if hook else ["startupProbe"])):
                    assert container[probe]["httpGet"]["port"] in ports

    def test_images_are_pinned_and_the_log_is_told_which_one_decides(self, way):
        for workload in of_kind(made(way), *WORKLOADS):
            for container in containers(workload):
                assert re.search(r"(:(?!latest)[\w.-]+|@sha256:[0-9a-f]{64})$", container["image"])
                assert env(container).get("RESTOW_IMAGE", container["image"]) == container["image"]

    def test_configuration_is_the_file_that_the_service_is_told_and_one_that_it_takes(self, way):
        manifests = made(way)
        for workload in of_kind(manifests, "Deployment"):
            (container,) = containers(workload)
            path = env(container).get("RESTOW_CONFIG")
            mounted = [v["configMap"]["name"] for v in workload["spec"]["template"]["spec"]["volumes"] if "configMap" in v]
            assert bool(path) == bool(mounted)
            if path:
                said = yaml.safe_load(named(manifests, "ConfigMap", mounted[0])["data"][Path(path).name])
                read = {"descheduler-policy.yaml": policies.read, "volcano-scheduler.conf": conf.read}.get(Path(path).name)
                assert said
                assert read is None or read(said)

    def test_a_service_is_started_and_configured(self, way):
        broker = named(made(way), "StatefulSet", "restow-nats") if of_kind(made(way), "StatefulSet") else None
        for service in SERVICES:
            (container,) = containers(named(made(way), "Deployment", f"restow-{service}"))
            given = env(container)
            user = service.replace("-", "_")
            assert container["command"] == [f"restow-{service}"]
            assert {p["name"]: p["containerPort"] for p in container["ports"]} == {"http": 8080}
            assert (container["livenessProbe"]["httpGet"]["path"], container["readinessProbe"]["httpGet"]["path"]) == ("/livez", "/readyz")
            assert {name for name in given if name.startswith("RESTOW_")} <= known_env()
            assert given["RESTOW_NATS_USER"] == user
            assert user in users()
            assert given["RESTOW_NATS_PASSWORD"]["secretKeyRef"]["key"] == user
            if broker is not None:
                assert env(containers(broker)[0])[f"RESTOW_NATS_{user.upper()}_PASSWORD"] == given["RESTOW_NATS_PASSWORD"]

    def test_the_cluster_is_the_one_that_the_broker_permits(self, way):
        if of_kind(made(way), "StatefulSet"):
            subjects = set(re.findall(r'"restow\.(\w+)\.', named(made(way), "ConfigMap", "restow-nats")["data"]["permissions.conf"]))
            assert {env(containers(named(made(way), "Deployment", f"restow-{s}"))[0])["RESTOW_CLUSTER"] for s in SERVICES} == subjects

    def test_a_stolen_account_is_guarded(self, way):
        """Whoever may patch other people's pods may change its own keys only."""
        assert [one["spec"]["validationActions"] for one in of_kind(made(way), "ValidatingAdmissionPolicyBinding") if one["metadata"]["name"] == "restow-guard"] == [["Deny"]]

    def test_leaders_have_a_standby_and_a_disruption_budget(self, way):
        for service in SERVICES:
            workload = named(made(way), "Deployment", f"restow-{service}")
            if workload["spec"]["replicas"] > 1:
                budget = named(made(way), "PodDisruptionBudget", f"restow-{service}")["spec"]
                assert budget["maxUnavailable"] == 1
                assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
                assert budget["selector"] == workload["spec"]["selector"]
                assert workload["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}

    def test_the_console_reads_the_log_and_nothing_else_and_nobody_reaches_it_but_by_a_forwarded_port(self, way):
        if "restow-console" not in {one["metadata"]["name"] for one in of_kind(made(way), "Deployment")}:
            assert way == "no-console"
            return
        workload = named(made(way), "Deployment", "restow-console")
        spec, (container,) = workload["spec"]["template"]["spec"], containers(workload)
        assert spec["automountServiceAccountToken"] is False
        assert "serviceAccountName" not in spec
        assert "ports" not in container
        assert container["command"][:2] == ["restow", "console"]
        assert not {"--published"} & set(container["command"])
        given = env(container)
        assert (given["RESTOW_NATS_USER"], given["RESTOW_NATS_PASSWORD"]["secretKeyRef"]["key"]) == ("console", "console")
        policies_ = {m["metadata"]["name"]: m["spec"] for m in of_kind(made(way), "NetworkPolicy")}
        if policies_:
            own, services = policies_["restow-console"], policies_["restow-services"]
            pods = workload["spec"]["template"]["metadata"]["labels"]
            assert own["podSelector"]["matchLabels"].items() <= pods.items()
            assert not services["podSelector"]["matchLabels"].items() <= pods.items()
            assert (own["policyTypes"], own.get("ingress")) == (["Ingress", "Egress"], None)
            beyond = [rule for rule in own["egress"] if rule not in services["egress"]]
            descheduler = [{"to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "restow-descheduler"}}}], "ports": [{"protocol": "TCP", "port": "http"}]}]
            assert beyond == (descheduler if way == "approve" else [])
            assert not any(port["port"] in (443, 6443) for rule in own["egress"] for port in rule["ports"])

    def test_the_archive_is_written_by_one_unless_several_can_have_it(self, way):
        collector = named(made(way), "Deployment", "restow-garbage-collector")
        given = env(containers(collector)[0])
        mounts = {m["mountPath"] for m in containers(collector)[0]["volumeMounts"]}
        several = way in {"bucket", "shared-volume"}
        assert (collector["spec"]["replicas"], collector["spec"]["strategy"]["type"]) == ((2, "RollingUpdate") if several else (1, "Recreate"))
        assert ("RESTOW_ARCHIVE" in given) == (way == "bucket")
        assert (given.get("RESTOW_DATA") in mounts) == (way != "bucket")

    def test_the_broker_has_its_files_its_volume_and_every_password(self, way):
        if not of_kind(made(way), "StatefulSet"):
            pytest.skip("these values have a broker of their own")
        broker = named(made(way), "StatefulSet", "restow-nats")
        (container,) = containers(broker)
        (volume,) = [v for v in broker["spec"]["template"]["spec"]["volumes"] if v["name"] == "config"]
        files = named(made(way), "ConfigMap", volume["configMap"]["name"])["data"]
        started = Path(container["command"][2]).name
        included = {name for text in files.values() for name in re.findall(r"^include \./(\S+)", text, re.MULTILINE)}
        assert set(files) == {started} | included
        assert set(env(container)) == {name for text in files.values() for name in re.findall(r":\s*\$(RESTOW_\w+)", text)}
        keys = {value["secretKeyRef"]["key"] for name, value in env(container).items() if name.endswith("_PASSWORD")}
        assert keys == users() | ({"route"} if broker["spec"]["replicas"] > 1 else set())
        store = re.search(r'^  store_dir: "(.+?)"\n  max_file_store: \d+$', files["nats.conf"], re.MULTILINE)
        assert store
        assert store[1] in {m["mountPath"] for m in container["volumeMounts"]}

    def test_the_broker_is_reached_by_the_services_alone(self, way):
        policies_ = {m["metadata"]["name"]: m["spec"] for m in of_kind(made(way), "NetworkPolicy")}
        if "restow-log" not in policies_:
            return
        rule, *_ = policies_["restow-log"]["ingress"]
        (peer,) = rule["from"]
        (component,) = peer["podSelector"]["matchExpressions"]
        for service in SERVICES:
            pods = named(made(way), "Deployment", f"restow-{service}")["spec"]["template"]["metadata"]["labels"]
            assert peer["podSelector"]["matchLabels"].items() <= pods.items()
            assert (component["key"], component["operator"]) == ("app.kubernetes.io/component", "In")
            assert pods[component["key"]] in component["values"]
            assert policies_["restow-services"]["podSelector"]["matchLabels"].items() <= pods.items()
        for name in ("restow-log", "restow-services"):
            assert policies_[name]["policyTypes"] == ["Ingress", "Egress"]


def references(workload: dict) -> set[tuple[str, str]]:
    """Every ConfigMap, Secret, claim and ServiceAccount that the workload names."""
    spec = workload["spec"]["template"]["spec"]
    found = {("ServiceAccount", spec["serviceAccountName"])} if "serviceAccountName" in spec else set()
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


# -- values --------------------------------------------------------------------------------------------------------------


def refusals(values: dict) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


def merged(base: dict, more: dict) -> dict:
    """As Helm merges values."""
    return base | {key: merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value for key, value in more.items()}


@pytest.mark.parametrize("path", [None, *sorted(CASES.glob("*.yaml"))], ids=lambda path: path.stem if path else "default")
def test_values_are_what_the_schema_says(path):
    assert refusals(merged(VALUES, yaml.safe_load(path.read_text()) if path else {})) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 3}, {"image": {"digest": "abc"}}, {"defaults": {"replicas": 0}}, {"garbageCollector": {"replicas": 2}}, {"cluster": "Main"},
        {"nats": {"enabled": False}}, {"nats": {"url": "http://broker"}}, {"nats": {"url": "nats://user:password@broker"}}, {"beside": {"gate": "none"}},
        {"networkPolicy": {"apiServerPorts": []}}, {"descheduler": {"resources": {"requests": {"cpu": "much"}}}}, {"logLevel": "trace"},
        {"nats": {"tls": {"enabled": True, "certificate": "existing"}}}, {"nats": {"enabled": False, "url": "nats://b", "existingSecret": "s", "tls": {"enabled": True}}},
        {"beside": {"enabled": True, "gate": "webhook", "webhook": {"certificate": "existing"}}},
        {"garbageCollector": {"archive": {"bucket": "s3://backups"}}}, {"garbageCollector": {"archive": {"endpoint": "https://key:secret@minio"}}},
        {"traces": {"enabled": True}}, {"traces": {"share": 2}}, {"traces": {"endpoint": "collector:4318"}}, {"traces": {"endpoint": "http://user:password@collector"}},
        {"garbageCollector": {"storage": {"accessMode": "ReadOnlyMany"}}}, {"garbageCollector": {"archive": {"prefix": "/restow"}}},
        {"garbageCollector": {"archive": {"prefix": "restow/../other"}}}, {"garbageCollector": {"archive": {"prefix": "/".join("abcdefghijklmnopqrst")}}},
        {"nats": {"tls": {"enabled": True, "existingSecret": "mine"}}}, {"nats": {"tls": {"enabled": True, "certificate": "cert-manager", "existingSecret": "mine"}}},
        {"nats": {"tls": {"enabled": True, "caOnly": True}}}, {"nats": {"keys": True}}, {"beside": {"claimNamespaces": ["A_B"]}},
        {"garbageCollector": {"archive": {"bucket": "back..ups"}}}, {"networkPolicy": {"collectorPorts": [0]}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_values_that_mean_nothing_are_refused(wrong):
    assert refusals(merged(VALUES, wrong))


def test_a_part_of_the_values_that_is_null_is_refused_by_its_name():
    """Helm takes its defaults away, as where all below it is a comment: `nil pointer evaluating interface {}.enabled`, somewhere in a template."""

    def parts(schema: dict, values: dict, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for name, one in values.items():
            if isinstance(one, dict) and "properties" in schema["properties"].get(name, {}):
                yield (*path, name)
                yield from parts(schema["properties"][name], one, (*path, name))

    found = list(parts(SCHEMA, VALUES))
    assert ("nats", "tls") in found
    for *above, name in found:
        values = copy.deepcopy(VALUES)
        inner = functools.reduce(operator.getitem, above, values)
        del inner[name]
        assert f"'{name}' is a required property" in refusals(values)


def test_every_value_is_in_the_schema_and_every_one_of_the_schema_has_a_default_or_is_one_of_every_service():
    def keys(schema: dict, values: dict, path: str = "") -> set[str]:
        assert set(values) <= set(schema["properties"]), path
        more = set(schema["properties"]) - set(values)
        return more | {key for name, one in values.items() if isinstance(one, dict) and "properties" in schema["properties"][name] for key in keys(schema["properties"][name], one, f"{path}.{name}")}

    assert keys(SCHEMA, VALUES) <= set(VALUES["defaults"]) | {"global"}


def test_the_chart_is_the_releases():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert chart["version"] == chart["appVersion"] == version[1]


def test_restow_yaml_is_the_charts_default():
    rendered()
    assert runpy.run_path(str(DEPLOY / "render.py"))["whole"]() == (DEPLOY / "restow.yaml").read_text(), "run `make manifests`"


def test_restow_yaml_has_no_secret_and_a_namespace_that_is_restricted():
    assert of_kind(whole(), "Secret") == []
    labels = named(whole(), "Namespace", "restow-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not re.search("helm.sh|managed-by: Helm", (DEPLOY / "restow.yaml").read_text())


@pytest.mark.parametrize("path", sorted(p for p in FILES.rglob("*.yaml") if not {"config", "monitoring"} & set(p.parts)), ids=lambda p: str(p.relative_to(FILES)))
def test_every_file_is_yaml_with_kind_and_name(path: Path):
    for manifest in yaml.safe_load_all(path.read_text()):
        assert manifest["apiVersion"]
        assert manifest["kind"]
        assert manifest["kind"] == "Kustomization" or manifest["metadata"]["name"]


# -- what values do ------------------------------------------------------------------------------------------------------


def test_a_password_and_a_token_are_made_for_whom_the_values_give_none():
    first, second = (rendered(*more) for more in ((), ("--set", "logLevel=info")))
    secret = named(first, "Secret", "restow-nats")["data"]
    assert set(secret) == users() | {"route"}
    assert len(set(secret.values())) == len(users()) + 1
    assert secret != named(second, "Secret", "restow-nats")["data"]
    token = named(first, "Secret", "restow-descheduler-api")["data"]["token"]
    assert len(token) >= 48


def test_with_secrets_and_certificates_of_ones_own_every_rendering_is_the_same():
    """Who only renders the chart, as Argo CD does, would roll everything out each time (docs/install.md, Secrets)."""
    own = "nats.existingSecret=a,descheduler.api.existingSecret=b,nats.tls.certificate=existing,nats.tls.existingSecret=c,beside.webhook.certificate=cert-manager"
    more = "nats.replicas=3,nats.tls.enabled=true,beside.enabled=true,beside.gate=webhook,traces.enabled=true,traces.endpoint=http://c"
    first, second = rendered("--set", f"{own},{more}"), rendered("--set", f"{more},{own}")
    assert first == second
    assert {m["metadata"]["name"] for m in of_kind(first, "Secret")} == set()


def test_pods_are_started_anew_with_other_passwords_and_brokers_with_another_certificate():
    """They read them when they start: `helm rollback` behind other passwords had put those of before into the Secret, and every pod that was started later was refused."""
    values = ("--set", "nats.tls.enabled=true,traces.enabled=true,traces.endpoint=http://c", "--set", "defaults.podAnnotations.mine=yes")
    first, second = rendered(*values), rendered(*values, "--set", "logLevel=debug")

    def sums(manifests, what):
        found = {m["metadata"]["name"]: m["spec"]["template"]["metadata"].get("annotations", {}).get(f"checksum/{what}") for m in of_kind(manifests, "Deployment", "StatefulSet")}
        return {name: one for name, one in found.items() if one}

    assert set(sums(first, "passwords")) == {"restow-nats", "restow-console", "restow-traces", *(f"restow-{service}" for service in SERVICES)}
    assert len(set(sums(first, "passwords").values())) == len(set(sums(second, "passwords").values())) == 1
    assert set(sums(first, "passwords").values()) != set(sums(second, "passwords").values())
    assert set(sums(first, "certificate")) == {"restow-nats"}
    assert sums(first, "certificate") != sums(second, "certificate")
    assert named(first, "Deployment", "restow-console")["spec"]["template"]["metadata"]["annotations"]["mine"] == "yes"
    assert not sums(rendered("--set", "nats.existingSecret=mine"), "passwords"), "who only renders does not see it"


def test_plans_are_approved_from_the_console_only_with_an_access_file_and_by_a_token_that_may_do_nothing_else():
    only_shows = rendered()
    assert not {"restow-console-answers", "restow-descheduler"} & {m["metadata"]["name"] for m in of_kind(only_shows, "Secret", "Service")}
    assert not {"RESTOW_CONSOLE_ACCESS", "RESTOW_DESCHEDULER"} & set(env(containers(named(only_shows, "Deployment", "restow-console"))[0]))
    assert "RESTOW_ANSWERS_TOKEN_FILE" not in env(containers(named(only_shows, "Deployment", "restow-descheduler"))[0])
    approves = rendered("--set", "console.access.existingSecret=mine")
    assert len(named(approves, "Secret", "restow-console-answers")["data"]["token"]) >= 48
    console, descheduler = (named(approves, "Deployment", f"restow-{name}") for name in ("console", "descheduler"))
    given, taken = env(containers(console)[0]), env(containers(descheduler)[0])

    def secret(deployment, file):
        (mount,) = [m for m in containers(deployment)[0]["volumeMounts"] if m["mountPath"] == str(Path(file).parent)]
        (volume,) = [v for v in deployment["spec"]["template"]["spec"]["volumes"] if v["name"] == mount["name"]]
        return volume["secret"]["secretName"]

    assert secret(console, given["RESTOW_CONSOLE_ACCESS"]) == "mine"
    assert secret(console, given["RESTOW_API_TOKEN_FILE"]) == secret(descheduler, taken["RESTOW_ANSWERS_TOKEN_FILE"]) == "restow-console-answers"
    assert secret(descheduler, taken["RESTOW_API_TOKEN_FILE"]) == "restow-descheduler-api"
    service = named(approves, "Service", "restow-descheduler")["spec"]
    assert given["RESTOW_DESCHEDULER"] == "http://restow-descheduler:8080"
    assert (service["clusterIP"], service["ports"][0]["port"]) == ("None", 8080)
    assert service["selector"].items() <= descheduler["spec"]["template"]["metadata"]["labels"].items()
    (allowed,) = [m["spec"] for m in of_kind(approves, "NetworkPolicy") if m["metadata"]["name"] == "restow-answers"]
    assert allowed["ingress"][0]["from"][0]["podSelector"]["matchLabels"].items() <= console["spec"]["template"]["metadata"]["labels"].items()


def test_the_deschedulers_api_has_its_token_from_a_secret_that_may_come_later():
    deployment = named(whole(), "Deployment", "restow-descheduler")
    (container,) = containers(deployment)
    file = Path(env(container)["RESTOW_API_TOKEN_FILE"])
    (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == str(file.parent)]
    (volume,) = [v for v in deployment["spec"]["template"]["spec"]["volumes"] if v["name"] == mount["name"]]
    assert volume["secret"]["optional"] is True
    page = (ROOT / "docs" / "descheduling.md").read_text()
    assert f"--from-literal={file.name}=" in page
    assert volume["secret"]["secretName"] in page


def test_traces_are_sent_by_a_reader_of_the_log_that_nobody_reaches_and_by_the_services_of_what_they_measure():
    manifests = made("everything")
    workload = named(manifests, "Deployment", "restow-traces")
    spec, (container,) = workload["spec"]["template"]["spec"], containers(workload)
    assert (workload["spec"]["replicas"], workload["spec"]["strategy"]["type"]) == (1, "Recreate"), "two would send everything twice"
    assert container["command"] == ["restow", "trace", "--follow", "--share", "0.25"]
    assert (spec["automountServiceAccountToken"], "serviceAccountName" in spec) == (False, False)
    given = env(container)
    assert (given["RESTOW_NATS_USER"], given["RESTOW_NATS_PASSWORD"]["secretKeyRef"]["key"]) == ("console", "console")
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.monitoring:4318", "OTEL_EXPORTER_OTLP_HEADERS": {"secretKeyRef": {"name": "my-headers", "key": "headers"}}}
    assert told.items() <= given.items()
    for service in SERVICES:
        share = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
        assert (told | share).items() <= env(containers(named(manifests, "Deployment", f"restow-{service}"))[0]).items()
    policies_ = {m["metadata"]["name"]: m["spec"] for m in of_kind(manifests, "NetworkPolicy")}
    own, services, log = (policies_[f"restow-{name}"] for name in ("traces", "services", "log"))
    collector = {"ports": [{"protocol": "TCP", "port": 4318}]}
    assert own["podSelector"]["matchLabels"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    assert (own["policyTypes"], own.get("ingress"), own["egress"][-1]) == (["Ingress", "Egress"], None, collector)
    assert not any(port["port"] in (443, 6443) for rule in own["egress"] for port in rule["ports"])
    assert collector in services["egress"]
    assert "traces" in log["ingress"][0]["from"][0]["podSelector"]["matchExpressions"][0]["values"]


@pytest.mark.parametrize(("endpoint", "port"), [("https://otlp.example", 443), ("http://collector", 80), ("https://otlp.example:8443/otlp", 8443)])
def test_the_port_of_the_collector_is_the_one_that_its_address_means(endpoint, port):
    manifests = rendered("--set", f"traces.enabled=true,traces.services=false,traces.endpoint={endpoint}")
    assert named(manifests, "NetworkPolicy", "restow-traces")["spec"]["egress"][-1] == {"ports": [{"protocol": "TCP", "port": port}]}
    assert {"ports": [{"protocol": "TCP", "port": port}]} not in named(manifests, "NetworkPolicy", "restow-services")["spec"]["egress"]
    assert not any("OTEL_EXPORTER_OTLP_ENDPOINT" in env(containers(named(manifests, "Deployment", f"restow-{service}"))[0]) for service in SERVICES)


def test_what_every_service_has_is_overridden_by_what_one_has():
    manifests = made("everything")
    session = named(manifests, "Deployment", "restow-scheduler-session")["spec"]["template"]
    watcher = named(manifests, "Deployment", "restow-cluster-watcher")["spec"]["template"]
    assert (session["spec"]["priorityClassName"], watcher["spec"]["priorityClassName"]) == ("mine", "system-cluster-critical")
    for template in (session, watcher):
        assert template["spec"]["nodeSelector"] == {"pool": "system"}
        assert template["metadata"]["annotations"]["example.com/team"] == "batch"
        assert env(template["spec"]["containers"][0])["HTTPS_PROXY"] == "http://proxy:3128"
    assert session["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}


def test_the_session_is_told_the_image_of_placeholders_where_one_is_named():
    def told(way: str) -> dict[str, str]:
        said = {one["metadata"]["name"]: env(one["spec"]["template"]["spec"]["containers"][0]).get("RESTOW_PLACEHOLDER_IMAGE") for one in of_kind(made(way), "Deployment")}
        return {name: image for name, image in said.items() if image}

    assert told("everything") == {"restow-scheduler-session": "registry.example/pause:3.10"}
    assert told("default") == {}


def test_the_guard_of_placeholders_lets_the_image_pass_that_the_session_is_told():
    def passes(*more: str) -> list[str]:
        guard = named(rendered("--set", "beside.enabled=true,beside.claimNamespaces={shop}", *more), "ValidatingAdmissionPolicy", "restow-guard-placeholders")
        return [one["expression"] for one in guard["spec"]["variables"] if one["name"] == "image"]

    assert passes() == [f'"{IMAGE}"']
    assert passes("--set", "beside.image=registry.example/pause:3.10") == ['"registry.example/pause:3.10"']


def test_a_bucket_takes_the_volumes_place_and_the_collector_is_as_many_as_the_others():
    manifests, others = made("bucket"), named(made("bucket"), "Deployment", "restow-descheduler")
    collector = named(manifests, "Deployment", "restow-garbage-collector")
    assert of_kind(manifests, "PersistentVolumeClaim") == []
    for one in ("replicas", "strategy"):
        assert collector["spec"][one] == others["spec"][one]
    (container,) = containers(collector)
    given = {name: value for name, value in env(container).items() if name.startswith("AWS_")}
    secret = {name: {"secretKeyRef": {"name": "my-bucket", "key": name}} for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    bundle = given.pop("AWS_CA_BUNDLE")
    assert str(Path(bundle).parent) in {m["mountPath"] for m in container["volumeMounts"]}
    assert given == secret | {"AWS_ENDPOINT_URL": "https://minio.storage.svc:9000", "AWS_REGION": "eu-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value if isinstance(value, str) else "x")
        assert check({"archive": env(container)["RESTOW_ARCHIVE"]}).archive_of("main") == "s3://backups/restow/eu/main"
    (rule,) = named(manifests, "NetworkPolicy", "restow-archive")["spec"]["egress"]
    assert rule == {"ports": [{"protocol": "TCP", "port": 9000}]}
    for service in set(SERVICES) - {"garbage-collector"}:
        assert not [name for name in env(containers(named(manifests, "Deployment", f"restow-{service}"))[0]) if name.startswith("AWS_")]


def test_a_collector_with_a_role_of_its_account_has_no_secret_and_its_account_names_the_role():
    manifests = rendered("--set", "garbageCollector.archive.bucket=backups,garbageCollector.archive.prefix=", "--set-json", 'garbageCollector.serviceAccountAnnotations={"eks.amazonaws.com/role-arn":"arn"}')
    given = env(containers(named(manifests, "Deployment", "restow-garbage-collector"))[0])
    assert given["RESTOW_ARCHIVE"] == "s3://backups"
    plain = rendered("--set", "garbageCollector.archive.bucket=backups,garbageCollector.archive.endpoint=http://minio")
    assert env(containers(named(plain, "Deployment", "restow-garbage-collector"))[0])["AWS_ALLOW_HTTP"] == "true"
    assert {port["port"] for port in named(plain, "NetworkPolicy", "restow-archive")["spec"]["egress"][0]["ports"]} == {443, 80}
    assert not [name for name in given if name.startswith("AWS_")]
    accounts = {m["metadata"]["name"]: m["metadata"].get("annotations") for m in of_kind(manifests, "ServiceAccount")}
    assert {name: notes for name, notes in accounts.items() if notes} == {"restow-garbage-collector": {"eks.amazonaws.com/role-arn": "arn"}}
    assert {port["port"] for port in named(manifests, "NetworkPolicy", "restow-archive")["spec"]["egress"][0]["ports"]} == {443, 80}


def test_what_is_reached_by_a_service_with_other_ports_than_its_pods_is_let_through_by_these():
    values = {"collectorPorts": [4319], "bucketPorts": [9001, 9002], "natsPorts": [14222]}
    manifests = rendered(
        "--set", "nats.enabled=false,nats.url=nats://broker,nats.existingSecret=s,traces.enabled=true,traces.endpoint=http://collector,garbageCollector.archive.bucket=backups",
        "--set", "garbageCollector.archive.endpoint=https://minio,garbageCollector.archive.existingSecret=keys", "--set-json", f"networkPolicy={json.dumps(values)}",
    )  # fmt: skip

    def ports(name: str) -> list[list[int]]:
        return [[port["port"] for port in rule["ports"]] for rule in named(manifests, "NetworkPolicy", name)["spec"]["egress"]]

    assert ports("restow-archive") == [[9001, 9002]]
    assert [4319] in ports("restow-traces")
    assert [4319] in ports("restow-services")
    assert all([14222] in ports(name) for name in ("restow-traces", "restow-services", "restow-console"))
    assert not any([port] in ports(name) for name in ("restow-traces", "restow-services") for port in (80, 443, 4222))


def test_an_upgrade_leaves_each_of_three_brokers_time_to_fetch_what_it_has_missed():
    assert named(rendered("--set", "nats.replicas=3"), "StatefulSet", "restow-nats")["spec"]["minReadySeconds"] == 10
    assert "minReadySeconds" not in named(rendered(), "StatefulSet", "restow-nats")["spec"]


def test_whoever_answers_for_names_is_reached_by_every_pod_that_asks():
    """NodeLocal DNSCache is no pod with kube-dns's label, and OpenShift's listens elsewhere."""
    dns = {"dns": {"peers": [{"ipBlock": {"cidr": "169.254.20.10/32"}}], "ports": [5353]}}
    manifests = rendered(
        "--set", "nats.replicas=3,traces.enabled=true,traces.endpoint=http://collector,beside.enabled=true,beside.gate=webhook", "--set-json", f"networkPolicy={json.dumps(dns)}"
    )
    rule = {"to": dns["dns"]["peers"], "ports": [{"protocol": protocol, "port": 5353} for protocol in ("UDP", "TCP")]}
    asking = {one["metadata"]["name"] for one in of_kind(manifests, "NetworkPolicy") if rule in one["spec"].get("egress", ())}
    assert asking == {"restow-services", "restow-log", "restow-console", "restow-traces", "restow-webhook"}
    assert "kube-dns" not in json.dumps(manifests)


def test_a_volume_for_several_is_asked_for_as_that():
    (claim,) = of_kind(made("shared-volume"), "PersistentVolumeClaim")
    assert (claim["spec"]["accessModes"], claim["spec"]["storageClassName"]) == (["ReadWriteMany"], "cephfs")


def test_production_is_critical_and_never_schedules_itself():
    for workload in of_kind(whole(), *WORKLOADS):
        if workload["metadata"]["name"] == "restow-console":
            continue
        assert workload["metadata"]["name"] != "restow-traces", "off by default"
        spec = workload["spec"]["template"]["spec"]
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec["schedulerName"] == "default-scheduler"


def test_a_second_installation_has_everything_of_its_own_and_shares_what_both_have():
    """What both would have under one name is the same."""
    everything = [*("--set", "beside.enabled=true,beside.hostPorts=true,beside.claimNamespaces={shop,ml},autoscalers.enabled=true")]
    first, second = rendered(*everything), rendered(*everything, "--set", "shared=false", namespace="restow-second")
    keys = [{(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests} for manifests in (first, second)]
    assert keys[0] & keys[1] == set()
    common = {"Namespace", "ClusterRole", "CustomResourceDefinition"}
    assert [m["metadata"]["name"] for m in second if m["kind"] in common or "admissionregistration" in m["apiVersion"]] == []
    roles = {(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in of_kind(first, "Role", "ClusterRole")}
    for binding in of_kind(second, "ClusterRoleBinding", "RoleBinding"):
        assert {s["namespace"] for s in binding["subjects"]} == {"restow-second"}
        where = binding["metadata"].get("namespace")
        role = (binding["roleRef"]["kind"], where, binding["roleRef"]["name"])
        assert role in roles or where == "restow-second"
    assert len(of_kind(first, "ClusterRoleBinding", "RoleBinding")) == len(of_kind(second, "ClusterRoleBinding", "RoleBinding"))
    assert "restow-system" not in yaml.safe_dump_all(second)


def test_in_each_namespace_whose_pods_may_move_with_claims_the_services_have_rights():
    made = rendered("--set", "beside.enabled=true,beside.claimNamespaces={shop,ml}")
    places = [m["metadata"]["namespace"] for m in made if m["kind"] in ("Role", "RoleBinding") and m["metadata"]["name"] == "restow-scheduler-session-claims"]
    assert sorted(places) == ["ml", "ml", "shop", "shop"]
    for name in ("restow-guard-claims", "restow-guard-placeholders", "restow-guard-priorities"):
        assert named(made, "ValidatingAdmissionPolicy", name)
    assert not [m for m in rendered("--set", "beside.enabled=true") if "claims" in m["metadata"]["name"]]


def test_the_webhook_takes_the_policys_place_and_everything_else_is_the_same():
    policy, hook = (rendered("--set", f"beside.enabled=true,beside.gate={gate}") for gate in ("policy", "webhook"))
    keys = [{(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in manifests} for manifests in (policy, hook)]
    assert keys[0] - keys[1] == {(kind, "", "restow-landing") for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")}
    assert {kind for kind, _, name in keys[1] - keys[0] if name == "restow-landing"} == {"MutatingWebhookConfiguration"}
    assert {name for _, _, name in keys[1] - keys[0]} == {"restow-landing", "restow-webhook", "restow-webhook-tls"}
    asked = named(policy, "MutatingAdmissionPolicy", "restow-landing")["spec"]["matchConstraints"]
    (said,) = named(hook, "MutatingWebhookConfiguration", "restow-landing")["webhooks"]
    assert (said["failurePolicy"], said["timeoutSeconds"], said["sideEffects"], said["reinvocationPolicy"]) == ("Ignore", 1, "None", "Never")
    assert [said[one] for one in ("rules", "namespaceSelector", "objectSelector")] == [asked[one] for one in ("resourceRules", "namespaceSelector", "objectSelector")]
    assert said["clientConfig"]["caBundle"] == named(hook, "Secret", "restow-webhook-tls")["data"]["tls.crt"]
    assert named(hook, "ClusterRole", "restow-webhook")["rules"] == [{"apiGroups": ["restow.dev"], "resources": ["landings"], "verbs": ["list", "watch"]}]


def test_cert_managers_certificate_is_for_its_service_and_in_the_secret_that_it_reads():
    manifests = rendered("--set", "beside.enabled=true,beside.gate=webhook,beside.webhook.certificate=cert-manager")
    certificate, service = named(manifests, "Certificate", "restow-webhook"), named(manifests, "Service", "restow-webhook")
    meta, workload = service["metadata"], named(manifests, "Deployment", "restow-webhook")
    assert certificate["spec"]["dnsNames"] == [f"{meta['name']}.{meta['namespace']}.svc"]
    (volume,) = workload["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    annotations = named(manifests, "MutatingWebhookConfiguration", "restow-landing")["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": f"{meta['namespace']}/{certificate['metadata']['name']}"}


@pytest.mark.parametrize(("size", "most"), [("100Gi", 100 << 30), ("0.5Ti", 512 << 30), ("500G", 500 * 10**9), ("250Mi", 250 << 20), ("107374182400", 100 << 30)])
def test_the_brokers_store_is_full_a_little_before_its_volume_is_whatever_was_free_when_it_started(size, most):
    config = named(rendered("--set", f"nats.storage.size={size}"), "ConfigMap", "restow-nats")["data"]["nats.conf"]
    (limit,) = re.findall(r"^  max_file_store: (\d+)$", config, re.MULTILINE)
    assert int(limit) == pytest.approx(0.85 * most, abs=1)


def test_three_brokers_know_each_other_and_the_services_know_all_three_by_the_names_of_their_certificate():
    manifests = made("three")
    broker = named(manifests, "StatefulSet", "restow-nats")
    (container,) = containers(broker)
    routes = re.findall(r"@([\w.-]+):6222", env(container)["RESTOW_NATS_ROUTES"])
    assert len(routes) == broker["spec"]["replicas"] == 3
    assert named(manifests, "Service", "restow-nats")["spec"]["publishNotReadyAddresses"] is True
    for service in SERVICES:
        (one,) = containers(named(manifests, "Deployment", f"restow-{service}"))
        given = env(one)
        assert [url.removeprefix("nats://").removesuffix(":4222") for url in given["RESTOW_NATS_URL"].split(",")] == routes
        assert given["RESTOW_NATS_REPLICAS"] == "3"
        folder = {m["mountPath"] for m in one["volumeMounts"]}
        assert {str(Path(given[f"RESTOW_NATS_{name}"]).parent) for name in ("CA", "CERTIFICATE", "KEY")} <= folder
    secret = named(manifests, "Secret", "restow-nats-tls")["data"]
    assert set(secret) == {"ca.crt", "tls.crt", "tls.key"}
    assert named(manifests, "PodDisruptionBudget", "restow-nats")["spec"]["maxUnavailable"] == 1
    (clients, brokers) = named(manifests, "NetworkPolicy", "restow-log")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in (clients, brokers)] == [4222, 6222]
    assert brokers["from"][0]["podSelector"]["matchLabels"].items() <= broker["spec"]["template"]["metadata"]["labels"].items()
    assert not named(manifests, "ConfigMap", "restow-nats")["data"].get("nats-three.conf")


@pytest.mark.parametrize("only", [False, True])
def test_a_broker_of_ones_own_is_shown_a_certificate_unless_it_wants_none(only):
    """A Secret with its authority alone was not enough: every service ended, for there was no /tls/tls.crt."""
    values = f"nats.enabled=false,nats.url=nats://b,nats.existingSecret=p,nats.tls.enabled=true,nats.tls.existingSecret=s,nats.tls.caOnly={json.dumps(only)}"
    manifests = rendered("--set", values)
    for name in (*SERVICES, "console"):
        (one,) = containers(named(manifests, "Deployment", f"restow-{name}"))
        files = {key: value for key, value in env(one).items() if str(value).startswith("/tls/")}
        assert files == {"RESTOW_NATS_CA": "/tls/ca.crt"} | ({} if only else {"RESTOW_NATS_CERTIFICATE": "/tls/tls.crt", "RESTOW_NATS_KEY": "/tls/tls.key"})


def test_a_broker_of_ones_own_is_shown_a_key_in_place_of_a_password():
    owners = {service: service.replace("-", "_") for service in SERVICES} | {"console": "console", "traces": "console"}
    manifests = rendered("--set", "nats.enabled=false,nats.url=nats://b,nats.existingSecret=keys,nats.keys=true,traces.enabled=true,traces.endpoint=http://c:4318")
    pods = {name: (named(manifests, "Deployment", f"restow-{name}"), user) for name, user in owners.items()}
    for manifest, user in pods.values():
        (one,) = containers(manifest)
        given = env(one)
        assert (given["RESTOW_NATS_CREDENTIALS"], given["RESTOW_NATS_USER"]) == ("/nats/credentials", user)
        assert "RESTOW_NATS_PASSWORD" not in given
        (mount,) = [mount for mount in one["volumeMounts"] if mount["mountPath"] == "/nats"]
        (volume,) = [volume["secret"] for volume in manifest["spec"]["template"]["spec"]["volumes"] if volume["name"] == mount["name"]]
        assert (volume["secretName"], volume["items"]) == ("keys", [{"key": user, "path": "credentials"}])


def test_the_certificate_that_the_chart_makes_is_of_its_authority_and_names_every_broker(tmp_path):
    manifests = made("three")
    secret = {name: base64.b64decode(text) for name, text in named(manifests, "Secret", "restow-nats-tls")["data"].items()}
    for name, text in secret.items():
        (tmp_path / name).write_bytes(text)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    for context in (server, client):
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server.load_verify_locations(tmp_path / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    for i in range(3):
        shake(server, client, f"restow-nats-{i}.restow-nats.restow-system.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client, "somebody.else.svc")


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A whole handshake in memory, both sides verified."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True))
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    for end in ends:
        end.do_handshake()


def test_definitions_stay_when_the_chart_goes_and_are_those_of_deploy_crds():
    manifests = rendered("--set", "crds.koordinatorReservations=true,crds.volcanoGroups=true")
    definitions = of_kind(manifests, "CustomResourceDefinition")
    assert {d["metadata"]["name"] for d in definitions} == {path.stem for path in (FILES / "crds").glob("*.*.yaml")}
    for one in definitions:
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert one["spec"] == yaml.safe_load((FILES / "crds" / f"{one['metadata']['name']}.yaml").read_text())["spec"]


def test_no_key_of_the_values_stands_beside_one_of_the_charts(tmp_path):
    """YAML allows no key twice, and readers differ in what they make of one."""
    own = {"prometheus.io/scrape": "false", "mine": "x"}
    values = {"defaults": {"podAnnotations": own, "podLabels": {"app.kubernetes.io/name": "mine", "team": "x"}}, "nats": {"podAnnotations": {"checksum/config": "x"}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    manifests = rendered("--values", str(tmp_path / "values.yaml"))
    meta = named(manifests, "Deployment", "restow-descheduler")["spec"]["template"]["metadata"]
    assert own.items() <= meta["annotations"].items()
    assert (meta["labels"]["app.kubernetes.io/name"], meta["labels"]["team"]) == ("restow-descheduler", "x")
    assert len(named(manifests, "StatefulSet", "restow-nats")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]) == 64


@pytest.mark.parametrize("cluster", ["other", "restow-main", "main"])
def test_the_brokers_permissions_are_for_the_cluster_of_the_values(cluster):
    text = named(rendered("--set", f"cluster={cluster}"), "ConfigMap", "restow-nats")["data"]["permissions.conf"]
    assert set(re.findall(r'"restow\.([\w-]+)\.', text)) == {cluster}
    assert set(re.findall(r"STREAM\.INFO\.(?:OBJ_)?restow-([\w-]+)", text)) == {cluster}


def test_the_way_out_to_hooks_is_the_deschedulers_and_leads_to_pods():
    spec = named(rendered("--set", "networkPolicy.hooks=true"), "NetworkPolicy", "restow-hooks")["spec"]
    for service in SERVICES:
        pods = named(whole(), "Deployment", f"restow-{service}")["spec"]["template"]["metadata"]["labels"]
        assert (spec["podSelector"]["matchLabels"].items() <= pods.items()) == (service == "descheduler")
    (rule,) = spec["egress"]
    assert rule["to"] == [{"namespaceSelector": {}}]


def test_each_dashboard_is_in_a_config_map_that_grafanas_sidecar_finds():
    maps = [m for m in of_kind(made("everything"), "ConfigMap") if m["metadata"]["labels"].get("grafana_dashboard") == "1"]
    files = {path.stem: path.read_text() for path in (DEPLOY / "dashboards").glob("*.json")}
    assert {m["metadata"]["name"] for m in maps} == {f"restow-dashboard-{name}" for name in files}
    for one in maps:
        ((name, text),) = one["data"].items()
        assert json.loads(text) == json.loads(files[name.removeprefix("restow-").removesuffix(".json")])
        assert one["metadata"]["annotations"] == {"grafana_folder": "Restow"}
    assert not [m for m in of_kind(made("default"), "ConfigMap") if "dashboard" in m["metadata"]["name"]]


# -- configuration -------------------------------------------------------------------------------------------------------


def test_entry_points_exist():
    scripts = (ROOT / "pyproject.toml").read_text()
    for service in SERVICES:
        assert f"restow-{service} = " in scripts


def test_the_descheduler_takes_its_policy():
    policy = yaml.safe_load((FILES / "config" / "descheduler-policy.yaml").read_text())
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
        wanted = ("restow",) if path.is_relative_to(FILES) else ("restow", "volcano", "koord-scheduler")
        assert config.scheduler_names == wanted


@pytest.mark.parametrize("way", ["everything", "default"])
def test_placeholders_talk_to_nobody(way):
    """Whoever steals the session's account runs there whatever image he likes."""
    places = [one["metadata"]["name"] for one in of_kind(made(way), "Namespace") if one["metadata"]["name"].startswith("restow-holds")]
    found = {one["metadata"]["namespace"]: one["spec"] for one in of_kind(made(way), "NetworkPolicy") if one["metadata"]["namespace"].startswith("restow-holds")}
    assert found == {place: {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} for place in places}
    assert bool(found) == (way == "everything")
