"""Hooks over HTTP against a real server that answers, refuses, hangs, redirects, sends a gigabyte, or closes: what is an answer counts, all else is none,
and no secret is said."""

import asyncio
import gzip
import json
import socket
import ssl
import subprocess
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from domain.build import NOW
from domain.test_hooks import M, asked

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.descheduler import hook_calls
from restow.descheduler import hooks as subject
from restow.descheduler.hook_calls import NO, NOT_YET, NOTHING, YES, call, heard
from restow.domain import hooks
from restow.domain.config import HookConfig
from restow.domain.effects import AskConsent, TellWorkload
from restow.domain.hooks import LONGEST, LONGEST_SAID
from restow.domain.records import Telling
from restow.kube.hooks import is_pod_address
from restow.runtime.effector import Done, Report, Retry, Wait
from restow.runtime.tracer import Tracer
from restow.tracing.calls import CALLS

from .test_traces import Kept

GATE = "gate"
TOKEN = "s3cr3t-t0ken"
SENT = [0]
"""Bytes of the answer without end."""


class Workload:
    """What it is asked, and what it does then."""

    def __init__(self):
        self.asked, self.headers, self.answer = [], [], None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.asked.append(await request.json())
        return await self.answer(request) if callable(self.answer) else self.answer


def says(status: int = 200, body: object = None, **headers: str):
    async def answer(request):
        return web.Response(status=status, text="" if body is None else body if isinstance(body, str) else json.dumps(body), headers=headers)

    return answer


async def hangs(request):
    await asyncio.sleep(3600)


async def closes(request):
    request.transport.close()
    return web.Response()


async def never_ends(request):
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    sent = 0
    while sent < 1 << 30:
        await answer.write(b" " * (1 << 16))
        sent += 1 << 16
        SENT[0] = sent
    return answer


@pytest.fixture
async def workload():
    one = Workload()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", one.serve)
    async with TestServer(app) as server:
        one.url, one.app = f"http://127.0.0.1:{server.port}/before", app
        yield one


class World:
    def __init__(self, state):
        self.state, self.now, self.notices = state, NOW, []
        self.clock, self.recorder = SimpleNamespace(now=lambda: self.now), SimpleNamespace(record=self.notices.append)
        self.client, self.metrics = None, None
        self.hooks = subject.Hooks(self)

    async def ask(self):
        return await self.hooks.ask(AskConsent(M), self.state)


def world(url: str, **more) -> World:
    return World(asked({}, policy=(HookConfig(GATE, before=url, **more),)))


@pytest.mark.parametrize(
    ("answer", "code", "error"), [(says(200), 200, ""), (says(202), 202, ""), (says(409, "the epoch ends soon"), 409, "409"), (closes, 0, "ServerDisconnectedError")], ids=["yes", "later", "no", "closes"]
)
async def test_what_a_hook_answered_is_a_span_of_the_attempt_that_says_no_path(workload, answer, code, error):
    workload.answer, kept = answer, Kept()
    one = world(f"{workload.url}?token={TOKEN}")
    attempt = Tracer(kept).attempt("AskConsent", {})
    await one.ask()
    attempt.end({})
    CALLS.set(None)
    asked, call = kept.spans
    assert (call.name, call.parent, call.call, call.error) == ("POST hook", asked.id, True, error)
    server = {"server.address": "127.0.0.1", "server.port": int(workload.url.rpartition(":")[2].partition("/")[0])}
    answered = {"http.response.status_code": code} if code else {}
    assert call.values == {"http.request.method": "POST", **server, **answered, **({"error.type": error} if error else {})}
    assert asked.begin <= call.begin <= call.end <= asked.end


async def test_a_workload_is_told_what_is_asked_and_its_assent_is_reported(workload):
    workload.answer = says(200, {"reason": "saved step 4000"})
    one = world(workload.url)
    assert await one.ask() == Report(c.ReportConsent(NOW, M, "agreed", "saved step 4000"))
    (said,) = workload.asked
    assert said == {
        "event": "before-move", "migration": M, "plan": "x", "attempt": 1, "namespace": "default", "pod": "p", "uid": "p", "node": "a", "target": "b",
        "deadline": "2023-11-14T22:18:20.000Z",
    }  # fmt: skip
    assert [notice.reason for notice in one.notices] == ["MoveAsked"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (says(409, "the epoch ends soon"), ("409 Conflict", 0)),
        (says(403, {"reason": "not now", "retryAfter": "10m"}), ("not now", 600_000)),
        (says(200, {"allowed": False, "reason": "busy"}, **{"Retry-After": "90"}), ("busy", 90_000)),
    ],
)
async def test_a_refusal_is_reported_with_its_reason_and_until_when_the_pod_is_left_alone(workload, answer, expected):
    workload.answer = answer
    message, after = expected
    assert await world(workload.url).ask() == Report(c.ReportConsent(NOW, M, "refused", message, NOW + after if after else 0))


