"""`restow doctor` on a real API server: an installation as the documents say, then one thing broken after another."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from kubernetes.lab import DEPLOY, Lab, own

RESTOW = Path(sys.executable).with_name("restow")
SYSTEM = "restow-system"


@pytest.fixture(scope="module", name="cluster")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "doctor") as one:
        one.kubectl("create", "-f", str(DEPLOY / "crds" / "podgroups.scheduling.volcano.sh.yaml"))
        one.kubectl("apply", "-f", str(DEPLOY / "restow.yaml"))
        one.kubectl("apply", "-k", str(DEPLOY / "beside"))
        one.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/landings.restow.dev", "crd/reservations.batch.volcano.sh", "crd/podgroups.scheduling.volcano.sh")
        yield one


def found(lab: Lab) -> list[tuple[str, str, str]]:
    done = subprocess.run([RESTOW, "doctor", "--kube", str(lab.kubeconfig(lab.target, "admin")), "-o", "json"], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return [(one["about"], one["word"], one["what"]) for one in json.loads(done.stdout)]


def test_an_installation_whose_pods_have_no_node_has_rights_and_a_gate_and_nothing_that_is_ready(cluster):
    said = found(cluster)
    assert ("rights", "ok", f"{SYSTEM}: the services may do all that they need") in said
    assert ("beside", "ok", "successors are gated by the policy restow-landing") in said
    assert ("services", "bad", f"{SYSTEM}: restow-descheduler: 0 of 2 ready") in said
    assert ("broker", "bad", f"{SYSTEM}: restow-nats: 0 of 1 ready") in said
    assert not [one for one in said if one[1] == "unknown"]


def test_volumes_of_more_brokers_than_there_are_point_to_where_the_log_may_be(cluster):
    """As after `helm rollback` from three brokers to one: services say that the log is lost."""
    assert not [what for _, _, what in found(cluster) if "volumes of" in what]
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-restow-nats-2"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    (file := cluster.work / "claim.json").write_text(json.dumps(claim))
    cluster.kubectl("-n", SYSTEM, "create", "-f", str(file))
    try:
        assert ("broker", "warning", f"{SYSTEM}: restow-nats has volumes of 3 brokers, and 1 of these is there: the log may be on the others") in found(cluster)
    finally:
        cluster.kubectl("-n", SYSTEM, "delete", "pvc", "data-restow-nats-2", "--wait=false")


def test_one_verb_that_is_taken_away_is_named(cluster):
    role = json.loads(cluster.kubectl("get", "clusterrole", "restow-descheduler", "-o", "json"))
    kept = [rule for rule in role["rules"] if rule["resources"] != ["pods/eviction"]]
    cluster.kubectl("patch", "clusterrole", "restow-descheduler", "--type", "merge", "-p", json.dumps({"rules": kept}))
    try:
        assert ("rights", "bad", f"{SYSTEM}: descheduler may not create pods/eviction") in found(cluster)
    finally:
        cluster.kubectl("patch", "clusterrole", "restow-descheduler", "--type", "merge", "-p", json.dumps({"rules": role["rules"]}))
    assert ("rights", "ok", f"{SYSTEM}: the services may do all that they need") in found(cluster)


def test_where_pods_may_move_with_claims_all_that_needs_is_asked_for(cluster):
    """Of a namespace where some of it was given; what the whole cluster has of it was forgotten."""
    claims = DEPLOY / "beside" / "claims"
    cluster.kubectl("create", "namespace", "shop")
    try:
        cluster.kubectl("apply", "-n", "shop", "-f", str(claims / "rights.yaml"))
        said = found(cluster)
        lacking = [what for about, word, what in said if (about, word) == ("rights", "bad")]
        unguarded = [what for about, word, what in said if (about, word) == ("beside", "warning")]
        assert [what.split()[2] for what in unguarded] == ["restow-guard-claims", "restow-guard-placeholders"]
        assert len(lacking) == 2, lacking
        assert all(f"{SYSTEM}: scheduler-session may not" in what for what in lacking)
        cluster.kubectl("apply", "-k", str(claims))
        assert ("rights", "ok", f"{SYSTEM}: the services may do all that they need") in found(cluster)
    finally:
        cluster.kubectl("delete", "-k", str(claims), "--ignore-not-found")
        cluster.kubectl("delete", "namespace", "shop")


def test_where_nodes_may_be_marked_the_guard_of_nodes_is_missed(cluster):
    """It said nothing of a stolen account that may taint every node."""
    rights, guard = (str(DEPLOY / "autoscalers" / f"{name}.yaml") for name in ("rights", "guard"))

    def missed() -> bool:
        return ("rights", "warning", "the policy restow-guard-nodes is missing, or nothing binds it, which keeps a stolen account from labels and taints of nodes") in found(cluster)

    assert not missed()
    cluster.kubectl("apply", "-f", rights)
    try:
        assert missed()
        cluster.kubectl("apply", "-f", guard)
        assert not missed()
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", rights, "-f", guard)


def test_a_policy_and_a_binding_that_are_gone_are_missed(cluster):
    cluster.kubectl("delete", "mutatingadmissionpolicybinding", "restow-landing")
    cluster.kubectl("delete", "validatingadmissionpolicy", "restow-guard")
    cluster.kubectl("delete", "validatingadmissionpolicybinding", "restow-guard-bindings")
    said = found(cluster)
    assert ("beside", "bad", "nothing gates successors, so no pod of another scheduler is moved (NotGated)") in said
    assert ("rights", "warning", "the policy restow-guard is missing, or nothing binds it, which keeps a stolen account from other people's pods") in said
    assert ("rights", "warning", "the policy restow-guard-bindings is missing, or nothing binds it, which keeps a stolen account from writing annotations and labels into pods that it binds") in said


def reachable() -> str:
    """An address of this machine that an API server hands questions on to: not the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        return probe.getsockname()[0]


