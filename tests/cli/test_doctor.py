"""`restow doctor`: what is not well is said, with what to do, and what is well is not doubted."""

import asyncio
import base64
import json
import os
import subprocess
from datetime import UTC, datetime
from types import SimpleNamespace

import aiohttp
import pytest
from cli.conftest import RESTOW, Api, kubesim
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from restow.cli.doctor import command, look
from restow.cli.doctor.checks import (
    READ,
    SERVICES,
    Denied,
    Gate,
    Installation,
    Lease,
    Pod,
    Seen,
    Stack,
    Store,
    examine,
)
from restow.cli.doctor.look import Looker, long_gated, needed, untrusted_for
from restow.cli.kubeapi import Kube
from restow.cli.log_location import service_of
from restow.domain.history import BROKEN
from restow.eventlog.port import SILENT_BROKER
from restow.eventlog.server import NatsServer
from restow.eventlog.testing import free_ports
from restow.kube import rights

DEFINED = {name: [version] for name, version in READ.items()}
NATS = "docker.io/library/nats:2.12-alpine"


def pods(**changed: Pod) -> list[Pod]:
    of_services = {f"restow-{service}": Pod(f"restow-{service}-x", f"restow-{service}", True, "restow:1", reasons=(), lag=3) for service in SERVICES}
    return list({**of_services, "restow-nats": Pod("restow-nats-0", "restow-nats", True, NATS), **{f"restow-{name.replace('_', '-')}": pod for name, pod in changed.items()}}.values())


def installed(**changed) -> Installation:
    known = {"wanted": {**{f"restow-{service}": 1 for service in SERVICES}, "restow-nats": 1}, "pods": pods(), "leases": {"restow-session": Lease("restow-scheduler-session-x/1", 1.0, 15)}, "denied": ()}
    return Installation("restow-system", **(known | changed))


def seen(installation: Installation | None = None, **changed) -> Seen:
    known = {"version": "v1.36.3", "skew": 0.4, "definitions": DEFINED, "installations": [installation or installed()], "gate": Gate(True, True, False)}
    return Seen(**(known | changed))


def troubles(said: Seen) -> list[tuple[str, str, str]]:
    return [(one.about, one.word, one.what) for one in examine(said) if one.word != "ok"]


def test_a_cluster_that_is_well_has_no_troubles():
    assert troubles(seen()) == []