async def test_not_yet_is_asked_again_when_it_says(workload):
    workload.answer = says(202, {"retryAfter": "3s"})
    one = world(workload.url)
    assert await one.ask() == Wait(3.0)
    assert await one.ask() == Wait(3.0)
    assert [said["attempt"] for said in workload.asked] == [1, 2]
    assert {said["migration"] for said in workload.asked} == {M}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(302, Location="/elsewhere"), "302 Found (redirects are not followed)"),
        (says(500, "Traceback ..."), "500 Internal Server Error"),
        (says(404), "404 Not Found"),
        (closes, "Server disconnected"),
    ],
)
async def test_what_is_no_answer_is_asked_again_and_at_the_deadline_it_is_said_what_was_heard_instead(workload, answer, why):
    workload.answer = answer
    one = world(workload.url)
    said = await one.ask()
    assert isinstance(said, Retry)
    assert why in said.reason
    assert len(workload.asked) == 1, "a redirect is not followed"
    one.now = one.state.consents[M].deadline
    assert await one.ask() == Report(c.ReportConsent(one.now, M, "silent", said.reason))
    assert len(workload.asked) == 1


async def test_a_process_that_comes_when_the_time_is_up_says_nothing_of_a_workload_that_it_has_not_asked(workload):
    one = world(workload.url)
    one.now = one.state.consents[M].deadline
    assert await one.ask() == Done()
    assert workload.asked == []


async def test_a_server_that_hangs_costs_no_more_than_the_workloads_time(workload):
    workload.answer = hangs
    one = world(workload.url, deadline=300)
    async with asyncio.timeout(5):
        assert isinstance(await one.ask(), Retry)


async def test_of_an_answer_without_end_a_bounded_part_is_read(workload):
    workload.answer = never_ends
    async with asyncio.timeout(10):
        assert "more than 64 KiB" in (await world(workload.url).ask()).reason, "it may have been a refusal"
    await asyncio.sleep(0.1)
    assert SENT[0] < 64 << 20, "the rest was never read"


async def test_where_nobody_listens_there_is_no_answer():
    one = world("http://127.0.0.1:1/x")
    said = await one.ask()
    assert isinstance(said, Retry)
    assert "127.0.0.1" in said.reason


# -- secrets and certificates ----------------------------------------------------------------------------------------------


