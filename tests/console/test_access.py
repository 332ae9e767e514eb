"""Who may do what: the access file, tokens, sessions, a proxy's headers. What the server refuses; the page is in test_approve.py."""

import asyncio
import hashlib
import json
import socket
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from console.conftest import Client
from replay.handmade import proposed

from restow.console.access import COOKIE, Access, BadAccess, rules
from restow.console.service import Console, Orders
from restow.replay.source import save

TOKENS = {"viewer": "eve-0123456789abcdef", "approver": "ada-0123456789abcdef", "operator": "bob-0123456789abcdef"}
NAMES = {"viewer": "eve", "approver": "ada", "operator": "bob"}


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def access_file(folder, *roles, more=""):
    lines = [f"- {{name: {NAMES[role]}, role: {role}, sha256: {sha(TOKENS[role])}}}" for role in roles]
    path = folder / "access.yaml"
    path.write_text("tokens:\n" + "\n".join(lines) + "\n" + more if lines else more)
    return path


class Descheduler:
    """Takes whatever is sent, and the first answer to a plan counts."""

    def __init__(self):
        self.asked, self.tokens, self.answered, self.status, self.says = [], [], {}, 0, None

    async def handle(self, request):
        said = await request.json()
        self.tokens.append(request.headers.get("Authorization"))
        if self.status:
            return web.json_response({"error": "not the leader; nobody is" if self.status == 503 else "no"}, status=self.status)
        self.asked.append((request.path, said))
        parts = request.path.split("/")
        if parts[1] == "plans":
            if by := self.answered.get(parts[2]):
                return web.json_response({"error": f"{parts[3]}: plan {parts[2]} does not wait for a person (it was {by})"}, status=409)
            self.answered[parts[2]] = f"{'approved' if parts[3] == 'approve' else 'rejected'} by {said['by']}"
        return web.json_response(self.says or {"seq": 7, "events": [{"secret": "of no use"}]})


