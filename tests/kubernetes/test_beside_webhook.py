"""The gate without an admission policy: `restow webhook` does what the policy does, and whoever cannot ask it makes pods at once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes.lab import DEPLOY, Lab, of_chart, own
from kubernetes.moves import LOG, Mover, crowded, told
from kubernetes.test_beside_gate import BINDING, NOBODY, OTHER_LOG, counts, soon
from kubernetes.world import NS, World, pod_spec, restricted
from kubesim.conformance.harness import MERGE

from restow.contracts.times import rfc3339
from restow.domain.landing_gate import GATE, Listed, NewPod, Owners, gated_for, left_out
from restow.kube.client import ApiStatus, ClientConfigError
from restow.kube.gates import Gates, NotGated
from restow.kube.in_cluster import in_cluster
from restow.kube.landing_webhook import LANDINGS

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
POLICY = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/restow-landing"
UP = 30.0


class Hook:
    """The webhook as a process, with the rights of its ServiceAccount. `close` leaves nothing."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._folder = lab, lab.work / "webhook-tls"
        self._made = of_chart("--set", "beside.enabled=true,beside.gate=webhook")
        lab.kubectl("apply", "-f", str(DEPLOY / "chart" / "files" / "webhook-rights.yaml"))
        self._kubeconfig = lab.kubeconfig(lab.account("webhook"), "webhook")
        self._folder.mkdir(exist_ok=True)
        self.certify()
        self.start()

    def certify(self) -> None:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=restow-webhook",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(self._folder / "tls.key"), "-out", str(self._folder / "tls.crt")],
            check=True, capture_output=True,
        )  # fmt: skip

    def start(self, port: int = 0) -> None:
        command = [str(Path(sys.executable).with_name("restow")), "webhook", "--port", str(port), "--tls", str(self._folder), "--kubeconfig", str(self._kubeconfig)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(" ")[2])

    def configuration(self) -> Any:
        """The deployed one; only where the server is differs."""
        (found,) = [copy.deepcopy(one) for one in self._made if one["kind"] == "MutatingWebhookConfiguration"]
        authority = base64.b64encode((self._folder / "tls.crt").read_bytes()).decode()
        path = found["webhooks"][0]["clientConfig"]["service"]["path"]
        found["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": authority}
        return found

    def memory(self) -> int:
        """MiB that it takes."""
        (line,) = [line for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) // 1024

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.kill()


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "webhook") as one:
        one.install()
        yield one


@pytest.fixture
async def hook(world: World, lab: Lab, descheduler: Gates) -> Any:
    """The webhook instead of the policy, and then the policy again."""
    one = Hook(lab)
    for path in (BINDING, POLICY):
        await world.api.call("DELETE", path)
    await descheduler.landing(LOG, {NOBODY.uid: soon()})
    await counts(descheduler, NOBODY, NotGated)
    await world.api.ok("POST", CONFIGURATION, one.configuration())
    await counts(descheduler, NOBODY)
    try:
        yield one
    finally:
        await world.api.call("DELETE", f"{CONFIGURATION}/restow-landing")
        one.close()
        lab.kubectl("apply", "-k", "deploy/beside")
        await descheduler.landing(LOG, {NOBODY.uid: soon()})
        await counts(descheduler, NOBODY, seconds=60)


LISTED, OTHERS, PAST, NEVER = "uid-listed", "uid-of-another-installation", "uid-past", "uid-never"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o"}


def owned(*uids: str, controls: bool = True, **spec: Any) -> Any:
    owners = [{**OWNER, "uid": uid, "controller": controls and i == 0} for i, uid in enumerate(uids)]
    return {"metadata": {"generateName": "case-", **({"ownerReferences": owners} if owners else {})}, "spec": pod_spec(0, **spec)}


LABELS = {"job": "nightly"}


def labelled(**labels: str) -> Any:
    return {"metadata": {"generateName": "case-", "labels": labels}, "spec": pod_spec(0)}


CASES: dict[str, tuple[Any, str, bool]] = {
    "a listed controller": (owned(LISTED), NS, True),
    "another installation's": (owned(OTHERS), NS, True),
    "where placeholders are": (owned(LISTED), "restow-holds", True),
    "one that has a gate already": (owned(LISTED, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), NS, True),
    "one that has ours already": (owned(LISTED, schedulingGates=[{"name": GATE}]), NS, True),
    "a second owner, which does not control": (owned(NEVER, LISTED), NS, False),
    "an owner that does not control": (owned(LISTED, controls=False), NS, False),
    "nobody's": (owned(), NS, False),
    "a Reservation's owner": (labelled(job="nightly", x="y"), NS, True),
    "a Reservation's that has ended": (labelled(old="1"), NS, False),
    "a Reservation's of another namespace": (labelled(far="1"), NS, False),
    "one that nobody has listed": (owned(NEVER), NS, False),
    "an entry that has ended": (owned(PAST), NS, False),
    "one that names its node": (owned(LISTED, nodeName="n"), NS, False),
    "kube-system's": (owned(LISTED), "kube-system", False),
    "our own": ({**owned(LISTED), "metadata": {**owned(LISTED)["metadata"], "labels": {"app.kubernetes.io/part-of": "restow"}}}, NS, False),
    "who is where our own are": (owned(LISTED), "restow-system", True),
}


