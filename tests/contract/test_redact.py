"""A secret that has a name, or a form of its own, is shown nowhere: not in settings, errors, statuses or logs, whatever library writes them."""

import json
import logging
import sys
import time

import pytest
import structlog

from restow.cli.failures import Failure
from restow.contracts.redact import redacted
from restow.eventlog.jetstream.connect import Broker
from restow.eventlog.port import BrokerRefused
from restow.kube.client import ClientConfig, ClientConfigError, connect
from restow.runtime import logs
from restow.runtime.settings import BadSetting, check

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://scheduler:s3cret@nats:4222", "nats://scheduler:***@nats:4222"),
        ("nats://a:s3cret@h1:1,tls://b:s3cret@h2:2", "nats://a:***@h1:1,tls://b:***@h2:2"),
        ("nats://s3cret@nats:4222", "nats://***@nats:4222"),  # a token
        ("nats://u:p@s3cret/'\"w@nats:4222 is not there", "nats://u:***@nats:4222 is not there"),
        ("nats://u:p,s3cret@h1,nats://h2", "nats://u:***@h1,nats://h2"),
        ("pods a@b, c@d of https://host", "pods a@b, c@d of https://host"),
        ("https://u:s3cret@prometheus/api?x=1", "https://u:***@prometheus/api?x=1"),
        ("https://host/path?token=s3cret&x=1", "https://host/path?token=***&x=1"),
        ("Authorization: Bearer s3cret.s3cret.s3cret", "Authorization: Bearer ***"),
        ("nats://nats:4222, https://127.0.0.1:6443/api", "nats://nats:4222, https://127.0.0.1:6443/api"),
        ("pod a@b is not a Bearer of news", "pod a@b is not a Bearer of news"),
        # headers
        ("Authorization: Basic dXNlcjpz", "Authorization: Basic ***"),
        (
            "{'Authorization': 'Basic dXNlcjpz', 'Accept': 'x'}",
            "{'Authorization': 'Basic ***', 'Accept': 'x'}",
        ),
        ('{"authorization": "Bearer s3cret", "a": 1}', '{"authorization": "Bearer ***", "a": 1}'),
        ("Proxy-Authorization: Negotiate s3cret==", "Proxy-Authorization: Negotiate ***"),
        ("Set-Cookie: session=s3cret; Path=/", "Set-Cookie: ***"),
        ("curl -H 'Authorization: token s3cret' https://x", "curl -H 'Authorization: token ***' https://x"),
        # settings and flags
        ("X_PASSWORD=s3,cret&more OTHER=x", "X_PASSWORD=*** OTHER=x"),
        ("RESTOW_NATS_PASSWORD='s3 cret' x", "RESTOW_NATS_PASSWORD='***' x"),
        ("AWS_SECRET_ACCESS_KEY=s3cret", "AWS_SECRET_ACCESS_KEY=***"),
        ("restow --token=s3cret --kube x", "restow --token=*** --kube x"),
        ("restow --api-token s3cret x", "restow --api-token *** x"),
        ("restow --password 's3 cret' x", "restow --password *** x"),
        # addresses
        ("https://h/?x=1&client_secret=s3cret&y=2", "https://h/?x=1&client_secret=***&y=2"),
        ("https://h/?sig=s3cret&y=2", "https://h/?sig=***&y=2"),
        # documents
        ('{"password": "s3\\"cret", "user": "x"}', '{"password": "***", "user": "x"}'),
        ('{"message": "{\\"token\\": \\"s3\\\\\\"cret\\"}"}', '{"message": "{\\"token\\": \\"***\\"}"}'),
        ("{'api_key': b's3cret'}", "{'api_key': b'***'}"),
        ("  clientSecret: s3cret\nb: 1", "  clientSecret: ***\nb: 1"),
        ("    client-key-data: czNjcmV0\nb: 1", "    client-key-data: ***\nb: 1"),
        ('{"client-key-data":"czNjcmV0"}', '{"client-key-data":"***"}'),
        (
            "a -----BEGIN EC PRIVATE KEY-----\ns3\n-----END EC PRIVATE KEY----- b",
            "a -----BEGIN EC PRIVATE KEY-----***-----END EC PRIVATE KEY----- b",
        ),
        ("-----BEGIN PRIVATE KEY-----\ns3cret, cut of", "-----BEGIN PRIVATE KEY-----***"),
        ("x eyJhbGciOiJIUzI1NiIs.eyJzdWIiOiIxMjM0.s3cret", "x ***"),
        ("seed SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY.", "seed ***."),
        # what only sounds like it
        ("secret: the Secret is not there", "secret: the Secret is not there"),
        (
            "$.x.authToken: unknown; allowed: secretReference",
            "$.x.authToken: unknown; allowed: secretReference",
        ),
        ("automountServiceAccountToken: false", "automountServiceAccountToken: false"),
        ("RESTOW_API_TOKEN_FILE=/run/token, key=zone", "RESTOW_API_TOKEN_FILE=/run/token, key=zone"),
        ("unexpected token 'x' at 4", "unexpected token 'x' at 4"),
        ("-----BEGIN CERTIFICATE-----\nAA", "-----BEGIN CERTIFICATE-----\nAA"),
        ('{"password": "", "token": null}', '{"password": "", "token": null}'),
    ],
)
def test_what_is_hidden_and_what_is_not(text, shown):
    assert redacted(text) == shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "@" + "a://" * 100_000,
        "a://x," * 100_000 + "@",
        "?token=" * 100_000,
        "Bearer " * 100_000,
        "--a-a-token " * 40_000,
        "--a-" * 90_000 + "token",
        "'token': '" * 40_000,
        '\\"token\\": \\"\\' * 30_000,
        "a:token:\n" * 40_000,
        "S" * 300_000,
        "eyJaaaaaaaa." * 30_000,
        "-----BEGIN PRIVATE KEY-----" * 20_000,
        "Authorization: " * 30_000,
        "password" + " " * 300_000,
    ],
)
def test_a_text_made_to_take_long_takes_no_time(text):
    """Of processor time; where a pattern went over such a text from each of its characters, it would take minutes."""
    began = time.process_time()
    redacted(text)
    assert time.process_time() - began < 10.0