@contextmanager
def service(report: dict) -> Iterator[int]:
    """The port at which something says this of itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(report if self.path == "/readyz" else {"phase": "leading", "lag": 12_345}).encode()
            self.send_response(503 if self.path == "/readyz" and not report["ready"] else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_a_service_is_asked_through_the_api_how_it_is(cluster):
    address = reachable()
    if not address or address.startswith("127."):
        pytest.skip("this machine has the loopback address only, and an API server hands nothing on to that")
    reason = "the broker refuses the log: " + "its stream has another setting, and " * 10
    with service({"ready": False, "reasons": [reason], "notes": ["a key of the policy is not known"]}) as port:
        labels = {"app.kubernetes.io/part-of": "restow", "app.kubernetes.io/name": "restow-descheduler"}
        security = {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
        container = {"name": "service", "securityContext": security, "image": "restow:1", "ports": [{"containerPort": port}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "restow-descheduler-asked", "labels": labels}, "spec": {"nodeName": "somewhere", "containers": [container]}}
        subprocess.run([cluster.assets / "kubectl", f"--kubeconfig={cluster.work / 'kubeconfig'}", "-n", SYSTEM, "create", "-f", "-"], input=json.dumps(pod), text=True, check=True)
        status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        cluster.kubectl("-n", SYSTEM, "patch", "pod", "restow-descheduler-asked", "--subresource=status", "--type", "merge", "-p", json.dumps(status))
        said = found(cluster)
        cluster.kubectl("-n", SYSTEM, "delete", "pod", "restow-descheduler-asked", "--force", "--grace-period=0")
    named = f"{SYSTEM}: restow-descheduler-asked"
    assert ("services", "bad", f"{named} is not ready: {reason}") in said
    assert ("services", "warning", f"{named}: a key of the policy is not known") in said
    assert ("services", "warning", f"{named} is 12345 records behind the log") in said


def test_who_may_not_look_is_told_so(cluster):
    """An account without any right: it is no diagnosis of the cluster."""
    cluster.kubectl("create", "serviceaccount", "restow-nobody", "-n", "default")
    nobody = cluster.kubeconfig(cluster.account("nobody", "default"), "nobody")
    done = subprocess.run([RESTOW, "doctor", "--kube", str(nobody)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "you are not allowed" in done.stderr
