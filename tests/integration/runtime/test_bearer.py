"""Who may use a service's API: the token from the environment or a file, and nobody else; nothing of it is ever shown."""

import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from restow.runtime import bearer, settings
from restow.runtime.bearer import Gate
from restow.runtime.health import Health
from restow.runtime.http import Route, Server, answer, describe

TOKEN = "s3cret-token-of-a-service"
OTHER = "another-token-that-is-as-long"


def status(gate, header, guard="changes", local=False):
    refusal = gate.refusal([] if header is None else [header], guard, local=local)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer   {TOKEN} ", 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Bearer {TOKEN} {TOKEN}", 401),
        ("Bearer " + "x" * 100_000, 401),
        ("Bearer tök\udcffen", 401),
    ],
)
def test_the_token_and_nothing_else_opens(header, code):
    assert status(Gate(TOKEN), header) == code
    assert status(Gate(TOKEN), header, "reads") == code
    assert status(Gate(TOKEN), header, "") == 200


@pytest.mark.parametrize("token", ["", TOKEN])
def test_a_service_that_only_reads_says_so_and_names_no_setting_that_would_help(token):
    gate = Gate(token, reads_only=True)
    said = {guard: gate.refusal([f"Bearer {TOKEN}"], guard, local=True) for guard in ("changes", "answers", "reads", "")}
    assert (said["reads"], said[""]) == (None, None)
    assert all(said[guard].status == 403 and "restow watch" in said[guard].reason and "TOKEN" not in said[guard].reason for guard in ("changes", "answers"))


def test_two_headers_are_none():
    assert Gate(TOKEN).refusal([f"Bearer {TOKEN}", f"Bearer {TOKEN}"], "changes").status == 401


def test_without_a_token_nothing_can_be_changed_and_this_machine_alone_may_look():
    gate = Gate()
    assert (status(gate, None, local=True), status(gate, f"Bearer {TOKEN}", local=True), status(gate, None, "reads", local=True)) == (403, 403, 200)
    assert (status(gate, None, "reads"), status(gate, None, "")) == (403, 200)
    assert "kubectl port-forward" in gate.refusal([], "reads").reason
    assert "set RESTOW_API_TOKEN_FILE" in gate.refusal([], "changes").reason
    assert not gate.configured()


