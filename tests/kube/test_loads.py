"""What LoadAware is told: Prometheus about nodes and pods, its adaptor, or metrics-server; a source that is down is an error in it."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from restow.contracts.ids import MOST
from restow.contracts.samples import BILLION, Loads, Samples
from restow.domain.descheduling.policy import load
from restow.kube import loads, metrics
from restow.kube.client import ApiStatus

NOW = 1_800_000_000_000
AT = "2027-01-15T08:00:00Z"
UIDS = {"shop/p": "uid-p"}


def policy(provider=None, **said):
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, **said}
    profile = {"name": "p", "pluginConfig": [{"name": "LoadAware", "args": args}], "plugins": {"balance": {"enabled": ["LoadAware"]}}}
    document = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}
    return load(document | ({"metricsProviders": [{"source": "Prometheus", "prometheus": provider}]} if provider else {}))


class Kubernetes:
    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def get(self, path, query=()):
        self.asked.append(path)
        found = self.answers.get(path.rsplit("/", 1)[-1])
        if found is None:
            raise ApiStatus(404, "NotFound", f"{path} is not there")
        return json.dumps(found).encode()


def sample(client, asked):
    return asyncio.run(metrics.sample(client, asked, UIDS, NOW))


@pytest.fixture
def prometheus():
    """Answers each kind of query by what is in it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            self.server.asked.append(query)
            rows = next((rows for word, rows in self.server.answers.items() if word in query), [])
            result = [{"metric": labels, "value": [NOW / 1000 - 5, value]} for labels, value in rows]
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.url = [], f"http://127.0.0.1:{server.server_port}"
    server.answers = {
        "node_cpu": [({"instance": "n1"}, "0.25"), ({"instance": "n2"}, "NaN")],
        "node_memory": [({"instance": "n1"}, "0.5"), ({"instance": "n2"}, "1.02")],
        "container_cpu": [({"namespace": "shop", "pod": "p"}, "0.1234"), ({"namespace": "shop", "pod": "stranger"}, "1")],
        "container_memory": [({"namespace": "shop", "pod": "p"}, "1048576")],
    }
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_prometheus_says_shares_of_nodes_and_what_pods_use(prometheus):
    asked = policy(metrics={"type": "prometheus", "address": prometheus.url}, duration="90s")
    got = sample(Kubernetes(), asked)
    (source,) = asked.load_sources
    assert source == f"prometheus {prometheus.url} over 90 s"
    assert got == Samples(
        NOW, loads={source: Loads(NOW - 5_000, {"n1": {"cpu": BILLION // 4, "memory": BILLION // 2}, "n2": {"memory": BILLION}}, {"uid-p": {"cpu": 123, "memory": 1 << 20}})}
    )  # fmt: skip
    assert len(prometheus.asked) == 4
    assert all("[90s" in query for query in prometheus.asked[:3])
    assert got.missing_loads(source, NOW) == ""
    assert "305 s old" in got.missing_loads(source, NOW + 300_000)


def test_what_a_pod_uses_is_no_more_than_the_log_can_hold():
    async def ask(query):
        value = "0.5" if "node" in query else "1e999999"
        labels = {"instance": "n1", "namespace": "shop", "pod": "p"}
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": [{"metric": labels, "value": [NOW / 1000, value]}]}}).encode()

    (args,) = policy(metrics={"type": "prometheus", "address": "http://p"}).load_sources.values()
    got = asyncio.run(loads.of_prometheus(ask, args, UIDS, NOW))
    assert not got.error
    assert {amount for used in got.pods.values() for amount in used.values()} == {MOST, MOST // 1000 * 1000}


def test_without_an_address_the_policys_prometheus_is_asked(prometheus):
    asked = policy({"url": prometheus.url}, metrics={"type": "prometheus"})
    got = sample(Kubernetes(), asked)
    assert list(got.loads) == ["prometheus over 120 s"]
    assert got.loads["prometheus over 120 s"].nodes["n1"] == {"cpu": BILLION // 4, "memory": BILLION // 2}


def test_a_prometheus_that_is_down_is_an_error():
    asked = policy(metrics={"type": "prometheus", "address": "http://127.0.0.1:9"})
    got = sample(Kubernetes(), asked)
    assert "Prometheus at http://127.0.0.1:9 does not answer" in got.missing_loads(next(iter(asked.load_sources)), NOW)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "something unreadable"),
        (b'{"status": "success", "data": {"resultType": "matrix", "result": []}}', "with matrix; allowed: an instant vector"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"instance": "n"}, "value": [0, "7"]}]}}', "share of cpu is 7; allowed: 0 to 1"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(body, said):
    async def ask(query):
        return body

    (args,) = policy(metrics={"type": "prometheus", "address": "http://p"}).load_sources.values()
    assert said in asyncio.run(loads.of_prometheus(ask, args, UIDS, NOW)).error


PODS = {"items": [{"metadata": {"name": "p", "namespace": "shop"}, "timestamp": AT, "containers": [{"usage": {"cpu": "1", "memory": "1Ki"}}]}]}
NODES = {"items": [{"metadata": {"name": "n1"}, "timestamp": AT, "usage": {"cpu": "1500m", "memory": "1Gi"}}]}


def adapted(value):
    return {"items": [{"describedObject": {"kind": "Node", "name": "n1"}, "value": value}]}


def test_the_adaptor_says_shares_of_nodes_and_metrics_server_what_pods_use():
    client = Kubernetes(nodes=NODES, pods=PODS, node_cpu_usage_avg=adapted("250m"), node_memory_usage_avg=adapted("0.5"))
    asked = policy(metrics={"type": "prometheus_adaptor"})
    found = sample(client, asked).loads["prometheus_adaptor"]
    assert (found.nodes, found.pods) == ({"n1": {"cpu": BILLION // 4, "memory": BILLION // 2}}, {"uid-p": {"cpu": 1000, "memory": 1024}})
    assert "/apis/custom.metrics.k8s.io/v1beta1/nodes/*/node_cpu_usage_avg" in client.asked


def test_an_adaptor_that_is_not_there_is_an_error():
    got = sample(Kubernetes(nodes=NODES, pods=PODS), policy(metrics={"type": "prometheus_adaptor"}))
    assert "custom.metrics.k8s.io: " in got.missing_loads("prometheus_adaptor", NOW)
    got = sample(Kubernetes(), policy(metrics={"type": "prometheus_adaptor"}))
    assert "is metrics-server installed?" in got.missing_loads("prometheus_adaptor", NOW)


def test_where_nothing_is_said_metrics_server_is_asked():
    got = sample(Kubernetes(nodes=NODES, pods=PODS), policy())
    assert got == Samples(NOW, {"n1": {"cpu": 1500, "memory": 1 << 30}}, {"uid-p": {"cpu": 1000, "memory": 1024}})