def test_settings_show_the_broker_without_its_password():
    shown = check({"nats_url": "nats://scheduler:s3cret@nats:4222", "kube": "https://u:s3cret@api"}).shown()
    assert shown["nats_url"] == "nats://scheduler:***@nats:4222"
    assert SECRET not in str(shown)


@pytest.mark.parametrize("name", ["nats_url", "kube", "http"])
def test_a_refused_setting_is_told_without_its_password(name):
    with pytest.raises(BadSetting) as refused:
        check({name: "amqp://scheduler:s3cret@nats:4222"})
    assert SECRET not in str(refused.value)
    assert "amqp://scheduler:***@nats:4222" in str(refused.value)


async def test_a_broker_that_is_not_there_is_named_without_the_password():
    with pytest.raises(BrokerRefused) as refused:
        await Broker.connect("nats://scheduler:s3cret@127.0.0.1:1", wait=0.3)
    assert "nats://scheduler:***@127.0.0.1:1" in str(refused.value)
    assert SECRET not in str(refused.value)


async def test_what_a_kubeconfig_holds_is_not_quoted(tmp_path):
    file = tmp_path / "config"
    file.write_text("users:\n- name: x\n  user: {token: s3cret\n")
    for config in (ClientConfig(kubeconfig=str(file)), ClientConfig(url="ftp://u:s3cret@api")):
        with pytest.raises(ClientConfigError) as refused:
            await connect(config)
        assert SECRET not in str(refused.value)


def test_the_command_line_hides_it_too(capsys):
    Failure("nats://cli:s3cret@nats:4222 does not answer", 3).show()
    assert SECRET not in capsys.readouterr().err


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_log_line_has_it_whoever_writes(capsys, form):
    kept, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    level = logging.getLogger().level
    try:
        structlog.configure(cache_logger_on_first_use=False)
        logger = logs.configure("info", form, service="test")
        logger.info(
            "starting",
            nats_url="nats://a:s3cret@h",
            several=["nats://a:s3cret@h"],
            deep={"x": "nats://a:s3cret@h"},
            nats_password="s3cret",
        )
        try:
            raise ConnectionError("cannot reach nats://a:s3cret@h")
        except ConnectionError as error:
            logger.exception("crashed", error=error)
            logging.getLogger("nats").exception("library: %s", "nats://a:s3cret@h")
        sys.stderr.flush()
        said = capsys.readouterr().err
        assert SECRET not in said
        assert said.count("nats://a:***@h") >= 5
        if form == "json":
            assert all(json.loads(line) for line in said.splitlines())
    finally:
        structlog.configure(**kept)
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