@pytest.mark.parametrize(
    ("said", "about", "word", "what"),
    [
        (seen(version="v1.26.4"), "server", "bad", "the API server is v1.26.4"),
        (seen(version="v1.26.4", api="http://x, of the stack in /y"), "server", "bad", "the API server is v1.26.4, at http://x, of the stack in /y"),
        (seen(version="unknown"), "server", "unknown", "the API server says 'unknown' of its version"),
        (seen(skew=-61.0), "clock", "warning", "this machine's clock is 61 s behind the API server's"),
        (seen(definitions={**DEFINED, "queues.scheduling.volcano.sh": ["v1"]}), "definitions", "bad", "queues.scheduling.volcano.sh serves v1"),
        (seen(definitions={**DEFINED, "podgroups.scheduling.volcano.sh": []}), "definitions", "bad", "podgroups.scheduling.volcano.sh is not established"),
        (seen(definitions={}), "definitions", "bad", "no Reservation is defined, so no move can hold a place"),
        (seen(definitions={"reservations.scheduling.koordinator.sh": ["v1alpha1"]}), "definitions", "bad", "reservations.batch.volcano.sh is missing, in which moves hold their places"),
        (seen(installations=[]), "services", "bad", "no service of Restow is in this cluster"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", False, "restow:1", "ImagePullBackOff")))), "services", "bad", "restow-system: restow-descheduler: 0 of 1 ready"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", False, "restow:1", "CrashLoopBackOff", 7)))), "services", "bad", "restow-system: d: CrashLoopBackOff, 7 restarts"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:2", reasons=())))), "services", "warning", "restow-system: services of several images: restow:1, restow:2"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:1", reasons=("no broker",))))), "services", "bad", "restow-system: d is not ready: no broker"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:1", reasons=(f"{BROKEN}: x",))))), "log", "bad", "restow-system: d is not ready: the log is broken: x"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:1", reasons=(), notes=("a policy is refused",))))), "services", "warning", "restow-system: d: a policy is refused"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:1", reasons=(), lag=20_000)))), "services", "warning", "restow-system: d is 20000 records behind the log"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:1", why="Forbidden (403)")))), "services", "unknown", "restow-system: d was not asked: Forbidden (403)"),
        (seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", True, "restow:1", restarts=3, why="refused (503)")))), "services", "unknown", "restow-system: d was not asked: refused (503); it was started again 3 times"),
        (seen(installed(pods=pods(nats=Pod("restow-nats-0", "restow-nats", True, "nats:2.9.10")))), "broker", "bad", "restow-system: restow-nats-0 is nats-server 2.9"),
        (seen(installed(volumes=3)), "broker", "warning", "restow-system: restow-nats has volumes of 3 brokers, and 1 of these is there: the log may be on the others"),
        (seen(installed(stores=[Store("restow-nats-0", "2.12.8", False, 120.0, 1, 100)])), "broker", "warning", "restow-system: restow-nats-0 writes what it has acknowledged to its disk every 120 s: a machine that fails takes commits with it that were acted upon"),
        (seen(installed(stores=[Store("restow-nats-0", "2.12.8", True, 120.0, 76, 100)])), "broker", "warning", "restow-system: restow-nats-0 has used 76 % of its store; when it is full, no commit is taken"),
        (seen(installed(unasked=["restow-nats-0"])), "broker", "unknown", "restow-system: restow-nats-0: not asked whether all that is acknowledged is on disk, nor how full the store is: no answer on port 8222, as the chart's NetworkPolicy wants it"),
        (seen(installed(stores=[Store("restow-nats-0", "2.11.9", True, 120.0, 1, 100)])), "broker", "bad", "restow-system: restow-nats-0 is nats-server 2.11"),
        (seen(installed(leases={"restow-gc": Lease("x/1", 40.0, 15)})), "leaders", "bad", "restow-system: nobody leads restow-gc since 40 s"),
        (seen(installed(leases={"restow-session": Lease("laptop/1", 1.0, 15)})), "leaders", "warning", "restow-system: restow-session is held by laptop, which is none of the pods of restow-scheduler-session: what leads there is another process, unless that pod is ending"),
        (seen(installed(leases={"restow-gc": Lease("", 40.0, 15)})), "leaders", "bad", "restow-system: nobody leads restow-gc"),
        (seen(installed(leases={"restow-gc": Lease("x/1", 40.0, 15, True)})), "leaders", "warning", "restow-system: restow-gc was renewed 40 s in the API server's past"),
        (seen(installed(leases={"restow-gc": Lease("x/1", -30.0, 15)})), "leaders", "warning", "restow-system: restow-gc was renewed 30 s in the API server's future"),
        (seen(installed(denied=None)), "rights", "unknown", "restow-system: it could not be asked what the services may do"),
        (seen(installed(denied=[Denied("descheduler", verb, "pods/eviction") for verb in ("create", "get")])), "rights", "bad", "restow-system: descheduler may not create, get pods/eviction"),
        (seen(gate=Gate(True, False, False)), "beside", "bad", "nothing gates successors, so no pod of another scheduler is moved (NotGated)"),
        (seen(gate=Gate(False, False, True, certified=False)), "beside", "bad", "the webhook restow-landing has no caBundle, so no API server trusts it"),
        (seen(gate=Gate(False, False, True, answers=2, untrusted="the certificate has ended at 2026-11-01 00:00 UTC")), "beside", "bad", "no API server trusts the webhook restow-landing: of its caBundle the certificate has ended at 2026-11-01 00:00 UTC, so nothing gates successors, and no pod of another scheduler is moved (NotGated)"),
        (seen(gate=Gate(False, False, True, answers=2, missing="restow-system/restow-webhook")), "beside", "bad", "the Service restow-system/restow-webhook is missing, by which API servers ask the webhook restow-landing"),
        (seen(gate=Gate(False, False, True, answers=2, mistrusted="restow-webhook-x shows a certificate that has ended")), "beside", "bad", "no API server trusts what answers for the webhook restow-landing: restow-webhook-x shows a certificate that has ended, so that it gates no successor, and no pod of another scheduler is moved (NotGated)"),
        (seen(gate=Gate(False, False, True)), "beside", "bad", "no pod answers for the webhook restow-landing"),
        (seen(gate=None, unguarded=["restow-guard"]), "rights", "warning", "the policy restow-guard is missing, or nothing binds it, which keeps a stolen account from other people's pods"),
        (seen(gate=None, lax=["restow-guard"]), "rights", "warning", "the policy restow-guard does not refuse all that it should (its binding does not Deny or has matchResources, its failurePolicy is Ignore, or it has no validations), which keeps a stolen account from other people's pods"),
        (seen(gate=None, unguarded=["restow-guard-bindings"]), "rights", "warning", "the policy restow-guard-bindings is missing, or nothing binds it, which keeps a stolen account from writing annotations and labels into pods that it binds"),
        (seen(gate=None, unguarded=["restow-guard-volumes"]), "rights", "warning", "the policy restow-guard-volumes is missing, or nothing binds it, which keeps a stolen account from giving away or deleting other people's volumes"),
        (seen(gate=None, unguarded=["restow-guard-nodes"]), "rights", "warning", "the policy restow-guard-nodes is missing, or nothing binds it, which keeps a stolen account from labels and taints of nodes"),
        (seen(unguarded=["restow-guard-claims"]), "beside", "warning", "the policy restow-guard-claims is missing, or nothing binds it, which keeps a stolen account from taking other people's devices"),
        (seen(unguarded=["restow-guard-priorities"]), "beside", "warning", "the policy restow-guard-priorities is missing, or nothing binds it, which keeps everybody's other pods from the priority classes of placeholders, a way around quotas"),
        (seen(gate=Gate(True, True, False, namespace=False)), "beside", "bad", "the namespace restow-holds is missing, in which placeholders stand"),
        (seen(gate=Gate(True, True, False, waiting=["ml/a"])), "beside", "warning", "1 pod has had the gate restow.dev/landing for more than 60 s, the oldest is ml/a"),
        (seen(gate=Gate(True, True, False, waiting=["ml/a", "b/c"])), "beside", "warning", "2 pods have had the gate restow.dev/landing for more than 60 s, the oldest is ml/a"),
    ],
)  # fmt: skip
def test_each_trouble_is_said(said, about, word, what):
    assert (about, word, what) in troubles(said)


