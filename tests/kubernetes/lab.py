"""A whole control plane from an envtest folder: etcd, API servers, controllers, the stock scheduler. Kubelets are played (`kubelets`).

`tests/kubernetes/build.sh` builds what it needs; KUBEBUILDER_ASSETS names the folder.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubesim.conformance.harness import Target, free_port, plain, signing_key, write_kubeconfig

PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "restow-system"
CONTROLLERS = (
    "*,-node-lifecycle-controller,-node-ipam-controller,-taint-eviction-controller,-serviceaccount-token-controller,"
    "-bootstrap-signer-controller,-token-cleaner-controller"
)
"""Nodes are played and have no heartbeats. Controllers for clouds are left out of the list: without a cloud they do nothing, and 1.37 refuses their names."""
UP = 120.0
"""Seconds in which a part must be ready, also on a busy machine."""

AUDITED = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
    resources:
      - group: ""
        resources: [pods, pods/status, pods/eviction, pods/binding, nodes, nodes/status]
      - group: restow.dev
      - group: batch.volcano.sh
      - group: scheduling.k8s.io
  - level: None
"""


def of_chart(*arguments: str, **more: str) -> list[dict[str, Any]]:
    """What Helm makes of the chart. Skips, and says so, without Helm."""
    render = runpy.run_path(str(DEPLOY / "render.py"))
    if render["helm"]() is None:
        pytest.skip("Helm is not there: HELM=1 tests/kubernetes/build.sh builds it into KUBEBUILDER_ASSETS")
    return [one for one in yaml.safe_load_all(render["template"](*arguments, **more)) if one]


def assets() -> tuple[Path | None, str]:
    """The folder with all parts, or why there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return None, "needs a real control plane: KUBEBUILDER_ASSETS is not set (make test-kubernetes builds one)"
    lacking = [part for part in PARTS if not os.access(Path(named) / part, os.X_OK)]
    return (None, f"KUBEBUILDER_ASSETS={named} lacks {', '.join(lacking)}") if lacking else (Path(named), "")


def minor(assets: Path) -> int:
    """Of the folder's Kubernetes: 36 for 1.36.3."""
    said = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    return int(said.split(".")[1])


