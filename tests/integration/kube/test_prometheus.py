"""Our client against the real Prometheus: what it answers, how it says that something is wrong, and what has to be sent to be let in."""

import asyncio
import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus import exporter, lines, needs_prometheus, prometheus

from restow.contracts.samples import BILLION
from restow.domain.descheduling.policy import load
from restow.kube import metrics
from restow.kube.client import ApiStatus

pytestmark = needs_prometheus
UIDS = {"shop/web-0": "uid-web-0", "shop/web-1": "uid-web-1"}


class Kubernetes:
    """Has one Secret."""

    def __init__(self, token=None):
        self.token = token

    async def get(self, path, query=()):
        if self.token is None or not path.endswith("/api/v1/namespaces/monitoring/secrets/prometheus-token"):
            raise ApiStatus(404, "NotFound", f"{path} is not there")
        return json.dumps({"data": {"prometheusAuthToken": base64.b64encode(self.token.encode()).decode()}}).encode()


def policy(url, *queries, token=False, load_aware=None):
    provider = {"url": url} | ({"authToken": {"secretReference": {"namespace": "monitoring", "name": "prometheus-token"}}} if token else {})
    profiles = []
    for i, query in enumerate(queries):
        args = {
            "thresholds": {"MetricResource": 20}, "targetThresholds": {"MetricResource": 70},
            "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": query}},
        }  # fmt: skip
        config = [{"name": "LowNodeUtilization", "args": args}]
        profiles.append({"name": f"p{i}", "pluginConfig": config, "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}}})
    if load_aware is not None:
        args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "metrics": {"type": "prometheus"}, **load_aware}
        config = [{"name": "LoadAware", "args": args}]
        profiles.append({"name": "load", "pluginConfig": config, "plugins": {"balance": {"enabled": ["LoadAware"]}}})
    providers = [{"source": "Prometheus", "prometheus": provider}]
    return load({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": profiles, "metricsProviders": providers})


def now():
    return int(time.time() * 1000)


def sample(asked, client=None):
    return asyncio.run(metrics.sample(client or Kubernetes(), asked, UIDS, now()))


def told(found, query):
    """Why the answer to a query is of no use."""
    return found.missing_query(query, now())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What was recorded half a minute, four minutes and a quarter of an hour ago, and stands still since."""
    at = time.time()
    rows = {"half": 30, "older": 240, "oldest": 900}
    text = "".join(
        f"# TYPE {name} gauge\n" + "".join(f'{name}{{instance="{node}"}} {value} {at - age:.3f}\n' for node, value in (("n1", 0.25), ("n2", 0.5)))
        for name, age in rows.items()
    )
    odd = f'# TYPE odd gauge\nodd{{instance="n1",kind="nan"}} NaN {at - 30:.3f}\nodd{{instance="n2",kind="more"}} 1.5 {at - 30:.3f}\n'
    with prometheus(tmp_path_factory.mktemp("prometheus"), samples=text + odd + "# EOF\n") as server:
        yield server


def test_an_instant_vector_is_one_share_a_node(recorded):
    asked = policy(recorded.url + "/", "half")
    found = sample(asked)
    assert found.prometheus["half"].ratios == {"n1": BILLION // 4, "n2": BILLION // 2}
    assert told(found, "half") == ""
    assert abs(found.prometheus["half"].taken - now()) < 60_000


def test_samples_of_five_minutes_ago_are_no_samples_and_prometheus_gives_newer_ones_the_present_time(recorded):
    """It looks back for five minutes, and stamps what it finds with the moment of the question."""
    found = sample(policy(recorded.url, "older", "oldest"))
    assert found.prometheus["older"].ratios == {"n1": BILLION // 4, "n2": BILLION // 2}
    assert found.prometheus["oldest"].ratios == {}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('odd{kind="nan"}', "is NaN for n1; allowed: 0 to 1"),
        ('odd{kind="more"}', "is 1.5 for n2; allowed: 0 to 1"),
        ("sum(half)", "has a sample without the label instance"),
        ("half[1m]", "with matrix; allowed: an instant vector"),
        ("scalar(half{instance='n1'})", "with scalar; allowed: an instant vector"),
        ("half{", "answers 400 to 'half{': invalid parameter \"query\": 1:6: parse error"),
        ("rate(half)", "expected type range vector in call to function"),
        ("half + on(instance) group_left() {instance=~'n.'}", "answers 422"),
    ],
)
def test_what_is_no_share_of_each_node_is_an_error_that_says_so(recorded, query, said):
    found = sample(policy(recorded.url, query))
    assert said in told(found, query)
    assert found.prometheus[query].ratios == {}


def test_one_bad_query_does_not_spoil_another(recorded):
    found = sample(policy(recorded.url, "half{", "half"))
    assert told(found, "half{")
    assert told(found, "half") == ""


class Nodes:
    """node_exporter's and the kubelet's counters of nodes that use a share of 4 CPUs and of 1 GiB, until `down`."""

    def __init__(self):
        # As of nodes that have run for a while: where a counter begins a rate is not what it will be.
        self.began, self.down = time.monotonic() - 10_000, False
        self.busy = {"n1": 0.75, "n2": 0.25}

    def __call__(self, node):
        if self.down:
            return None
        seconds = time.monotonic() - self.began
        idle = [({"cpu": str(i), "mode": "idle"}, seconds * (1 - self.busy[node])) for i in range(4)]
        user = [({"cpu": str(i), "mode": "user"}, seconds * self.busy[node]) for i in range(4)]
        pod = {"namespace": "shop", "pod": f"web-{int(node == 'n2')}"}
        whole, part, node_itself = {**pod, "container": ""}, {**pod, "container": "main"}, {"container": "", "pod": "", "namespace": ""}
        return (
            lines("node_cpu_seconds_total", "counter", [*idle, *user])
            + lines("node_memory_MemAvailable_bytes", "gauge", [({}, 2.0**30 * (1 - self.busy[node]))])
            + lines("node_memory_MemTotal_bytes", "gauge", [({}, 2.0**30)])
            + lines("container_cpu_usage_seconds_total", "counter", [(whole, seconds * 0.5), (part, seconds * 0.4), (node_itself, seconds * 3)])
            + lines("container_memory_working_set_bytes", "gauge", [(whole, 2.0**20), (part, 2.0**19), (node_itself, 2.0**29)])
        )


def near(amount, of):
    """In quarters, if it is within a few percent of one."""
    quarters = round((amount or 0) * 4 / of)
    return quarters / 4 if abs((amount or 0) / of - quarters / 4) < 0.05 else amount


def test_load_aware_is_told_what_is_scraped_of_nodes_and_of_whole_pods_and_of_who_is_gone_nothing(tmp_path):
    nodes = Nodes()
    with exporter(nodes) as scraped, prometheus(tmp_path, scraped.scraped("n1", "n2")) as server:
        asked = policy(server.url, load_aware={"duration": "4s"})
        (source,) = asked.load_sources

        def measured():
            found = sample(asked).loads[source]
            assert not found.error, found.error
            said = {name: (near(used.get("cpu"), BILLION), near(used.get("memory"), BILLION)) for name, used in found.nodes.items()}
            pods = {uid: (near(used.get("cpu"), 1000), used.get("memory")) for uid, used in found.pods.items()}
            shares = {name: (share, share) for name, share in nodes.busy.items()}
            # Of a pod its own line counts, not its containers' beside it; of a machine none is a pod's.
            return said == shares and pods == dict.fromkeys(UIDS.values(), (0.5, 1 << 20))

        server.until("both nodes have been scraped for a while", measured)
        nodes.down = True
        server.until("who cannot be scraped is forgotten", lambda: not sample(asked).loads[source].nodes)
        assert sample(asked).loads[source].error == ""
        assert sample(asked).loads[source].pods == {}
        nodes.down = False
        server.until("it is measured again", measured)
    found = sample(asked)
    assert "does not answer" in found.missing_loads(source, now())


@contextlib.contextmanager
def guard(folder, upstream, token):
    """What stands before a Prometheus in most clusters: it asks for a bearer token, over TLS."""
    certificate, key = certified(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("Authorization"))
            if seen[-1] != f"Bearer {token}":
                self.send_response(401)
                self.end_headers()
                self.wfile.write(b"Unauthorized\n")
                return
            connection = http.client.HTTPConnection(upstream.removeprefix("http://"), timeout=30)
            connection.request("GET", self.path)
            answer = connection.getresponse()
            self.send_response(answer.status)
            self.end_headers()
            self.wfile.write(answer.read())
            connection.close()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", certificate, seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certified(folder):
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=p",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def test_the_token_of_the_secret_opens_the_door_over_tls(recorded, tmp_path, monkeypatch):
    with guard(tmp_path, recorded.url, "hunter2-hunter2") as (url, certificate, seen):
        asked = policy(url, "half", token=True)
        untrusted = told(sample(asked, Kubernetes("hunter2-hunter2")), "half")
        assert "certificate verify failed" in untrusted
        assert seen == [], "no token goes to whom nobody vouches for"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        found = sample(asked, Kubernetes("hunter2-hunter2"))
        assert found.prometheus["half"].ratios == {"n1": BILLION // 4, "n2": BILLION // 2}
        assert seen == ["Bearer hunter2-hunter2"]
        assert "answers 401" in told(sample(asked, Kubernetes("wrong")), "half")
        assert "secret monitoring/prometheus-token: 404" in told(sample(asked), "half")
        assert "answers 401" in told(sample(policy(url, "half")), "half"), "no token"


def test_prometheus_own_tls(tmp_path, monkeypatch):
    certificate, key = certified(tmp_path)
    at = time.time() - 30
    samples = f'# TYPE half gauge\nhalf{{instance="n1"}} 0.25 {at:.3f}\n# EOF\n'
    web = f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\n"
    with prometheus(tmp_path, samples=samples, web=web) as server:
        asked = policy(server.url, "half")
        assert "certificate verify failed" in told(sample(asked), "half")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        # It listens before it is ready.
        found = server.until("it answers", lambda: (one := sample(asked)) and not told(one, "half") and one)
        assert found.prometheus["half"].ratios == {"n1": BILLION // 4}
        plain = policy(server.url.replace("https:", "http:"), "half")
        assert "answers 400" in told(sample(plain), "half") or "does not answer" in told(sample(plain), "half")