def test_what_several_services_say_is_said_once():
    told = {service: Pod(service, f"restow-{service}", True, "restow:1", reasons=("no broker",), notes=("the clock is wrong",)) for service in SERVICES}
    everybody = ", ".join(SERVICES)
    assert troubles(seen(installed(pods=[*told.values(), Pod("n", "restow-nats", True, NATS)], leases={}))) == [
        ("services", "bad", f"restow-system: {everybody} are not ready: no broker"),
        ("services", "warning", f"restow-system: {everybody}: the clock is wrong"),
    ]
    stack = Stack("{}", [one._replace(notes=()) for one in told.values()])
    assert troubles(seen(installations=[], stack=stack)) == [("services", "bad", f"{everybody} are not ready: no broker")]


def test_what_is_to_be_done_about_several_in_a_row_is_said_once(capsys):
    command._show(examine(seen(installed(denied=[Denied(service, "get", "nodes") for service in SERVICES]))))
    said = capsys.readouterr().out
    assert said.count("may not get nodes") == len(SERVICES)
    assert said.count("install the chart of the images' release") == 1


def test_services_of_two_releases_are_said_also_where_their_images_have_one_name_or_none():
    of = {"cluster-watcher": "0.2.0+1", "descheduler": "0.3.0+2"}
    told = [Pod(service, f"restow-{service}", True, "restow:latest", reasons=(), release=of.get(service, "")) for service in SERVICES]
    what = "services of several releases: 0.2.0+1, 0.3.0+2"
    assert troubles(seen(installed(pods=[*told, Pod("n", "restow-nats", True, NATS)], leases={}))) == [("services", "warning", f"restow-system: {what}")]
    assert troubles(seen(installations=[], stack=Stack("{}", told))) == [("services", "warning", what)]