@dataclass
class Lab:
    """A running control plane. `target` is its first API server. `features`: gates of all parts. `apis`: what else the API servers serve. `audit`: names
    a file where they say who has changed which pods, nodes, Landings, Reservations, and classes; and of the user `audited` whatever it asks for. `durable`: etcd answers when it is on
    the disk, as in every cluster; tests are faster without."""

    assets: Path
    work: Path
    features: str = ""
    apis: str = ""
    audit: str = ""
    audited: str = ""
    durable: bool = False
    target: Target = field(init=False)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _etcd: str = ""
    _token: str = field(default_factory=lambda: secrets.token_hex(16))
    _key: Path = field(init=False)
    _scheduler: list[str] = field(default_factory=list)

    def start(self, *, controllers: bool = True, scheduler: bool = True) -> None:
        self._key = self.work / "sa.key"
        self._key.write_text(signing_key())
        (self.work / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")
        port, peer = free_port(), free_port()
        self._etcd = f"http://127.0.0.1:{port}"
        self._spawn(
            "etcd", "etcd", "--data-dir", str(self.work / "etcd"), "--listen-client-urls", self._etcd, "--advertise-client-urls", self._etcd,
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", *([] if self.durable else ["--unsafe-no-fsync"]),
        )  # fmt: skip
        self.target = self.another_server("api")
        write_kubeconfig(self.target, self.work / "kubeconfig")
        if controllers:
            self.start_controllers(self.work / "kubeconfig")
        if scheduler:
            self.start_scheduler()

    def start_controllers(self, kubeconfig: Path) -> None:
        port = free_port()
        self._spawn(
            "controllers", "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false",
            f"--secure-port={port}", f"--cert-dir={self.work / 'controllers-certs'}", f"--controllers={CONTROLLERS}",
            "--kube-api-qps=200", "--kube-api-burst=400", "--resource-quota-sync-period=5s", *self._gates(),
        )  # fmt: skip
        self._await("controllers", f"https://127.0.0.1:{port}/healthz", self.target)

    def another_server(self, name: str) -> Target:
        """One more API server on the same etcd, ready."""
        return self._start_server(name, free_port())

    def server_again(self, name: str, url: str) -> None:
        """One that was stopped, where it was."""
        assert self._start_server(name, int(url.rpartition(":")[2])).url == url

    def _start_server(self, name: str, port: int) -> Target:
        self._spawn(
            name, "kube-apiserver", f"--etcd-servers={self._etcd}", f"--secure-port={port}", "--bind-address=127.0.0.1",
            f"--cert-dir={self.work / f'{name}-certs'}", f"--token-auth-file={self.work / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://restow.test", f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}", "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
            *([f"--runtime-config={self.apis}"] if self.apis else []), *self._gates(), *self._audited(),
        )  # fmt: skip
        insecure = ssl.create_default_context()
        insecure.check_hostname = False
        insecure.verify_mode = ssl.CERT_NONE
        target = Target("cluster", f"https://127.0.0.1:{port}", {"Authorization": f"Bearer {self._token}"}, insecure)
        self._await(name, f"{target.url}/readyz", target)
        return target

    def compact(self) -> None:
        """etcd forgets all that was: who watches from an older version is told so."""
        at = plain(Target("etcd", self._etcd), "POST", "/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        plain(Target("etcd", self._etcd), "POST", "/v3/kv/compaction", {"revision": at, "physical": True})

    def start_scheduler(self, kubeconfig: Path | None = None, *, qps: int = 500) -> None:
        """`qps`: how many requests a second it may make, twice as many in a burst."""
        port = free_port()
        self._spawn(
            "scheduler", "kube-scheduler", f"--kubeconfig={kubeconfig or self.work / 'kubeconfig'}", "--leader-elect=false", f"--secure-port={port}",
            f"--cert-dir={self.work / 'scheduler-certs'}", "--authentication-skip-lookup",
            "--authorization-always-allow-paths=/healthz,/readyz", f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}", *self._gates(),
        )  # fmt: skip
        # Ready once its watches have begun: what is touched before that, it has never seen otherwise.
        self._await("scheduler", f"https://127.0.0.1:{port}/readyz", self.target)

    def _audited(self) -> list[str]:
        if not self.audit:
            return []
        policy, first = self.work / "audit.yaml", f"rules:\n  - level: Metadata\n    users: [{self.audited!r}]\n" if self.audited else "rules:\n"
        policy.write_text(AUDITED.replace("rules:\n", first))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.work / self.audit}"]

    def _gates(self) -> list[str]:
        return [f"--feature-gates={self.features}"] if self.features else []

    def start_kwok(self, label: str) -> None:
        """kwok's kubelets for the nodes with this label (key=value)."""
        self._spawn(
            "kwok", "kwok", f"--kubeconfig={self.work / 'kubeconfig'}", f"--manage-nodes-with-label-selector={label}",
            f"--config={Path(__file__).with_name('kwok.yaml')}", f"--server-address=127.0.0.1:{free_port()}",
        )  # fmt: skip

    def start_karpenter(self, types: Path) -> None:
        """With its kwok provider; `types`: what nodes it may make. Logs to `karpenter`."""
        args = ("--disable-leader-election", "--instance-types-file-path", str(types), "--metrics-port", str(free_port()), "--health-probe-port", str(free_port()))
        self._spawn("karpenter", "karpenter", *args, KUBECONFIG=str(self.work / "kubeconfig"), SYSTEM_NAMESPACE="default")

    def start_kueue(self, config: Path) -> None:
        self._spawn("kueue", "kueue", f"--config={config}", "--zap-log-level=2", KUBECONFIG=str(self.work / "kubeconfig"))

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def stop(self, name: str, *, hard: bool = False) -> None:
        child = self._running.pop(name)
        (child.kill if hard else child.terminate)()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def close(self) -> None:
        for name in reversed(list(self._running)):
            self.stop(name, hard=name not in ("etcd",))

    def install(self) -> None:
        """deploy/beside, and the guard and rights of the services."""
        plain(self.target, "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for part in ("rights", "guard"):
            self.kubectl("apply", "-n", NAMESPACE, "-f", str(DEPLOY / "chart" / "files" / f"{part}.yaml"))
        self.kubectl("apply", "-k", str(DEPLOY / "beside"))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/landings.restow.dev")
        self._until_served("/apis/restow.dev/v1/landings")

    def _until_served(self, path: str) -> None:
        """An established CRD is answered with 404 or 429 (storage is initializing) for some seconds, by a server that has just started above all."""
        deadline = time.monotonic() + UP
        while True:
            try:
                plain(self.target, "GET", path)
                return
            except urllib.error.HTTPError as error:
                if error.code not in (404, 429) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def kubectl(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(self.assets / "kubectl"), f"--kubeconfig={self.work / 'kubeconfig'}", *args],
            cwd=DEPLOY.parent, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def account(self, service: str, namespace: str = NAMESPACE) -> Target:
        """The API as a service's ServiceAccount sees it."""
        asked = {"spec": {"expirationSeconds": 86400}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/restow-{service}/token"
        token = plain(self.target, "POST", path, asked)["status"]["token"]
        return Target("cluster", self.target.url, {"Authorization": f"Bearer {token}"}, self.target.ssl)

    def kubeconfig(self, target: Target, name: str) -> Path:
        return write_kubeconfig(target, self.work / f"{name}.kubeconfig")

    def log(self, name: str) -> str:
        return (self.work / f"{name}.log").read_text(errors="replace")

    def _spawn(self, name: str, program: str, *args: str, **env: str) -> None:
        with (self.work / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([str(self.assets / program), *args], stdout=log, stderr=log, env=os.environ | env)

    def _await(self, name: str, url: str, target: Target) -> None:
        deadline = time.monotonic() + UP
        context = target.ssl if isinstance(target.ssl, ssl.SSLContext) else None
        while time.monotonic() < deadline:
            if self._running[name].poll() is not None:
                raise RuntimeError(f"{name} ended: {self.log(name)[-2000:]}")
            with contextlib.suppress(OSError):
                request = urllib.request.Request(url, headers=target.headers)
                with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.1)
        raise RuntimeError(f"{name} was not ready in {UP:g} s: {self.log(name)[-2000:]}")


def own(work: pytest.TempPathFactory, name: str, **more: str) -> contextlib.AbstractContextManager[Lab]:
    """A control plane of a file's own, up; the file is skipped, and says why, where its parts are not there."""
    found, why = assets()
    if found is None:
        pytest.skip(why)
    return lab(found, work.mktemp(name), **more)


@contextlib.contextmanager
def lab(assets: Path, work: Path, **more: str) -> Iterator[Lab]:
    """Up, and nothing of it left afterwards."""
    one = Lab(assets, work, **more)
    try:
        one.start()
        yield one
    finally:
        one.close()