async def table(world: World, descheduler: Gates) -> dict[str, list[str]]:
    """The gates that the API server would give each."""
    await descheduler.landing(LOG, {LISTED: soon(), PAST: soon(-2)})
    await descheduler.landing(OTHER_LOG, {OTHERS: soon()})
    owners = {
        name: {"namespace": namespace, "until": rfc3339(soon(seconds)), "labels": [labels]}
        for name, namespace, seconds, labels in (("r", NS, 60, LABELS), ("old", NS, -2, {"old": "1"}), ("far", "elsewhere", 60, {"far": "1"}))
    }
    await world.api.ok("PATCH", f"{LANDINGS.path}/{LOG}", {"spec": {"owners": owners}}, media=MERGE)
    await asyncio.sleep(1)
    found, said = {}, {}
    for name, (pod, namespace, _) in CASES.items():
        body = pod if namespace == NS else {**pod, "spec": restricted(copy.deepcopy(pod["spec"]))}
        made = await world.api.ok("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
        found[name] = [gate["name"] for gate in made["spec"].get("schedulingGates") or ()]
        said[name] = (made["metadata"].get("annotations") or {}).get(GATE, "").partition(" ")[0]
    assert said == {name: (OTHER_LOG if name == "another installation's" else LOG) if gated else "" for name, (_, _, gated) in CASES.items()}
    return found


async def test_by_the_policy_these_pods_wait(world: World, descheduler: Gates) -> None:
    await descheduler.landing(LOG, {NOBODY.uid: soon()})
    await counts(descheduler, NOBODY, seconds=60)
    by_policy = await table(world, descheduler)
    assert {name for name, gates in by_policy.items() if GATE in gates} == {name for name, (_, _, gated) in CASES.items() if gated}


async def test_by_the_webhook_the_same_pods_wait(world: World, descheduler: Gates, hook: Hook) -> None:
    by_webhook = await table(world, descheduler)
    assert {name for name, gates in by_webhook.items() if GATE in gates} == {name for name, (_, _, gated) in CASES.items() if gated}
    assert by_webhook["one that has ours already"] == [GATE]
    assert by_webhook["one that has a gate already"] == ["kueue.x-k8s.io/admission", GATE]
    print(f"the webhook takes {hook.memory()} MiB")


async def test_moves_land_without_the_policy(world: World, hook: Hook, mover: Mover) -> None:
    print("by the webhook, 20 wait, one by one:", told(await crowded(world, mover, 6, crowd=20)))
    assert hook.process.poll() is None


async def creation(world: World, count: int = 20) -> list[float]:
    """Milliseconds that a pod takes to be made (as a dry run)."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        made = await world.api.ok("POST", f"/api/v1/namespaces/{NS}/pods?dryRun=All", owned(NOBODY.uid))
        times.append(1000 * (time.perf_counter() - began))
        assert made
    return sorted(times)


async def test_where_the_webhook_is_dead_pods_are_made_at_once_and_where_it_hangs_a_second_later(world: World, hook: Hook, descheduler: Gates) -> None:
    await world.node("n")
    alive = await creation(world)
    os.kill(hook.process.pid, signal.SIGSTOP)
    hung = await creation(world, 3)
    os.kill(hook.process.pid, signal.SIGCONT)
    await counts(descheduler, NOBODY)
    hook.kill()
    dead = await creation(world)
    print(f"a pod is made: webhook answers {alive[10]:.1f} ms, hangs {hung[1]:.0f} ms, is dead {dead[10]:.1f} ms (medians)")
    assert dead[10] < 500
    assert hung[-1] < 3000
    await world.replicaset("web", 1, pod_spec())
    await world.running("web")
    assert isinstance(await descheduler.gated(NOBODY), NotGated)
    hook.start(hook.port)
    await counts(descheduler, NOBODY, seconds=UP)


@pytest.mark.parametrize("name", CASES)
def test_the_rule_says_the_same(name: str) -> None:
    pod, namespace, gated = CASES[name]
    if left_out(namespace, pod["metadata"].get("labels", {})):
        return  # its configuration leaves them out
    now = datetime.now(UTC)
    later, before = ((now + timedelta(seconds=seconds)).isoformat() for seconds in (60, -2))
    owners = (Owners(NS, later, [LABELS]), Owners(NS, before, [{"old": "1"}]), Owners("elsewhere", later, [{"far": "1"}]))
    lists = {LOG: Listed({LISTED: later, PAST: before}, owners), OTHER_LOG: Listed({OTHERS: later})}
    controllers = tuple(owner["uid"] for owner in pod["metadata"].get("ownerReferences", ()) if owner["controller"])
    said = gated_for(NewPod(pod["spec"].get("nodeName", ""), controllers, (now.replace(microsecond=0),), namespace, pod["metadata"].get("labels")), lists)
    assert bool(said) is gated


async def test_inside_a_cluster_its_account_reads_landings_and_nothing_else(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token and the authority that the kubelet puts into each pod."""
    lab.kubectl("apply", "-f", str(DEPLOY / "chart" / "files" / "webhook-rights.yaml"))
    (tmp_path / "token").write_text("expired")
    (tmp_path / "ca.crt").write_bytes((lab.work / "api-certs" / "apiserver.crt").read_bytes())
    url = lab.target.url.rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", url[0].rpartition("/")[2])
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", url[2])
    async with in_cluster(folder=tmp_path) as client:
        with pytest.raises(ApiStatus, match="401"):
            await client.get(LANDINGS.path)
        (tmp_path / "token").write_text(lab.account("webhook").headers["Authorization"].removeprefix("Bearer ") + "\n")
        assert LANDINGS.page(await client.list_page(LANDINGS, ())).version
        for path in ("/api/v1/pods", "/api/v1/secrets", f"{LANDINGS.path}/{LOG}"):
            with pytest.raises(ApiStatus, match="403"):
                await client.get(path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ClientConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster(folder=tmp_path)