async def test_a_token_is_sent_and_never_said(workload, tmp_path):
    """Https is asked for where the policy is read; here the request itself is what counts."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    workload.answer = says(500)
    one = world(workload.url, token_file=str(file))
    said = await one.ask()
    assert workload.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in repr(said)
    assert TOKEN not in repr(one.notices)
    file.write_text(f"{TOKEN}\nX-Evil: 1")
    said = await one.ask()
    assert "no bearer token" in said.reason
    assert TOKEN not in said.reason
    assert len(workload.asked) == 1, "what cannot be proved is not asked"


async def test_a_token_that_cannot_be_read_is_no_answer(workload, tmp_path):
    said = await world(workload.url, token_file=str(tmp_path / "none")).ask()
    assert isinstance(said, Retry)
    assert "none" in said.reason
    assert workload.asked == []


async def test_a_certificate_that_nobody_vouches_for_is_no_answer(workload, tmp_path):
    certificate, key = certified(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    workload.answer = says(200)
    app = web.Application()
    app.router.add_post("/before", workload.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        await web.SockSite(runner, listening, ssl_context=context).start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/before"
        try:
            said = await call(url, {"x": 1}, HookConfig(GATE, before=url), 5)
            assert said.word == NOTHING
            assert "certificate verify failed" in said.message
            assert workload.asked == []
            assert (await call(url, {"x": 1}, HookConfig(GATE, before=url, ca_file=str(certificate), server_name="gate.ml.svc"), 5)).word == YES
            assert (await call(url, {"x": 1}, HookConfig(GATE, before=url, ca_file=str(certificate), server_name="other.svc"), 5)).word == NOTHING
            assert (await call(url.replace("https", "http"), {"x": 1}, None, 5)).word == NOTHING
        finally:
            await runner.cleanup()


def certified(folder):
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=p",
         "-addext", "subjectAltName=DNS:gate.ml.svc", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


# -- the pod's own address -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ip", ["10.1.2.3", "192.168.0.7", "fd00::1", "100.64.0.9", "203.0.113.5"])
def test_a_pod_may_have_this_address(ip):
    assert is_pod_address(ip)


@pytest.mark.parametrize("ip", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "localhost", "", "10.0.0.1:80"])
def test_no_pod_has_this_address(ip):
    assert not is_pod_address(ip)


class OwnPod:
    """The API's answers about a pod."""

    def __init__(self, **pod):
        self.body = {"metadata": {"uid": "p"}} | pod

    async def get(self, path):
        assert path == "/api/v1/namespaces/default/pods/p"
        return json.dumps(self.body).encode()


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"spec": {"hostNetwork": True}, "status": {"podIP": "10.0.0.4"}}, "node's network"),
        ({"status": {"podIP": "10.0.0.4", "hostIP": "10.0.0.4"}}, "node's network"),
        ({"status": {"podIP": "10.0.0.4", "phase": "Succeeded"}}, "has ended"),
        ({"status": {"podIP": "10.0.0.4", "phase": "Failed"}}, "has ended"),
        ({"status": {"podIP": "169.254.169.254"}}, "no pod's address"),
        ({"status": {}}, "no address yet"),
        ({"metadata": {"uid": "another"}, "status": {"podIP": "10.0.0.4"}}, "gone"),
    ],
)
async def test_a_pod_whose_address_is_not_its_own_is_not_asked(pod, why, monkeypatch):
    monkeypatch.setattr(hook_calls, "call", None)
    one = World(asked({hooks.BEFORE: ":8080/x"}))
    one.client = OwnPod(**pod)
    one.hooks = subject.Hooks(one)
    said = await one.ask()
    assert isinstance(said, Retry)
    assert why in said.reason


async def test_a_pods_own_port_and_path_are_asked_at_its_own_address(monkeypatch):
    urls = []

    async def remember(url, content, hook, seconds):
        urls.append((url, hook))
        return heard(200, "", b"")

    monkeypatch.setattr(hook_calls, "call", remember)
    for way, ip in ((":8080/x?y=1", "10.0.0.4"), ("https://:8443", "fd00::4")):
        one = World(asked({hooks.BEFORE: way}))
        one.client = OwnPod(status={"podIP": ip})
        one.hooks = subject.Hooks(one)
        assert isinstance(await one.ask(), Report)
    assert urls == [("http://10.0.0.4:8080/x?y=1", None), ("https://[fd00::4]:8443/", None)]


async def test_a_hook_that_the_policy_has_no_more_is_not_asked(workload):
    one = world(workload.url)
    one.state.migration_config = type(one.state.migration_config)()
    assert "no hook gate any more" in (await one.ask()).reason
    assert workload.asked == []


# -- afterwards ------------------------------------------------------------------------------------------------------------


def to_tell(url: str) -> World:
    one = world(url)
    one.state.tellings[M] = Telling("stays", url, "p", NOW + 60_000, GATE)
    return one


async def test_a_workload_is_told_once_and_whatever_it_answers_it_was_told(workload):
    workload.answer = says(409)
    one = to_tell(workload.url)
    assert await one.hooks.tell(TellWorkload(M), one.state) == Report(c.ReportTold(NOW, M))
    assert workload.asked[0]["event"] == "move-cancelled"


async def test_who_cannot_be_told_is_tried_a_few_times_and_it_is_said(workload):
    workload.answer = says(503)
    one = to_tell(workload.url)
    said = [await one.hooks.tell(TellWorkload(M), one.state) for _ in range(subject.TELLS)]
    assert [type(one) for one in said] == [Retry] * (subject.TELLS - 1) + [Report]
    assert said[-1].command == c.ReportTold(NOW, M, "503 Service Unavailable")


