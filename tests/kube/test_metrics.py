"""Metrics become samples, integers with their time; a source that is down or answers nonsense is an error in them."""

import asyncio
import base64
import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from restow.contracts.ids import EARLIEST, LATEST
from restow.contracts.samples import BILLION, STALE, NodeRatios, Samples
from restow.domain.descheduling.policy import load
from restow.kube import metrics
from restow.kube import prometheus as prom
from restow.kube.client import ApiStatus

NOW = 1_800_000_000_000
AT = "2027-01-15T08:00:00Z"


class Kubernetes:
    """What a client answers, by path."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def get(self, path, query=()):
        self.asked.append(path)
        found = self.answers.get(path.rsplit("/", 1)[-1])
        if found is None:
            raise ApiStatus(404, "NotFound", f"{path} is not there")
        if isinstance(found, ApiStatus):
            raise found
        return json.dumps(found).encode() if not isinstance(found, bytes) else found


def policy(source=None, prometheus=None, query="load"):
    asked = {"source": source, **({"prometheus": {"query": query}} if prometheus is not None else {})}
    names = ("MetricResource",) if prometheus is not None else ("cpu",)
    thresholds = {"thresholds": dict.fromkeys(names, 20), "targetThresholds": dict.fromkeys(names, 50)}
    args = thresholds | ({"metricsUtilization": asked} if source else {})
    provider = {"source": source, **({"prometheus": prometheus} if prometheus is not None else {})}
    plugins = {"balance": {"enabled": ["LowNodeUtilization"]}}
    profile = {"name": "p", "pluginConfig": [{"name": "LowNodeUtilization", "args": args}], "plugins": plugins}
    said = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}
    return load(said | ({"metricsProviders": [provider]} if source else {}))


def sample(client, asked, uids=None):
    return asyncio.run(metrics.sample(client, asked, uids or {}, NOW))


NODES = {"items": [{"metadata": {"name": "n1"}, "timestamp": AT, "usage": {"cpu": "1500m", "memory": "1Gi"}}]}
PODS = {
    "items": [
        {
            "metadata": {"name": "p", "namespace": "shop"},
            "timestamp": "2027-01-15T08:00:05Z",
            "containers": [{"usage": {"cpu": "100u", "memory": "1Ki"}}, {"usage": {"cpu": "100u"}}],
        },
        {"metadata": {"name": "stranger", "namespace": "shop"}, "containers": []},
    ]
}


def test_without_a_source_nobody_is_asked():
    client = Kubernetes()
    assert sample(client, policy()) is None
    assert client.asked == []


def test_usage_of_nodes_and_pods_with_the_time_of_the_oldest():
    got = sample(Kubernetes(nodes=NODES, pods=PODS), policy("KubernetesMetrics"), {"shop/p": "u1"})
    assert got.nodes == {"n1": {"cpu": 1500, "memory": 1 << 30}}
    assert got.pods == {"u1": {"cpu": 1, "memory": 1024}}, "containers are added before they are rounded"
    assert got.taken == NOW
    assert got.missing(NOW) == ""


def test_one_that_is_measured_no_more_is_left_out_and_does_not_stop_the_others():
    old = {"metadata": {"name": "n2"}, "timestamp": "2027-01-15T07:54:59Z", "usage": {"cpu": "1", "memory": "1Gi"}}
    got = sample(Kubernetes(nodes={"items": [*NODES["items"], old]}, pods=PODS), policy("KubernetesMetrics"))
    assert (list(got.nodes), got.missing(NOW)) == (["n1"], "")
    got = sample(Kubernetes(nodes={"items": [old]}, pods={"items": []}), policy("KubernetesMetrics"))
    assert got.missing(NOW) == "metrics.k8s.io: its metrics are 301 s old; allowed: up to 300 s"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (None, "is metrics-server installed?"),
        (ApiStatus(503, "ServiceUnavailable", "no endpoints"), "no endpoints"),
        (b"<html>", "not a list of metrics.k8s.io"),
    ],
)
def test_a_metrics_server_that_does_not_answer_is_an_error(nodes, said):
    answers = {"pods": PODS} | ({"nodes": nodes} if nodes is not None else {})
    got = sample(Kubernetes(**answers), policy("KubernetesMetrics"))
    assert said in got.error
    assert got.missing(NOW) == got.error
    assert not got.nodes


def test_old_metrics_are_missing():
    assert Samples(NOW).missing(NOW + STALE) == ""
    assert "301 s old" in Samples(NOW).missing(NOW + STALE + 1000)
    old = Samples(NOW, prometheus={"q": NodeRatios(NOW - STALE - 1000)})
    assert "old" in old.missing_query("q", NOW)
    assert "not asked" in old.missing_query("other", NOW)


def answer(*samples, kind="vector"):
    result = [{"metric": {"instance": name}, "value": [at, value]} for name, value, at in samples]
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


def test_a_vector_is_read_exactly():
    got = metrics.ratios(answer(("n1", "0.5695757575757561", 1_799_999_999.5), ("n2", "1", 1_800_000_000)), "q", NOW)
    assert got == NodeRatios(NOW - 500, {"n1": 569_575_757, "n2": BILLION})


@pytest.mark.parametrize("at", ["1e400", "-1e400", "1e999999"])
def test_a_sample_of_a_time_that_is_none_is_as_early_or_as_late_as_a_time_can_be(at):
    """The log's numbers end somewhere, and an exponent must not cost a second."""
    got = metrics.ratios(answer(("n1", "0.5", at)), "q", NOW)
    assert got == NodeRatios(EARLIEST if at[0] == "-" else LATEST, {"n1": BILLION // 2})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (answer(("n1", "0.5", "Infinity")), "the time of a sample is Infinity; allowed: seconds"),
        (answer(("n1", "1.01", 0)), "1.01 for n1; allowed: 0 to 1"),
        (answer(("n1", "-0.1", 0)), "allowed: 0 to 1"),
        (answer(("n1", "NaN", 0)), "'q' is NaN for n1; allowed: 0 to 1"),
        (answer(("n1", "+Inf", 0)), "'q' is +Inf for n1; allowed: 0 to 1"),
        (answer(("", "0.5", 0)), "'q' has a sample without the label instance"),
        (answer(("n1", "much", 0)), "unreadable"),
        (answer(("n1", "0.1", 0), ("n1", "0.2", 0)), "more than one sample for n1"),
        (answer(kind="matrix"), "matrix; allowed: an instant vector"),
        (b'{"status":"error"}', "unreadable"),
        (b"<html>", "unreadable"),
        (b"[]", "unreadable"),
    ],
)
def test_what_is_no_vector_of_ratios_is_an_error(body, said):
    got = metrics.ratios(body, "q", NOW)
    assert said in got.error
    assert got.ratios == {}