@asynccontextmanager
async def descheduling():
    fake, app = Descheduler(), web.Application()
    app.router.add_post("/{path:.*}", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@pytest.fixture
def answering(tmp_path):
    """`async with answering(*roles) as (client, descheduler)`: a console with an access file."""

    @asynccontextmanager
    async def serve(*roles, more="", live=True, where=None, **options):
        async with descheduling() as fake:
            source = proposed().source()
            console = Console(source, access=Access(access_file(tmp_path, *roles, more=more)), orders=Orders(where or (lambda: (fake.url, "t" * 20))), **options)
            console.follower.live = live
            await console.start()
            try:
                async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
                    client = Client(console, session)
                    console.follower.start()
                    while not console.follower.done:
                        await asyncio.sleep(0.02)
                    yield client, fake
            finally:
                await console.stop()

    return serve


async def post(client, path, body, headers=None, **more):
    async with client.session.post(client.url + path, data=json.dumps(body), headers={"Content-Type": "application/json"} | (headers or {}), **more) as answer:
        return answer.status, await answer.json(), answer.headers


def bearer(role):
    return {"Authorization": f"Bearer {TOKENS[role]}"}


# -- roles ------------------------------------------------------------------------------------------------------------

ACTS = {
    "/api/v1/plans/p1/approve": ("approver", {"moves": ["p1-1"], "reason": "go"}), "/api/v1/plans/p1/reject": ("approver", {"reason": "no"}),
    "/api/v1/mode": ("operator", {"mode": "observe", "reason": "x"}), "/api/v1/pause": ("operator", {"reason": "x"}), "/api/v1/resume": ("operator", {"reason": ""}),
}  # fmt: skip


@pytest.mark.parametrize("path", ACTS)
async def test_each_role_may_what_it_may_and_the_log_gets_the_name_that_the_server_knows(answering, path):
    needed, body = ACTS[path]
    async with answering("viewer", "approver", "operator") as (client, descheduler):
        order = ("viewer", "approver", "operator")
        for role in order:
            status, said, _ = await post(client, path, body, bearer(role))
            if order.index(role) < order.index(needed):
                assert status == 403
                assert f"the role {needed}" in said["error"]
                assert descheduler.asked == []
            else:
                descheduler.answered.clear()
                assert (status, said) == (200, {"seq": 7})
                assert descheduler.asked[-1] == (path.removeprefix("/api/v1"), {"by": NAMES[role]} | body)
        assert set(descheduler.tokens) == {"Bearer " + "t" * 20}
        # Nobody says who he is himself.
        status, said, _ = await post(client, path, body | {"by": "somebody else"}, bearer("operator"))
        assert status == 400
        assert "by" in said["error"]


async def test_the_second_of_two_people_is_told_who_was_first(answering):
    async with answering("approver", "operator") as (client, _):
        assert (await post(client, "/api/v1/plans/p1/approve", {}, bearer("approver")))[0] == 200
        status, said, _ = await post(client, "/api/v1/plans/p1/reject", {"reason": "no"}, bearer("operator"))
        assert status == 409
        assert "approved by ada" in said["error"]


async def test_without_a_login_nothing_is_shown_unless_everybody_may_look(answering):
    async with answering("viewer") as (client, _):
        for path in ("/api/v1/log", "/api/v1/frame", "/api/v1/live", "/api/v1/why", "/api/v1/names/pods"):
            assert (await client.get(path))[0] == 401, path
        assert (await client.get("/api/v1/log", bearer("viewer")))[0] == 200
        assert (await client.get("/api/v1/log", {"Authorization": "Bearer wrong-0123456789abcdef"}))[0] == 401
        assert (await client.get("/"))[0] == 200
        assert await client.json("/api/v1/me") == {"person": None, "login": True, "off": ""}
    async with answering("approver", more="anonymous: viewer\n") as (client, _):
        assert (await client.get("/api/v1/log"))[0] == 200
        assert (await client.json("/api/v1/me"))["person"] == {"name": "", "role": "viewer", "how": "anonymous"}
        assert (await post(client, "/api/v1/plans/p1/approve", {}, {"Origin": client.url}))[0] == 403


async def test_a_recorded_log_and_a_console_without_an_access_file_change_nothing(answering, looking):
    async with answering("operator", live=False) as (client, descheduler):
        status, said, _ = await post(client, "/api/v1/plans/p1/approve", {}, bearer("operator"))
        assert status == 405
        assert "recorded log" in said["error"]
        assert descheduler.asked == []
    async with looking(proposed().source()) as client:
        for path in (*ACTS, "/api/v1/login"):
            status, said, _ = await post(client, path, {})
            assert status == 405
            assert "--access FILE" in said["error"]
        assert (await client.json("/api/v1/me"))["login"] is False


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_login_is_a_cookie_that_no_script_reads_and_the_token_ends_it(answering, tmp_path):
    async with answering("approver", "viewer") as (client, descheduler):
        own = {"Origin": client.url}
        status, said, headers = await post(client, "/api/v1/login", {"token": TOKENS["approver"]}, own)
        assert (status, said["person"]["name"]) == (200, "ada")
        said = headers["Set-Cookie"]
        assert all(word in said for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"))
        assert TOKENS["approver"] not in said
        cookie = {"Cookie": said.partition(";")[0]}
        assert (await client.get("/api/v1/log", cookie))[0] == 200
        assert (await post(client, "/api/v1/plans/p1/approve", {}, cookie | own))[0] == 200
        access_file(tmp_path, "viewer")
        assert (await client.get("/api/v1/log", cookie))[0] == 401, "the token is in the file no more"
        access_file(tmp_path, "approver", "viewer")
        assert (await client.get("/api/v1/log", cookie))[0] == 200
        assert (await post(client, "/api/v1/logout", {}, cookie | own))[0] == 200
        assert (await client.get("/api/v1/log", cookie))[0] == 401
        assert len(descheduler.asked) == 1


@pytest.mark.parametrize("token", ["", " ", "wrong-0123456789abcdef", sha("ada-0123456789abcdef")])
async def test_a_wrong_token_begins_no_session(answering, token):
    async with answering("approver") as (client, _):
        status, said, headers = await post(client, "/api/v1/login", {"token": token}, {"Origin": client.url})
        assert (status, said) == (401, {"error": "nobody has this token"})
        assert "Set-Cookie" not in headers


async def test_a_cookie_from_a_page_of_another_origin_does_nothing(answering):
    async with answering("approver") as (client, descheduler):
        cookie = {"Cookie": (await post(client, "/api/v1/login", {"token": TOKENS["approver"]}, {"Origin": client.url}))[2]["Set-Cookie"].partition(";")[0]}
        path = "/api/v1/plans/p1/approve"
        for headers in (
            {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "null"}, {}, {"Origin": client.url, "Sec-Fetch-Site": "cross-site"},
            {"Origin": client.url, "Sec-Fetch-Site": "same-site"}, {"Origin": client.url, "Content-Type": "text/plain"}, {"Origin": client.url, "Content-Type": "application/x-www-form-urlencoded"},
        ):  # fmt: skip
            assert (await post(client, path, {}, cookie | headers))[0] == 403, headers
        assert (await client.get(path, cookie))[0] == 405
        assert (await client.get("/api/v1/log", cookie, method="OPTIONS"))[0] == 405
        assert descheduler.asked == []


async def test_a_stolen_link_does_nothing(answering):
    async with answering("approver") as (client, descheduler):
        for query in ({"token": TOKENS["approver"]}, {"access_token": TOKENS["approver"]}, {COOKIE: TOKENS["approver"]}):
            assert (await client.get("/api/v1/log", **query))[0] == 401
            assert (await post(client, "/api/v1/plans/p1/approve", {}, {"Origin": client.url}, params=query))[0] == 401
        assert descheduler.asked == []


async def test_a_stream_ends_with_the_right_to_it(answering, tmp_path):
    import asyncio

    async with answering("viewer", "approver") as (client, _), client.session.get(client.url + "/api/v1/live", headers=bearer("viewer")) as stream:
        assert (await stream.content.readline()) == b"event: log\n"
        access_file(tmp_path, "approver")
        async with asyncio.timeout(10):
            await stream.content.read()


# -- a proxy ----------------------------------------------------------------------------------------------------------

SECRET = "shared-0123456789abcdef"
PROXY = f"proxy: {{hosts: [console.example.com], secretSha256: {sha(SECRET)}, groups: {{sre: approver, leads: operator}}}}\n"
FROM = {"X-Restow-Proxy-Secret": SECRET, "X-Forwarded-User": "ada@example.com", "Host": "console.example.com"}


@pytest.mark.parametrize(
    ("headers", "role"),
    [
        ({}, "viewer"), ({"X-Forwarded-Groups": "sre"}, "approver"), ({"X-Forwarded-Groups": "dev, leads,sre"}, "operator"), ({"X-Forwarded-Groups": "SRE"}, "viewer"),
        ({"X-Restow-Proxy-Secret": "wrong"}, None), ({"X-Restow-Proxy-Secret": ""}, None), ({"X-Forwarded-User": ""}, None), ({"X-Forwarded-User": "a\u202eb"}, None), ({"X-Forwarded-User": "a" * 101}, None),
    ],
)  # fmt: skip
async def test_a_proxy_says_who_asks_if_it_is_the_one(answering, headers, role):
    async with answering(more=PROXY) as (client, _):
        status, _, body = await client.get("/api/v1/me", {key: value.encode().decode("latin-1") if not value.isascii() else value for key, value in (FROM | headers).items()})
        person = json.loads(body)["person"]
        assert (status, person and (person["name"], person["role"])) == (200, role and ("ada@example.com", role))


async def test_what_a_proxy_sends_is_checked_for_its_page_too(answering):
    async with answering(more=PROXY) as (client, descheduler):
        sre = FROM | {"X-Forwarded-Groups": "sre"}
        path = "/api/v1/plans/p1/approve"
        for origin in (None, "http://console.example.com", "https://evil.example", client.url):
            assert (await post(client, path, {}, sre | ({"Origin": origin} if origin else {})))[0] == 403, origin
        assert (await client.get("/api/v1/me", sre | {"Host": "other.example.com"}))[0] == 421
        assert (await post(client, path, {}, sre | {"Origin": "https://console.example.com"}))[0] == 200
        assert descheduler.asked[-1][1]["by"] == "ada@example.com"
        # Sent twice: one is not the proxy's.
        request = client.session.get(client.url + "/api/v1/me", headers=[*sre.items(), ("X-Forwarded-User", "root")])
        async with request as answer:
            assert (await answer.json())["person"] is None


@pytest.mark.parametrize("secret", ["", "short"])
async def test_a_secret_that_can_be_guessed_proves_nothing_although_its_hash_is_there(answering, secret):
    async with answering(more=PROXY.replace(sha(SECRET), sha(secret))) as (client, _):
        _, _, body = await client.get("/api/v1/me", FROM | {"X-Restow-Proxy-Secret": secret})
        assert json.loads(body)["person"] is None


def test_headers_are_believed_from_listed_addresses_only(tmp_path):
    from multidict import CIMultiDict, CIMultiDictProxy

    headers = CIMultiDictProxy(CIMultiDict({"X-Forwarded-User": "ada"}))
    access = Access(access_file(tmp_path, more="proxy: {hosts: [c.example], addresses: [10.1.0.0/16, 'fd00::/64']}\n"))
    for remote, known in (("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd00::7", True), ("10.2.0.1", False), ("127.0.0.1", False), (None, False), ("", False)):
        assert (access.who(headers, {}, remote) is not None) == known, remote


async def test_what_a_person_has_shown_to_the_proxy_itself_is_nobodys_token_here_and_proves_no_page(answering):
    """Some proxies hand it on: Basic, or a token of theirs. A browser sends it by itself."""
    async with answering(more=PROXY) as (client, descheduler):
        sre = FROM | {"X-Forwarded-Groups": "sre", "Authorization": "Basic YWRhOnNlY3JldA=="}
        path = "/api/v1/plans/p1/approve"
        assert (await post(client, path, {}, sre))[0] == 403
        assert (await post(client, path, {}, sre | {"Origin": "https://evil.example"}))[0] == 403
        assert (await post(client, path, {}, sre | {"Origin": "https://console.example.com"}))[0] == 200
        assert len(descheduler.asked) == 1


async def test_a_short_token_is_none_although_its_hash_is_there(answering, tmp_path):
    async with answering("viewer") as (client, _):
        (tmp_path / "access.yaml").write_text(f"tokens: [{{name: ada, role: operator, sha256: {sha('hunter2')}}}]")
        assert (await post(client, "/api/v1/login", {"token": "hunter2"}, {"Origin": client.url}))[0] == 401
        assert (await client.get("/api/v1/log", {"Authorization": "Bearer hunter2"}))[0] == 401


async def test_answers_are_kept_by_nobody_on_the_way(answering):
    async with answering("viewer") as (client, _):
        for path in ("/api/v1/log", "/api/v1/frame", "/api/v1/names/pods", "/api/v1/me"):
            said = (await client.get(path, bearer("viewer")))[1]["Cache-Control"]
            assert said in ("no-store", "private, no-cache"), path


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lets nobody in"), ("[]", "mapping"), ("tokens: [{name: a, role: king, sha256: x}]", "role"), (f"tokens: [{{name: a, role: viewer, sha256: {'A' * 64}}}]", "64 characters"),
        (f"tokens: [{{name: '', role: viewer, sha256: {'a' * 64}}}]", "printable"), ("tokens: [{name: a, role: viewer, token: s3cret}]", "token"), ("{", "no YAML"), ("anonymous: operator", "anonymous"),
        ("proxy: {hosts: [c.example]}", "anybody could send"), ("proxy: {hosts: [c.example], addresses: [127.0.0.1]}", "on this machine"), ("proxy: {hosts: [c.example], addresses: [0.0.0.0/0]}", "on this machine"),
        ("proxy: {hosts: [c.example], addresses: ['::/0']}", "on this machine"), ("proxy: {hosts: [c.example], addresses: [10.1.0.1/16]}", "host bits"), ("proxy: {hosts: [], addresses: [10.1.0.0/16]}", "hosts"),
        (f"proxy: {{hosts: ['https://c.example'], secretSha256: {'a' * 64}}}", "hosts"), ("extra: 1", "extra"),
        ("anonymous: 2026-99-99 # s3cret", "cannot be read"), ("anonymous: !!int s3cret", "cannot be read"), ("[" * 100_000, "cannot be read"), (f"anonymous: 1{'0' * 5_000}", "cannot be read"),
        (f"tokens: [{{name: a, role: viewer, role: operator, sha256: {'a' * 64}}}]", "twice"), (f"proxy: {{hosts: [c.example], secretSha256: {'a' * 64}, userHeader: x-restow-proxy-secret}}", "of its own"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_what_is_allowed(text, said):
    with pytest.raises(BadAccess) as error:
        rules(text)
    assert said in str(error.value)
    assert "s3cret" not in str(error.value)


async def test_a_file_that_becomes_unusable_lets_nobody_in_until_it_is_mended(answering, tmp_path):
    async with answering("approver") as (client, _):
        path = tmp_path / "access.yaml"
        good = path.read_text()
        for bad in ("{", "anonymous: 2026-99-99", "[" * 100_000, None):
            path.unlink() if bad is None else path.write_text(bad)
            status, _, body = await client.get("/api/v1/log", bearer("approver"))
            assert status == 401
            assert b"access file cannot be used" in body
            path.write_text(good)
            assert (await client.get("/api/v1/log", bearer("approver")))[0] == 200


# -- bodies, and what is logged ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "sent", "status"),
    [
        ("Content-Encoding: gzip\r\nContent-Length: 5", b"abcde", 400), ("Content-Encoding: deflate\r\nContent-Length: 5", b"abcde", 400), ("Content-Length: 50", b"{}", 408),
        ("Content-Length: 3", b'"\xff"', 400), ("Content-Length: 60000", b"[" * 60_000, 400), ("Content-Length: 70000", b"x" * 70_000, 413),
    ],
)  # fmt: skip
async def test_a_body_that_cannot_be_read_is_refused_and_no_failure_of_ours(answering, headers, sent, status, monkeypatch, capfd):
    monkeypatch.setattr("restow.console.acts.READ_IN", 0.3)
    async with answering("operator") as (client, descheduler):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(client.url.rsplit(":", 1)[1]))
        writer.write(f"POST /api/v1/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS['operator']}\r\n{headers}\r\n\r\n".encode() + sent)
        assert int((await reader.readline()).split()[1]) == status
        writer.close()
        assert not descheduler.asked
    said = capfd.readouterr()
    assert "a request failed" not in said.out + said.err


async def test_who_leaves_in_the_middle_of_a_body_is_no_failure_of_ours(answering, capfd):
    async with answering("operator") as (client, descheduler):
        _, writer = await asyncio.open_connection("127.0.0.1", int(client.url.rsplit(":", 1)[1]))
        writer.write(f"POST /api/v1/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS['operator']}\r\nContent-Length: 50\r\n\r\n{{}}".encode())
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await asyncio.sleep(0.1)
        assert not descheduler.asked
    said = capfd.readouterr()
    assert "a request failed" not in said.out + said.err


FAILS = """
import sys
from restow.cli.main import main
from restow.console.api import Api

async def fails(self, request):
    token = request.headers["Authorization"]
    raise RuntimeError("a bug of ours")

Api._log = fails
sys.argv = ["restow", "console", sys.argv[1], "--port", "0", "--access", sys.argv[2], "--address-file", sys.argv[3]]
main()
"""


async def test_a_failure_is_logged_without_the_token_of_who_has_asked(tmp_path):
    """By the command itself: with structlog as it comes, a traceback shows the variables of every frame, headers included."""
    exported = tmp_path / "log.jsonl.zst"
    save(proposed().source(), exported)
    address = tmp_path / "address"
    arguments = [sys.executable, "-c", FAILS, str(exported), str(access_file(tmp_path, "operator")), str(address)]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        while not (address.exists() and address.read_text()):
            assert process.returncode is None
            await asyncio.sleep(0.05)
        async with aiohttp.ClientSession() as session, session.get(f"{address.read_text()}/api/v1/log", headers=bearer("operator")) as answer:
            assert answer.status == 500
        process.terminate()
        said = (await process.communicate())[0].decode()
        assert "a request failed" in said
        assert "RuntimeError: a bug of ours" in said
        assert TOKENS["operator"] not in said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# -- the descheduler --------------------------------------------------------------------------------------------------


async def test_what_the_descheduler_says_is_handed_on_and_its_token_is_not(answering):
    async with answering("operator") as (client, descheduler):
        for status, shown in ((400, 400), (404, 404), (409, 409), (401, 502), (403, 502), (500, 502), (503, 503)):
            descheduler.status = status
            found, said, _ = await post(client, "/api/v1/pause", {"reason": "x"}, bearer("operator"))
            assert found == shown
            assert said["error"]
            assert "t" * 20 not in json.dumps(said)


@pytest.mark.parametrize("says", [{"status": "ok"}, {"seq": "7", "events": []}, []])
async def test_who_says_yes_and_is_no_descheduler_has_approved_nothing(answering, says):
    async with answering("approver") as (client, descheduler):
        descheduler.says = says or [1]
        status, said, _ = await post(client, "/api/v1/plans/p1/approve", {}, bearer("approver"))
        assert status == 502
        assert "no descheduler" in said["error"]


async def test_a_descheduler_that_is_away_is_said(answering):
    async with answering("operator", where=lambda: ("http://127.0.0.1:1", "")) as (client, _):
        status, said, _ = await post(client, "/api/v1/pause", {"reason": "x"}, bearer("operator"))
        assert status == 503
        assert "nothing was changed" in said["error"]

    def nowhere():
        raise LookupError("no descheduler: name one with --descheduler")

    async with answering("operator", where=nowhere) as (client, _):
        status, said, _ = await post(client, "/api/v1/pause", {"reason": "x"}, bearer("operator"))
        assert (status, said["error"]) == (503, "no descheduler: name one with --descheduler")


async def test_of_several_deschedulers_the_one_that_leads_is_found(monkeypatch):
    from restow.console import orders

    async with descheduling() as stands_by, descheduling() as leads:
        stands_by.status = 503

        async def both(address):
            return [("http://127.0.0.1:1", ""), (stands_by.url, "d:8080"), (leads.url, "d:8080")]

        monkeypatch.setattr(orders, "_addresses", both)
        assert await Orders(lambda: ("http://d:8080", "")).give("/pause", {"by": "ada"}) == (200, {"seq": 7})
        assert (len(stands_by.tokens), len(leads.asked)) == (1, 1)


async def test_an_address_that_answers_nothing_is_passed_over_as_one_where_nobody_listens_is(monkeypatch):
    """A pod of a node that has failed: its address is still among those of the Service. Nothing was sent there, so nothing may have been done."""
    from restow.console import orders

    async with descheduling() as leads:
        full = socket.create_server(("127.0.0.1", 0), backlog=0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            gone = f"http://127.0.0.1:{full.getsockname()[1]}"

            async def both(address):
                return [(gone, "d:8080"), (leads.url, "d:8080")]

            monkeypatch.setattr(orders, "_addresses", both)
            monkeypatch.setattr(orders, "CONNECT", 0.3)
            assert await Orders(lambda: ("http://d:8080", "")).give("/pause", {"by": "ada"}) == (200, {"seq": 7})

            async def only(address):
                return [(gone, "d:8080")]

            monkeypatch.setattr(orders, "_addresses", only)
            status, said = await Orders(lambda: ("http://d:8080", "")).give("/pause", {"by": "ada"})
            assert (status, "nothing was changed" in said["error"]) == (503, True)
        finally:
            for one in (full, *waiting):
                one.close()


async def test_a_name_is_asked_at_each_of_its_addresses():
    from restow.console.orders import _addresses

    assert ("http://127.0.0.1:8080", "localhost:8080") in await _addresses("http://localhost:8080")
    assert await _addresses("https://localhost:8080") == [("https://localhost:8080", "")]