def test_services_that_read_several_logs_are_told_although_each_is_ready():
    """One with another RESTOW_CLUSTER, or another broker, is ready, leads, and hears of nothing."""
    of = {"restow-scheduler-session": "7c1f", "restow-descheduler": "", "restow-nats": ""}
    said = [one._replace(log=of.get(one.app, "a0b2")) for one in pods()]
    what = "services read several logs, so they do not hear of each other: "
    others = "restow-cluster-watcher-x, restow-reservation-cache-x, restow-garbage-collector-x read a0b2; restow-scheduler-session-x reads 7c1f"
    assert troubles(seen(installed(pods=said))) == [("log", "bad", f"restow-system: {what}{others}")]
    stack = Stack("logs/{}.log", [one for one in said if one.app != "restow-nats"])
    assert [one[2] for one in troubles(seen(installations=[], stack=stack))] == [what + others]


@pytest.mark.parametrize(
    ("policy", "binding"),
    [({}, {"validationActions": ["Audit"]}), ({}, {}), ({"failurePolicy": "Ignore"}, {"validationActions": ["Deny"]}), ({"validations": []}, {"validationActions": ["Deny"]}), ({}, {"validationActions": ["Deny"], "matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})],
)
async def test_a_policy_that_somebody_has_made_refuse_nothing_is_told(policy, binding):
    group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpol"
    spec = {"failurePolicy": "Fail", "validations": [{"expression": "false"}]}
    listed = {
        f"{group}icies": [{"metadata": {"name": name}, "spec": spec | more} for name, more in (("restow-guard", policy), ("restow-guard-bindings", {}))],
        f"{group}icybindings": [
            {"metadata": {"name": "a"}, "spec": {"policyName": "restow-guard", **binding}},
            {"metadata": {"name": "b"}, "spec": {"policyName": "restow-guard-bindings", "validationActions": ["Deny", "Audit"]}},
        ],
    }

    async def items(path, *_):
        return listed[path]

    looker = Looker(None, datetime(2026, 1, 1, tzinfo=UTC))
    looker._optional = items
    assert await looker._unguarded(["restow-guard", "restow-guard-bindings", "restow-guard-volumes"]) == (["restow-guard-volumes"], ["restow-guard"])


@pytest.mark.parametrize(
    ("wanted", "ready", "said"),
    [
        (3, 3, []), (3, 2, [("warning", "2 of 3 ready; if one more goes, no commit is taken")]), (3, 1, [("bad", "1 of 3 ready; without 2 no commit is taken")]),
        (5, 4, [("warning", "4 of 5 ready")]), (1, 0, [("bad", "0 of 1 ready")]), (0, 0, [("bad", "0 of 0 ready; without 1 no commit is taken")]),
    ],
)  # fmt: skip
def test_brokers_are_well_as_long_as_most_of_them_are_there_and_one_more_may_go(wanted, ready, said):
    brokers = [Pod(f"restow-nats-{i}", "restow-nats", i < ready, NATS) for i in range(wanted)]
    one = installed(pods=[*(pod for pod in pods() if pod.app != "restow-nats"), *brokers], wanted={**installed().wanted, "restow-nats": wanted})
    assert [(word, what.removeprefix("restow-system: restow-nats: ")) for _, word, what in troubles(seen(one))] == said


def test_a_workload_that_was_deleted_is_missed():
    wanted = {name: replicas for name, replicas in installed().wanted.items() if name != "restow-reservation-cache"}
    assert ("services", "bad", "restow-system: restow-reservation-cache is missing") in troubles(seen(installed(wanted=wanted)))


def test_whatever_is_bad_says_what_to_do_unless_the_service_has_said_it():
    for one in examine(seen(installed(pods=pods(descheduler=Pod("d", "restow-descheduler", False)), denied=[Denied("descheduler", "get", "pods")]), version="v1.9", definitions={}, gate=Gate(False, False, False))):
        assert one.do or one.word == "ok", one


def test_services_of_a_stack_point_to_their_logs():
    services = [Pod("descheduler", "descheduler", False, why="no answer"), Pod("cluster_watcher", "cluster_watcher", True, reasons=(), leads=True)]
    said = examine(seen(installations=[], stack=Stack("/data/.restow/logs/{}.log", services)))
    assert [(one.word, one.what, one.do) for one in said if one.about == "services"] == [
        ("bad", "descheduler: not ready", "see /data/.restow/logs/descheduler.log"),
        ("unknown", "descheduler was not asked: no answer", ""),
        ("ok", "cluster_watcher: ready, leads", ""),
    ]


def test_a_silent_broker_that_each_service_names_is_said_once_of_a_stack_and_of_a_cluster():
    note = f"{SILENT_BROKER}: n2, of 3; if one more goes, no commit is taken"
    services = [Pod(name, f"restow-{name}", True, "restow:1", reasons=(), notes=(note, "a note of its own")[: 1 + (name == "descheduler")], lag=3) for name in SERVICES]
    of_stack = troubles(seen(installations=[], stack=Stack("{}", services)))
    assert [one[1:] for one in of_stack] == [("warning", "descheduler: a note of its own"), ("warning", note)]
    in_cluster = troubles(seen(installed(pods=[*services, Pod("restow-nats-0", "restow-nats", True, NATS)])))
    assert [one[1:] for one in in_cluster if SILENT_BROKER in one[2]] == [("warning", f"restow-system: {note}")]


def test_pods_that_nobody_ungates_are_named_the_oldest_first():
    def gated(name, created, gate="restow.dev/landing", **more):
        return {"metadata": {"namespace": "ml", "name": name, "creationTimestamp": created, **more}, "spec": {"schedulingGates": [{"name": gate}]}}

    pods = [
        gated("late", "2026-11-27T10:08:59Z"),
        gated("first", "2026-11-27T10:00:00Z"),
        gated("just-made", "2026-11-27T10:09:01Z"),
        gated("other", "2026-11-27T10:00:00Z", "kueue.x-k8s.io/admission"),
        gated("going", "2026-11-27T10:00:00Z", deletionTimestamp="2026-11-27T10:01:00Z"),
        {"metadata": {"namespace": "ml", "name": "free", "creationTimestamp": "2026-11-27T10:00:00Z"}, "spec": {}},
    ]
    assert long_gated(pods, datetime(2026, 11, 27, 10, 10, tzinfo=UTC)) == ["ml/first", "ml/late"]


def test_a_webhook_is_trusted_as_long_as_one_certificate_of_its_bundle_is_valid():
    """It was said to gate successors with one that had ended, while every move ended as NotGated."""
    short, long = certificate("20261101000000Z", "20261115000000Z"), certificate("20261110000000Z", "20601110000000Z")

    def said(pem: str, day: int) -> str:
        return untrusted_for(base64.b64encode(pem.encode()).decode(), datetime(2026, 11, day, tzinfo=UTC))

    assert said(short, 5) == ""
    assert said(short, 16) == "the certificate has ended at 2026-11-15 00:00 UTC"
    assert said(long, 5) == "the certificate is valid from 2026-11-10 00:00 UTC on"
    assert said(short + long, 16) == said(short + long, 5) == said(long, 16) == ""
    assert said("nothing", 5) == "nothing is a certificate"
    assert said("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", 5) == "a certificate cannot be read (no certificate: it ends too early)"


@pytest.mark.parametrize("sync", [True, False])
async def test_a_broker_says_itself_how_it_keeps_what_it_has_acknowledged(tmp_path, sync):
    """By a real one, on its monitoring port, which the API server's proxy leads to."""
    (port,) = free_ports(1)
    server = NatsServer(tmp_path / "nats", sync=sync, extra=f"http: 127.0.0.1:{port}")
    await asyncio.to_thread(server.start)
    try:

        class Proxy:
            async def peek(self, path):
                assert path == "/api/v1/namespaces/restow-system/pods/restow-nats-0:8222/proxy/varz"
                async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/varz") as answer:
                    return answer.status, await answer.read(), ""

        store = await Looker(Proxy(), datetime.now(UTC))._store("restow-system", "restow-nats-0")
    finally:
        server.stop()
    assert (store.always, store.name) == (sync, "restow-nats-0")
    assert store.most > store.used >= 0
    assert troubles(seen(installed(stores=[store]))) == [] if sync else len(troubles(seen(installed(stores=[store])))) == 1


def test_a_pod_that_ends_again_and_again_has_one_line():
    """That it did not answer says nothing new."""
    crashing = Pod("d", "restow-descheduler", False, "restow:1", "CrashLoopBackOff", 7, why="connection refused (503)")
    assert [what for _, _, what in troubles(seen(installed(pods=pods(descheduler=crashing))))] == ["restow-system: restow-descheduler: 0 of 1 ready", "restow-system: d: CrashLoopBackOff, 7 restarts"]


async def test_leases_are_judged_by_the_clock_of_when_they_were_read():
    """Services that hang had cost ten seconds each before that: Leases that were renewed meanwhile seemed to be of the future, and the clocks of healthy nodes to be wrong."""
    began = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)

    class Late:
        """An API server whose clock is 12 s on by now."""

        async def get(self, path):
            assert path == "/version"
            return b'{"gitVersion": "v1.36.3"}'

        async def peek(self, path):
            return 200, b"", "Sun, 29 Nov 2026 10:00:12 GMT"

    looker = Looker(Late(), began)

    async def listed(path, *_, **more):
        return [{"metadata": {"name": "restow-session"}, "spec": {"holderIdentity": "x", "renewTime": "2026-11-29T10:00:11.000000Z", "leaseDurationSeconds": 2}}]

    looker._listed = listed
    assert (await looker._leases("restow-system"))["restow-session"] == Lease("x", 1.0, 2)


@pytest.mark.parametrize(("later", "renewed"), [("2026-11-29T09:59:12.000000Z", True), ("2026-11-29T09:59:10.000000Z", False)])
async def test_a_leader_whose_clock_is_behind_leads_if_it_renews_its_lease(monkeypatch, later, renewed):
    """Services never compare clocks, so one whose clock was a minute behind led, and was told not to."""
    looker, slept, said = Looker(None, datetime(2026, 11, 29, 10, 0, 10, tzinfo=UTC)), [], ["2026-11-29T09:59:10.000000Z", later]

    async def server():
        return "v1.36.3", None

    async def listed(path, *_, **more):
        return [{"metadata": {"name": "restow-session"}, "spec": {"holderIdentity": "x", "renewTime": said.pop(0), "leaseDurationSeconds": 2}}]

    async def sleep(seconds):
        slept.append(seconds)

    looker._server, looker._listed = server, listed
    monkeypatch.setattr(look.asyncio, "sleep", sleep)
    lease = (await looker._leases("restow-system"))["restow-session"]
    assert (lease.renewed, lease.old, slept) == (renewed, True, [2.5])


def certificate(begin: str, end: str) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "restow-webhook")])
    key, times = ec.generate_private_key(ec.SECP256R1()), [datetime.strptime(one, "%Y%m%d%H%M%SZ") for one in (begin, end)]
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), *times).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_service_of_a_stack_that_was_restarted_is_asked_where_it_is_now(tmp_path):
    stack = {"file": str(tmp_path / "stack.json"), "services": {"descheduler": "http://127.0.0.1:1", "cluster_watcher": "http://127.0.0.1:2"}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "descheduler.http").write_text("http://127.0.0.1:3\n")
    assert [service_of(stack, name) for name in ("descheduler", "cluster_watcher", "console")] == ["http://127.0.0.1:3", "http://127.0.0.1:2", ""]