@pytest.fixture
def prometheus():
    """A server that answers one query to whoever has the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append((self.path, self.headers.get("Authorization")))
            self.send_response(self.server.code)
            self.end_headers()
            self.wfile.write(answer(("n1", "0.25", NOW / 1000)))

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.code = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_prometheus_is_asked_what_the_plugins_need(prometheus):
    url = f"http://127.0.0.1:{prometheus.server_port}/"
    got = sample(Kubernetes(), policy("Prometheus", {"url": url}, 'load{job="a"}'))
    assert got.prometheus == {'load{job="a"}': NodeRatios(NOW, {"n1": BILLION // 4})}
    assert prometheus.asked == [("/api/v1/query?query=load%7Bjob%3D%22a%22%7D", None)]


def test_a_prometheus_that_refuses_is_an_error(prometheus):
    prometheus.code = 401
    got = sample(Kubernetes(), policy("Prometheus", {"url": f"http://127.0.0.1:{prometheus.server_port}"}))
    assert "answers 401" in got.missing_query("load", NOW)


def test_a_prometheus_that_is_down_is_an_error():
    got = sample(Kubernetes(), policy("Prometheus", {"url": "http://127.0.0.1:9"}))
    assert "does not answer" in got.missing_query("load", NOW)


TOKEN = {"secretReference": {"namespace": "monitoring", "name": "token"}}


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (None, "secret monitoring/token: 404"),
        ({"data": {}}, "secret monitoring/token has no readable key 'prometheusAuthToken'"),
        ({"data": {"prometheusAuthToken": "!"}}, "no readable key"),
        ({}, "no readable key"),
    ],
)
def test_a_token_that_cannot_be_read_is_an_error(secret, said):
    answers = {} if secret is None else {"token": secret}
    got = sample(Kubernetes(**answers), policy("Prometheus", {"url": "https://127.0.0.1:9", "authToken": TOKEN}))
    assert said in got.missing_query("load", NOW)


def test_a_token_that_is_no_header_is_an_error_that_does_not_show_it():
    for wrong in ("two words", "a\nb", ""):
        secret = {"data": {"prometheusAuthToken": base64.b64encode(wrong.encode()).decode()}}
        got = sample(Kubernetes(token=secret), policy("Prometheus", {"url": "https://127.0.0.1:9", "authToken": TOKEN}))
        assert got.missing_query("load", NOW).endswith("no bearer token; allowed: one word of printable characters")


def test_without_a_secret_the_accounts_own_token_goes_to_the_policys_prometheus_and_to_nobody_else(tmp_path, monkeypatch):
    """As upstream does; but never in the clear."""
    (tmp_path / "token").write_text("of-the-account\n")
    monkeypatch.setattr(prom, "ACCOUNT", str(tmp_path))

    def sent(url, own):
        return asyncio.run(prom.authorization(Kubernetes(), prom.Prometheus(url=url), own))

    assert sent("https://thanos:9091", True) == {"Authorization": "Bearer of-the-account"}
    assert sent("https://thanos:9091", False) == {}, "an address in LoadAware's own arguments"
    assert sent("http://thanos:9091", True) == {}


def test_the_clusters_authority_is_verified_as_kubectl_does_it(tmp_path, monkeypatch):
    """Python 3.13 made its default strict, which the authorities of some clusters do not pass (see tests/integration/kube/test_client.py)."""
    (tmp_path / "token").write_text("of-the-account")
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=ca"]
    subprocess.run([*openssl, "-keyout", "ca.key", "-out", "ca.crt"], cwd=tmp_path, check=True, capture_output=True)
    default, asked = ssl.create_default_context, []

    def strict():
        context = default()
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    async def query(session, url, text, verify):
        asked.append(verify)
        return b""

    monkeypatch.setattr(prom, "ACCOUNT", str(tmp_path))
    monkeypatch.setattr(prom, "_query", query)
    monkeypatch.setattr(ssl, "create_default_context", strict)
    source = policy("Prometheus", {"url": "https://thanos:9091"}).prometheus

    async def ask():
        async with prom.asking(Kubernetes(), source, True) as one:
            await one("up")

    asyncio.run(ask())
    (verify,) = asked
    assert verify.verify_mode is ssl.CERT_REQUIRED
    assert not verify.verify_flags & ssl.VERIFY_X509_STRICT
    assert len(verify.get_ca_certs()) == len(default().get_ca_certs()) + 1


def test_the_token_of_the_secret_is_the_bearers():
    client = Kubernetes(token={"data": {"prometheusAuthToken": base64.b64encode(b"hunter2\n").decode()}})
    source = policy("Prometheus", {"url": "https://127.0.0.1:9", "authToken": TOKEN}).prometheus
    assert asyncio.run(prom.authorization(client, source, own=True)) == {"Authorization": "Bearer hunter2"}
    assert client.asked == ["/api/v1/namespaces/monitoring/secrets/token"]