async def test_who_is_to_be_told_too_late_is_not(workload):
    one = to_tell(workload.url)
    one.now = NOW + 60_000
    assert (await one.hooks.tell(TellWorkload(M), one.state)).command.message == "nobody was there to tell it in time"
    another = to_tell(workload.url)
    another.state.pods.clear()
    assert (await another.hooks.tell(TellWorkload(M), another.state)).command.message == "its pod is gone"
    assert workload.asked == []


async def test_until_the_log_has_the_answer_nobody_is_asked_once_more(workload):
    workload.answer = says(200)
    one = world(workload.url)
    assert await one.ask() == await one.ask() == Report(c.ReportConsent(NOW, M, "agreed"))
    two = to_tell(workload.url)
    assert await two.hooks.tell(TellWorkload(M), two.state) == await two.hooks.tell(TellWorkload(M), two.state)
    assert [said["event"] for said in workload.asked] == ["before-move", "move-cancelled"]


# -- what an answer means --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "header", "body", "expected"),
    [
        (204, "", b"", (YES, "", 0)),
        (200, "", b"[1]", (YES, "", 0)),
        (200, "", b'{"allowed": true}', (YES, "", 0)),
        (202, "", b"", (NOT_YET, "", hook_calls.POLL)),
        (202, "0", b"", (NOT_YET, "", hook_calls.POLL)),
        (202, "", b'{"retryAfter": "1ms"}', (NOT_YET, "", hook_calls.LEAST)),
        (202, "99999999999999999999", b"", (NOT_YET, "", hook_calls.SLOWEST)),
        (409, "soon", b"{", (NO, "409", 0)),
        (403, "9" * 5_000, b"", (NO, "403", LONGEST)),
        (403, "", b'{"retryAfter": "' + b"9" * 5_000 + b'h"}', (NO, "403", 0)),
        (200, "", b"ok", (YES, "", 0)),
        # A refusal is one in whatever way it is written, or nobody has agreed.
        (200, "", b'\xef\xbb\xbf{"allowed": false}', (NO, "200", 0)),
        (200, "", "\u00a0".encode() + b'{"allowed": false}', (NO, "200", 0)),
        (200, "", gzip.compress(b'{"allowed": false}', mtime=0), (NOTHING, "200 (no UTF-8 text)", 0)),
        (200, "", '{"allowed": false}'.encode("utf-16-le"), (NOTHING, "200 (no text: control characters)", 0)),
        (200, "", b"ok\r\n", (YES, "", 0)),
        (200, "", b' {"allowed": "no"}', (NOTHING, "200 (unreadable JSON: Expected `bool | null`, got `str` - at `$.allowed`)", 0)),
        (200, "", b'{"allowed": fal', (NOTHING, "200 (unreadable JSON: Input data was truncated)", 0)),
        (403, "", b'{"reason": "a\\nb\\u0007", "retryAfter": "soon"}', (NO, "a b", 0)),
        (429, "7", b"", (NOTHING, "429", 7_000)),
        (200, "", b'{"allowed": false, "reason": "' + b"x" * 9_000 + b'"}', (NO, "x" * LONGEST_SAID, 0)),
    ],
)
def test_what_an_answer_means(status, header, body, expected):
    assert tuple(heard(status, header, body)) == expected


def test_events_have_no_token():
    assert not any("token" in field for event in (e.ConsentAsked, e.WorkloadToTell) for field in event.__struct_fields__)


def test_a_hooks_certificate_is_verified_as_kubectl_verifies(monkeypatch, tmp_path):
    """Python 3.13, which the image has, is stricter than the authorities of EKS and MicroK8s are. Where an authority is named, it alone is trusted."""
    made = ssl.create_default_context

    def strict(*args, **kwargs):
        context = made(*args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=hook-test"]
    subprocess.run([*openssl, "-keyout", "ca.key", "-out", "ca.crt"], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(hook_calls, "ACCOUNT", str(tmp_path))
    for hook in (None, HookConfig(name="h", before="https://h/x", ca_file=str(tmp_path / "ca.crt"))):
        context = hook_calls._verify(hook)
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert any("hook-test" in str(one["subject"]) for one in context.get_ca_certs())
    assert len(context.get_ca_certs()) == 1