class Account:
    """A client that is a service's own: it may do everything but this."""

    def __init__(self, *verbs):
        self.verbs, self.asked = verbs, []

    async def create(self, path, body):
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        said = body["spec"]["resourceAttributes"]
        self.asked.append(said)
        return json.dumps({"status": {"allowed": said["verb"] not in self.verbs}}).encode()


@pytest.mark.parametrize("beside", [False, True])
async def test_the_account_of_a_service_that_runs_here_is_asked_for_what_that_needs_and_no_lease(beside):
    account = Account("patch")
    denied = await Looker(account, datetime.now(UTC)).lacks("descheduler", beside)
    assert ("patch", "landings.restow.dev") in [(one.verb, one.resource) for one in denied] or not beside
    assert {one.verb for one in denied} == {"patch"}
    assert not any(one["resource"] == "leases" for one in account.asked)
    assert any(one["resource"] == "landings" for one in account.asked) is beside
    assert await Looker(Account(), datetime.now(UTC)).lacks("descheduler", beside) == []


def test_what_the_accounts_of_a_stack_lack_is_said():
    stack = Stack("/data/.restow/logs/{}.log", [], "/accounts", [Denied("descheduler", "patch", "landings.restow.dev")])
    said = [(one.word, one.what) for one in examine(seen(installations=[], stack=stack)) if one.about == "rights"]
    assert said == [("bad", "/accounts: descheduler may not patch landings.restow.dev")]
    assert [one.word for one in examine(seen(installations=[], stack=stack._replace(denied=()))) if one.about == "rights"] == ["ok"]
    assert [one.word for one in examine(seen(installations=[], stack=stack._replace(denied=None))) if one.about == "rights"] == ["unknown"]
    assert not any(one.about == "rights" for one in examine(seen(installations=[], stack=Stack("/data/.restow/logs/{}.log", []))))


