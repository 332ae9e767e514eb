"""A policy that goes by metrics, in the service: they are read just before, are in the log, and where they are missing nothing moves."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from restow.contracts import commands as c
from restow.contracts.codec import decode
from restow.domain.deciders import DECIDERS
from restow.replay.source import ListSource
from restow.replay.verify import verify

from .test_descheduler_api import broker, records, world  # noqa: F401


@pytest.fixture
def prometheus():
    """`full` is busy and `thin` is idle, until `down`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if self.server.down else 200)
            self.end_headers()
            self.wfile.write(json.dumps(self.said()).encode())

        def said(self):
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            if "node_" in query:
                rows = [({"instance": "full"}, "0.9" if "cpu" in query else "0.1"), ({"instance": "thin"}, "0.1")]
            else:
                rows = [({"namespace": "default", "pod": name}, "0.6" if "cpu" in query else "1000") for name in self.server.pods]
            result = [{"metric": labels, "value": [time.time(), value]} for labels, value in rows]
            return {"status": "success", "data": {"resultType": "vector", "result": result}}

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.url, server.down, server.pods = f"http://127.0.0.1:{server.server_port}", False, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def policy(url, **restow):
    load_aware = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 80}, "metrics": {"type": "prometheus", "address": url}}
    balance = {"enabled": ["LoadAware"]}
    profile = {"name": "load", "pluginConfig": [{"name": "LoadAware", "args": load_aware}], "plugins": {"balance": balance}}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile], "restow": restow}


async def test_what_is_measured_moves_pods_hold_first_and_is_in_the_log(broker, prometheus, tmp_path):  # noqa: F811
    async with world(broker, tmp_path, said=policy(prometheus.url)) as made:
        prometheus.pods = list(await made.running())
        status, dry = await made.ask("POST", "/deschedule?dryRun=true")
        assert (status, len(dry["events"][0]["moves"])) == (200, 2), dry
        status, real = await made.ask("POST", "/deschedule", {"trigger": "hot"})
        (planned,) = real["events"]
        assert (status, planned["plugin"], planned["trigger"], planned["profile"]) == (200, "LoadAware", "hot", "load")
        assert {(m["source"], m["target"]) for m in planned["moves"]} == {("full", "thin")}
        found = await made.over(planned["plan"])
        assert found["plan"]["steps"] == {"landed": 2}
        log = await records(made.server.process.context.log)
        report = verify(ListSource(log), DECIDERS)
        ours = report.families["migration"]
        assert (ours.different, ours.skipped, ours.identical > 0) == (0, 0, True)
        command = [d.command for record in log for d in decode(record.body) if isinstance(d.command, c.Deschedule)][-1]
        (load,) = command.samples.loads.values()
        assert load.nodes["full"]["cpu"] == 900_000_000
        assert {tuple(sorted(used)) for used in load.pods.values()} == {("cpu", "memory")}
        assert len(load.pods) == 5, "of the busy node"
        _, status = await made.ask("GET", "/status")
        assert status["plugins"] == [{"profile": "load", "point": "balance", "plugin": "LoadAware"}]


async def test_a_source_that_is_down_stops_the_plugin_and_its_plans_say_so(broker, prometheus, tmp_path):  # noqa: F811
    async with world(broker, tmp_path, said=policy(prometheus.url, interval="1s")) as made:
        prometheus.down = True

        async def told():
            plans = (await made.ask("GET", "/plans"))[1]["items"]
            return plans and plans[0]["trigger"] == "interval" and "answers 503" in plans[0]["reason"]

        await made.until(told)
        plan = (await made.ask("GET", "/plans"))[1]["items"][0]
        assert (plan["moves"], plan["plugin"]) == (0, "LoadAware")
        prometheus.pods, prometheus.down = list(await made.running()), False

        async def moved():
            return any(plan["steps"].get("landed") for plan in (await made.ask("GET", "/plans"))[1]["items"])

        await made.until(moved)


async def test_bad_bodies_and_no_token_are_refused(broker, prometheus, tmp_path):  # noqa: F811
    async with world(broker, tmp_path, said=policy(prometheus.url)) as made:
        assert (await made.ask("POST", "/deschedule", token="wrong-token-of-sixteen"))[0] in (401, 403)
        assert (await made.ask("POST", "/deschedule", {"trigger": "interval"}))[0] == 400
        assert (await made.ask("POST", "/deschedule", {"plugin": "LoadAware"}))[0] == 400