@pytest.mark.parametrize(
    ("peer", "local"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.7", False), ("::ffff:10.0.0.7", False), ("0.0.0.0", False), ("", False), (None, False), ("localhost", False)],
)  # fmt: skip
def test_who_is_this_machine(peer, local):
    assert bearer.is_local(peer) is local


def test_the_token_is_asked_of_this_machine_too():
    assert status(Gate(TOKEN), None, "reads", local=True) == 401


async def test_another_pod_that_reaches_the_port_sees_metrics_and_nothing_of_the_api():
    address = own_address()
    if not address:
        pytest.skip("this machine has the loopback address only")
    server = Server("test", Health(), CollectorRegistry(), dict, Gate())
    server.extend(ROUTES)
    await server.start("0.0.0.0", 0)
    try:
        async with aiohttp.ClientSession() as session:
            for host, seen in (("127.0.0.1", 200), (address, 403)):
                base = f"http://{host}:{server.address.rpartition(':')[2]}"
                assert [(await session.get(base + path)).status for path in ("/things/x", "/metrics")] == [seen, 200]
    finally:
        await server.stop()


def own_address():
    """Not the loopback one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        found = probe.getsockname()[0]
        return "" if found.startswith("127.") else found


def test_a_file_is_read_anew_and_has_the_next_token_beside_the_present_one(tmp_path):
    file = tmp_path / "token"
    gate = Gate(file=str(file))
    assert status(gate, f"Bearer {TOKEN}") == 403
    assert "cannot be read" in gate.refusal([], "changes").reason
    file.write_text(f"{TOKEN}\n")
    assert status(gate, f"Bearer {TOKEN}") == 200
    file.write_text(f"{OTHER}\n\n  {TOKEN}  \n")
    assert [status(gate, f"Bearer {token}") for token in (TOKEN, OTHER)] == [200, 200]
    file.write_text(OTHER)
    assert [status(gate, f"Bearer {token}") for token in (TOKEN, OTHER)] == [401, 200]


def test_another_token_may_answer_and_nothing_else(tmp_path):
    file = tmp_path / "answers"
    file.write_text(OTHER)
    for gate in (Gate(TOKEN, answers=str(file)), Gate(answers=str(file))):
        own = gate.configured()
        assert [status(gate, f"Bearer {OTHER}", guard) for guard in ("answers", "changes", "reads")] == ([200, 401, 401] if own else [200, 403, 403])
        assert status(gate, f"Bearer {TOKEN}", "answers") == (200 if own else 401)
        assert status(gate, None, "answers") == 401
    assert status(Gate(answers=str(tmp_path / "none")), f"Bearer {OTHER}", "answers") == 403


@pytest.mark.parametrize("text", ["", "short", "with a blank in it, which no token has", "\x00\x01\x02", "é" * 20])
def test_a_file_without_a_token_closes_everything(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    gate = Gate(file=str(file))
    assert [status(gate, f"Bearer {text.strip()}", guard) for guard in ("reads", "changes")] == [403, 403]
    assert text == "" or text not in gate.refusal([], "changes").reason


def test_all_tokens_are_compared_whichever_fits(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n{OTHER}\n")
    compared = []
    digest = bearer.hmac.compare_digest
    monkeypatch.setattr(bearer.hmac, "compare_digest", lambda a, b: compared.append(b) or digest(a, b))
    status(Gate(file=str(file)), f"Bearer {TOKEN}")
    assert compared == [TOKEN.encode(), OTHER.encode()]


def test_nothing_of_it_is_shown():
    read = settings.read("descheduler", [], {"RESTOW_API_TOKEN": TOKEN})
    assert read.api_token == TOKEN
    assert TOKEN not in str(read.shown())
    assert TOKEN not in repr(Gate(TOKEN))
    assert all(TOKEN not in refusal.reason for refusal in (Gate(TOKEN).refusal([], "changes"), Gate(TOKEN).refusal(["Bearer x"], "reads")))


@pytest.mark.parametrize("bad", ["short", "fifteen-letters", "has a blank in it, so it is none", "x" * 513])
def test_a_bad_token_is_refused_at_start_and_not_repeated(bad):
    with pytest.raises(settings.BadSetting, match=r"RESTOW_API_TOKEN is .*allowed: 16 to 512 of") as error:
        settings.read("descheduler", [], {"RESTOW_API_TOKEN": bad})
    assert bad not in str(error.value)


def test_one_of_token_and_file_and_no_flag_for_the_token(capsys):
    with pytest.raises(settings.BadSetting, match="RESTOW_API_TOKEN_FILE"):
        settings.read("descheduler", ["--api-token-file", "/x"], {"RESTOW_API_TOKEN": TOKEN})
    with pytest.raises(SystemExit):
        settings.read("descheduler", ["--api-token", TOKEN], {})
    assert settings.read("descheduler", ["--api-token-file", "/not/there/yet"], {}).api_token_file == "/not/there/yet"
    capsys.readouterr()


async def _echo(request):
    return answer({"id": request.match_info.get("id", "")})


ROUTES = [
    Route("GET", "/things/{id}", "One", _echo, {200: "it"}, guard="reads"),
    Route("POST", "/things/all", "All", _echo, {200: "them"}, guard="changes"),
    Route("POST", "/things/{id}/end", "End one", _echo, {200: "ended"}, guard="changes", body={"why": {"type": "string"}}, required=("why",)),
    Route("GET", "/free", "Free", _echo, {200: "free"}),
]


async def test_paths_with_names_and_their_guards_over_http():
    server = Server("test", Health(), CollectorRegistry(), dict, Gate(TOKEN))
    server.extend(ROUTES)
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(server.address) as session:

            async def ask(method, path, token=TOKEN):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.request(method, path, headers=headers) as response:
                    return response.status, await response.json(), response.headers.get("WWW-Authenticate")

            assert (await ask("GET", "/things/a%20b"))[:2] == (200, {"id": "a b"})
            assert (await ask("POST", "/things/all"))[:2] == (200, {"id": ""})
            assert (await ask("POST", "/things/x/end"))[:2] == (200, {"id": "x"})
            assert (await ask("GET", "/free", ""))[0] == 200
            assert (await ask("GET", "/things/x", ""))[::2] == (401, 'Bearer realm="restow"')
            assert (await ask("POST", "/things/x/end", OTHER))[0] == 401
            assert (await ask("GET", "/things//end"))[0] == 404
            assert (await ask("DELETE", "/things/x"))[0] == 405
            for path in ("/livez", "/metrics", "/state", "/openapi.json"):
                async with session.get(path) as response:
                    assert response.status == 200
    finally:
        await server.stop()


def test_openapi_says_who_may():
    described = describe("test", ROUTES)
    end = described["paths"]["/things/{id}/end"]["post"]
    assert end["security"] == [{"token": []}]
    assert end["parameters"] == [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    assert end["requestBody"]["content"]["application/json"]["schema"]["required"] == ["why"]
    assert {"401", "403"} <= set(end["responses"])
    assert described["paths"]["/things/{id}"]["get"]["security"] == [{"token": []}, {}]
    assert "403" in described["paths"]["/things/{id}"]["get"]["responses"]
    assert "security" not in described["paths"]["/free"]["get"]
    assert described["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