def test_every_declared_right_is_asked_for():
    asked = {rule for _, _, rule in needed("ns", beside=True)}
    declared = {rule for table in (rights.KUBERNETES, rights.BESIDE_OTHERS, rights.HOLDS) for rules in table.values() for rule in rules}
    assert declared <= asked
    assert {place for _, place, _ in needed("ns", beside=True)} == {"", "ns", "restow-holds"}
    with_claims = set(needed("ns", beside=True, claims=["shop"])) - set(needed("ns", beside=True))
    assert with_claims == {*((service, "shop", rule) for service, rules in rights.CLAIMS.items() for rule in rules), *((service, "", rule) for service, rules in rights.CLAIMS_OTHERS.items() for rule in rules)}


def run(*words: str, cwd) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RESTOW, "doctor", *words], cwd=cwd, capture_output=True, text=True, timeout=120)


def test_a_cluster_without_restow_says_so_and_how_to_install_it(tmp_path):
    with kubesim(tmp_path) as url:
        done = run("--kube", url, "-o", "json", cwd=tmp_path)
        found = json.loads(done.stdout)
        assert done.returncode == 1
        assert [one["what"] for one in found if one["word"] == "bad"] == ["no Reservation is defined, so no move can hold a place", "no service of Restow is in this cluster"]
        shown = run("--kube", url, cwd=tmp_path).stdout
        assert "BAD      no service of Restow is in this cluster" in shown
        assert f", at {url}\n" in shown.partition("definitions")[0]
        assert "→ helm install restow deploy/chart" in shown
        assert shown.endswith("2 bad, 0 to be looked at\n")


def test_an_api_that_is_not_there_is_no_diagnosis(tmp_path):
    done = run("--kube", "http://127.0.0.1:9", cwd=tmp_path)
    assert done.returncode == 3
    assert "does not answer" in done.stderr


def test_a_stack_that_was_killed_is_said_to_have_ended(tmp_path):
    """Its announcement is there still, and so says which API is looked at."""
    (tmp_path / ".restow").mkdir()
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / ".restow" / "stack.json").write_text(json.dumps({"kube": "http://127.0.0.1:9", "pid": gone.pid}))
    done = run(cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 3
    assert f"the stack of {tmp_path / '.restow' / 'stack.json'} has ended (process {gone.pid}), and its Kubernetes API with it" in said
    assert "--kube" in said


def test_services_in_the_cluster_are_counted_and_asked(tmp_path):
    with kubesim(tmp_path) as url:
        api = Api(url)
        labels = {"app.kubernetes.io/part-of": "restow", "app.kubernetes.io/name": "restow-descheduler"}
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "restow-system"}})
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "service", "image": "restow:1"}]}}
        body = {"metadata": {"name": "restow-descheduler", "labels": labels}, "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}}
        api.call("POST", "/apis/apps/v1/namespaces/restow-system/deployments", body)
        found = [(one["about"], one["word"], one["what"]) for one in json.loads(run("--kube", url, "-o", "json", cwd=tmp_path).stdout)]
    assert ("services", "bad", "restow-system: restow-descheduler: 0 of 2 ready") in found
    assert ("services", "bad", "restow-system: restow-cluster-watcher is missing") in found
    assert ("rights", "ok", "restow-system: the services may do all that they need") in found  # kubesim keeps nobody from anything


@pytest.mark.parametrize(
    ("said", "stack", "address"),
    [
        ((None, None), {"kube": "http://stack"}, "http://stack"),
        ((None, None), None, "http://service"),
        (("http://said", None), {"kube": "http://stack"}, "http://said"),
        ((None, "prod"), {"kube": "http://stack"}, ""),
    ],
)
def test_the_api_is_the_one_that_is_named_else_the_stacks_else_the_containers(monkeypatch, said, stack, address):
    monkeypatch.setenv("RESTOW_KUBE", "http://service")
    assert Kube(*said).address(SimpleNamespace(stack=stack, is_the_stacks=True)) == address
    assert Kube(None, None).address(SimpleNamespace(stack={"kube": "http://stack"}, is_the_stacks=False)) == "http://service"


def test_without_a_kubeconfig_it_says_that_there_is_none_and_where_it_looked(tmp_path):
    env = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "RESTOW_KUBE")}
    for more, place in (({"HOME": str(tmp_path)}, f"{tmp_path}/.kube/config"), ({"KUBECONFIG": "/a/x:/b/y"}, "/a/x or /b/y")):
        done = subprocess.run([RESTOW, "doctor"], capture_output=True, text=True, env=env | more, cwd=tmp_path)
        said = " ".join((done.stdout + done.stderr).split())
        assert said == f"restow: no Kubernetes API: there is no kubeconfig at {place}. Name an API with --kube URL|KUBECONFIG, or start a stack with `restow up`"
        assert done.returncode == 3


def test_services_beside_the_cluster_are_asked_where_they_are_named(tmp_path, monkeypatch):
    """As in compose: the cluster knows nothing of them."""
    with kubesim(tmp_path) as url:
        monkeypatch.setenv("RESTOW_KUBE", url)
        alone = subprocess.run([RESTOW, "doctor", "-o", "json"], capture_output=True, text=True, cwd=tmp_path)
        assert "no service of Restow is in this cluster" in alone.stdout
        monkeypatch.setenv("RESTOW_SERVICES", f"http://ada:geheim@127.0.0.1:9, {url}/")
        done = subprocess.run([RESTOW, "doctor", "-o", "json"], capture_output=True, text=True, cwd=tmp_path)
        said = [(one["word"], one["what"].partition(" (")[0], one["do"]) for one in json.loads(done.stdout) if one["about"] == "services"]
        assert "urlopen" not in done.stdout, "the reason in words, without Python's names"
        logs = "see docker compose logs 127.0.0.1, or where else its log goes"
        assert said == [
            ("bad", "127.0.0.1: not ready", logs), ("unknown", "127.0.0.1 was not asked: http://ada:***@127.0.0.1:9 does not answer", ""),
            ("bad", "127.0.0.1: not ready", logs), ("unknown", f"127.0.0.1 was not asked: what answers at {url} is no service of Restow's", ""),
            ("bad", "not among the services that were named: cluster-watcher, scheduler-session, reservation-cache, descheduler, garbage-collector, but for 2 of these, which did not say what they are",
             "start it, or name it, too, in --services or RESTOW_SERVICES"),
        ]  # fmt: skip


def test_who_of_the_services_beside_the_cluster_was_not_named_is_missed():
    named = [Pod(host, host, True, reasons=(), service=service) for host, service in (("10.0.0.7", "cluster_watcher"), ("10.0.0.8", "scheduler_session"), ("10.0.0.9", "descheduler"))]
    missed = "not among the services that were named: reservation-cache, garbage-collector"

    def said(*more: Pod) -> list[str]:
        return [what for _, word, what in troubles(seen(installations=[], stack=Stack("{}", [*named, *more], named=True))) if word == "bad" and "named" in what]

    silent = Pod("10.0.0.6", "10.0.0.6", False, why="http://10.0.0.6 does not answer")
    assert said() == [missed]
    assert said(silent) == [f"{missed}, but for 1 of these, which did not say what it is"]
    assert said(silent, silent) == [], "it may be these"
    assert not [one for one in troubles(seen(stack=Stack("{}", named, named=True))) if one[1] == "bad"], "others may be in the cluster"


def test_services_beside_the_cluster_hide_none_that_are_installed_in_it():
    broken = installed(pods=pods(descheduler=Pod("d", "restow-descheduler", False)))
    said = troubles(seen(broken, stack=Stack("{}", [Pod("one", "one", True, reasons=())])))
    assert [(about, word) for about, word, _ in said][:1] == [("services", "bad")]
