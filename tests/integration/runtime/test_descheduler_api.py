"""The descheduler's HTTP API with the services that it needs, on kubesim: each route, who may use it, and bad input; its metrics and
Events."""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml
from domain.build import given, pod, pod_group, shape

from restow.cluster_watcher.service import service as cluster_watcher
from restow.descheduler import api, http_requests
from restow.descheduler.service import service as descheduler
from restow.domain.deciders import DECIDERS
from restow.eventlog.testing import running_server, unique_cluster
from restow.kubesim.testing import kubesim
from restow.replay.source import ListSource
from restow.replay.verify import verify
from restow.reservation_cache.service import service as reservation_cache
from restow.runtime import offload
from restow.runtime.leadership import Leadership
from restow.scheduler_session.service import service as scheduler_session

from .test_services import service

CRD = Path(__file__).parents[3] / "deploy" / "crds" / "reservations.batch.volcano.sh.yaml"
TOKEN = "token-of-the-api-in-tests"
SOON = 120.0
SETS = "/apis/apps/v1/namespaces/default/replicasets"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
POLICY = {
    "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "pack",
            "pluginConfig": [
                {
                    "name": "Defragmentation",
                    "args": {
                        "resourceType": "cpu", "lowThresholds": {"cpu": 30}, "defragmentThresholds": {"cpu": 40},
                        "protectionThresholds": {"cpu": 100},
                    },
                }
            ],
            "plugins": {"balance": {"enabled": ["Defragmentation"]}},
        }
    ],
    "restow": {"budgetPatience": "60s"},
}  # fmt: skip


@pytest.fixture(scope="module")
def broker():
    with running_server() as server:
        yield server


class World:
    def __init__(self, kube, http, server):
        self.kube, self.http, self.server = kube, http, server

    @property
    def state(self):
        return self.server.process.context.state

    async def ask(self, method, path, body=None, token=TOKEN, packed=""):
        """(status, answer). `packed`: how the body is said to be."""
        headers = ({"Authorization": f"Bearer {token}"} if token else {}) | ({"Content-Encoding": packed} if packed else {})
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        async with self.http.request(method, self.server.process.server.address + path, data=data, headers=headers) as response:
            return response.status, await response.json()

    async def create(self, path, body):
        async with self.http.post(self.kube.url + path, json=body) as response:
            assert response.status < 300, await response.text()

    async def items(self, path):
        async with self.http.get(self.kube.url + path) as response:
            return (await response.json())["items"]

    async def node(self, name):
        amounts = {"cpu": "10", "memory": "64Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"kubernetes.io/hostname": name, "pool": name}
        await self.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status})

        async def known():
            return name in self.state.nodes

        await self.until(known)

    async def replicas(self, name, count, cpu="1"):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"schedulerName": "restow", "containers": [container]}}
        spec = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template}
        before = len(await self.running())
        await self.create(SETS, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec})
        await self.until(lambda: self._known(before + count))

    async def budget(self, app):
        spec = {"minAvailable": "100%", "selector": {"matchLabels": {"app": app}}}
        await self.create(BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec})

    async def running(self):
        pods = await self.items(PODS)
        return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["status"].get("phase") == "Running"}

    async def _known(self, count):
        """They run, and the descheduler knows it."""
        ready = sum(pod.live.ready and pod.live.node is not None for pod in self.state.pods.values())
        return len(await self.running()) == count == ready

    async def until(self, holds):
        async with asyncio.timeout(SOON):
            while not await holds():
                await asyncio.sleep(0.02)

    async def over(self, plan):
        async def done():
            return (await self.ask("GET", f"/plans/{plan}"))[1]["plan"]["phase"] in ("done", "cancelled", "empty")

        await self.until(done)
        return (await self.ask("GET", f"/plans/{plan}"))[1]

    async def metrics(self):
        async with self.http.get(self.server.process.server.address + "/metrics") as response:
            return await response.text()

    async def reasons(self, kind):
        events = await self.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return {event["reason"]: event["note"] for event in events if event["regarding"]["kind"] == kind}


@asynccontextmanager
async def world(broker, folder, token=TOKEN, said=POLICY, **more):
    """Two nodes: five pods on `full`, one on `thin`, which a plan empties."""
    cluster = unique_cluster()
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(said))
    async with (
        kubesim(controllers=True, kubelet_speed=20) as kube,
        aiohttp.ClientSession() as http,
        service(cluster_watcher(), broker, cluster, kube) as watcher,
        service(scheduler_session(), broker, cluster, kube) as session,
        service(reservation_cache(), broker, cluster, kube) as cache,
        service(descheduler(), broker, cluster, kube, config=str(policy), api_token=token, **more) as server,
    ):
        made = World(kube, http, server)
        made.cluster = cluster
        await made.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(CRD.read_text()))
        for one in (watcher, session, cache, server):
            await one.leading()
        await made.node("full")
        await made.replicas("many", 5)
        await made.node("thin")
        await made.replicas("lone", 1)
        assert "thin" in (await made.running()).values()
        yield made


async def lone(made):
    (name,) = [name for name in await made.running() if name.startswith("lone")]
    return f"default/{name}"


async def test_a_plan_from_dry_run_to_the_end_with_metrics_and_events(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        pod = await lone(made)
        status, dry = await made.ask("POST", "/defragment?dryRun=true&groupBy=pool")
        assert (status, dry["dryRun"], dry["read"] > 0) == (200, True, True)
        (planned,) = dry["events"]
        assert [(m["name"], m["source"], m["target"]) for m in planned["moves"]] == [(pod.partition("/")[2], "thin", "full")]
        assert [(g["name"], g["leaves"], g["before"]["free_nodes"], g["after"]["free_nodes"]) for g in dry["groups"]] == [("full", 0, 0, 0), ("thin", 1, 0, 1)]
        assert (await made.ask("GET", "/plans"))[1]["items"] == []  # nothing of that is in the log

        status, real = await made.ask("POST", "/defragment", {"trigger": "night-job"})
        assert (status, real["dryRun"], real["seq"] > dry["read"]) == (200, False, True)
        found = await made.over(real["plan"])
        assert (found["plan"]["phase"], found["plan"]["trigger"], found["plan"]["steps"]) == ("done", "night-job", {"landed": 1})
        (one,) = found["migrations"]
        assert (one["step"], one["target"], one["landedAs"] in await made.running()) == ("landed", "full", True)
        assert (await made.ask("GET", "/plans"))[1]["items"] == [found["plan"]]
        assert (await made.ask("GET", "/migrations?step=landed"))[1]["items"] == [one]
        assert (await made.ask("GET", "/migrations?active=true"))[1]["items"] == []
        said = (await made.ask("GET", "/status"))[1]
        assert (said["leading"], said["plugin"], said["underWay"], said["last"]["plan"]) == (True, "Defragmentation", [], real["plan"])

        text = await made.metrics()
        labels = 'namespace="default",node="thin",profile="pack",result="success",strategy="Defragmentation"'
        for name in ("descheduler_pods_evicted_total", "descheduler_pods_evicted"):
            assert f"{name}{{{labels}}} 1.0" in text
        assert "descheduler_loop_duration_seconds_count 1.0" in text
        assert 'descheduler_strategy_duration_seconds_count{profile="pack",strategy="Defragmentation"} 1.0' in text
        assert re.search(r'descheduler_build_info\{.*DeschedulerVersion="restow-.*\} 1\.0', text)
        assert 'restow_migrations_ended_total{reason="",result="landed",strategy="Defragmentation"} 1.0' in text
        assert 'restow_migration_duration_seconds_count{strategy="Defragmentation"} 1.0' in text
        assert 'restow_plans_total{moves="some",planner="greedy",trigger="night-job"} 1.0' in text
        assert 'restow_last_plan_gain{what="free_nodes"} 1.0' in text

        async def told():
            return {"MigrationPlanned", "MigrationDone"} <= set(await made.reasons("Node")) and "Migrated" in await made.reasons("Pod")

        await made.until(told)
        assert "migrated from thin to full" in (await made.reasons("Pod"))["Migrated"]


async def test_one_pod_is_moved_and_comes_back_by_hand(broker, tmp_path, monkeypatch):
    copies, forked = [], offload._forked

    def counted(work):
        copies.append(work)
        return forked(work)

    monkeypatch.setattr(offload, "_forked", counted)
    async with world(broker, tmp_path) as made:
        pod = await lone(made)
        status, dry = await made.ask("POST", "/migrations?dryRun=true", {"pod": pod})
        assert (status, dry["events"][0]["moves"][0]["target"]) == (200, "full")
        copies.clear()
        _, real = await made.ask("POST", "/migrations", {"pod": pod, "target": "full"})
        assert len(copies) == 1, "each costs as much as the move itself"
        found = await made.over(real["plan"])
        assert (found["plan"]["trigger"], found["plan"]["plugin"], found["plan"]["steps"]) == ("move", "MovePod", {"landed": 1})
        (uid,) = [uid for uid, p in made.state.pods.items() if p.fact.name == found["migrations"][0]["landedAs"]]
        status, again = await made.ask("POST", "/migrations", {"pod": uid, "target": "full"})
        assert (status, "is on full already" in again["error"]) == (409, True)


async def test_a_plan_is_followed_and_cancelled_while_a_budget_holds_it_up(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        await made.budget("lone")
        pod = await lone(made)
        _, real = await made.ask("POST", "/migrations", {"pod": pod})
        url = f"{made.server.process.server.address}/plans/{real['plan']}?follow=true"
        lines = []
        async with made.http.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as stream:
            assert stream.content_type == "application/x-ndjson"
            cancelled = False
            async for raw in stream.content:
                if not raw.strip():
                    continue
                lines.append(json.loads(raw))
                if not cancelled and lines[-1]["migrations"][0]["step"] == "evicting":
                    cancelled = True
                    status, answer = await made.ask("POST", f"/plans/{real['plan']}/cancel", {"reason": "enough of it"})
                    assert (status, answer["plans"]) == (200, [real["plan"]])
        assert lines[-1]["plan"]["phase"] == "cancelled"
        assert lines[-1]["plan"]["cancelled"] == "enough of it"
        assert lines[-1]["migrations"][0]["step"] == "failed"
        assert await lone(made) == pod
        status, again = await made.ask("POST", f"/plans/{real['plan']}/cancel")
        assert (status, "cancelled already" in again["error"]) == (409, True)
        status, none = await made.ask("POST", "/plans/cancel")
        assert (status, none["error"]) == (409, "cancel: no plan is under way")
        assert 'result="error",strategy="MovePod"' in await made.metrics()

        async def told():
            return "stays on thin" in (await made.reasons("Pod")).get("MigrationRolledBack", "")

        await made.until(told)


async def test_a_pause_stops_plans_and_everybody_is_told(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        status, answer = await made.ask("POST", "/pause", {"by": "ada", "reason": "storage upgrade"})
        assert (status, answer["plans"]) == (200, [])
        status, refused = await made.ask("POST", "/defragment")
        assert status == 409
        assert "paused since" in refused["error"]
        assert "by ada: storage upgrade" in refused["error"]
        status, dry = await made.ask("POST", "/defragment?dryRun=true")
        assert (status, dry["dryRun"]) == (200, True)
        status, known = await made.ask("GET", "/status")
        assert (known["paused"]["by"], known["paused"]["reason"], known["triggers"]["next"]) == ("ada", "storage upgrade", "")
        assert any("moves are paused" in said for said in known["warnings"])
        assert "restow_moves_paused" in (metrics := await made.metrics())
        assert next(line for line in metrics.splitlines() if line.startswith("restow_moves_paused")).endswith(" 1.0")
        status, again = await made.ask("POST", "/pause", {"by": "bob"})
        assert (status, "by ada" in again["error"]) == (409, True)
        status, _ = await made.ask("POST", "/resume", {"by": "bob", "reason": "done"})
        assert status == 200
        status, known = await made.ask("GET", "/status")
        assert known["paused"] is None


async def test_a_plan_by_the_policy_before_says_that_the_file_is_refused(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY | {"restow": {"interval": "soon"}}))

        async def told():
            return (await made.ask("GET", "/status"))[1]["warnings"]

        await made.until(told)
        for path in ("/defragment?dryRun=true", "/deschedule?dryRun=true", "/defragment"):
            (warned,) = (await made.ask("POST", path))[1]["warnings"]
            assert warned.startswith("configuration refused, the last good one is used: ")
            assert "interval" in warned


FREEZE = POLICY | {"restow": {"blackouts": [{"start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z", "reason": "change freeze"}]}}


async def test_in_a_blackout_a_request_is_refused_with_why_and_a_dry_run_is_not(broker, tmp_path):
    async with world(broker, tmp_path, said=FREEZE) as made:
        status, refused = await made.ask("POST", "/defragment")
        assert (status, "until 2100-01-01T00:00:00.000Z: change freeze" in refused["error"]) == (409, True)
        status, dry = await made.ask("POST", "/defragment?dryRun=true")
        assert (status, dry["dryRun"]) == (200, True)
        known = (await made.ask("GET", "/status"))[1]
        assert known["closed"] in known["warnings"]
        assert next(line for line in (await made.metrics()).splitlines() if line.startswith("restow_moves_closed")).endswith(" 1.0")


async def records(log):
    """All that there is."""
    tail, found = await log.tail(), []
    async for batch in log.read(await log.first()):
        found += [record for record in batch if record.seq <= tail]
        if batch[-1].seq >= tail:
            return found


SPARING = POLICY | {"restow": {"budgets": [{"name": "few", "evictions": 1, "within": "day"}]}}


async def test_what_an_eviction_budget_has_left_is_told_and_a_move_beyond_it_is_refused(broker, tmp_path):
    async with world(broker, tmp_path, said=SPARING) as made:
        plan = (await made.ask("POST", "/defragment"))[1]["plan"]
        assert (await made.over(plan))["migrations"][0]["step"] == "landed"
        (known,) = (status := (await made.ask("GET", "/status"))[1])["budgets"]
        assert (known["budget"], known["spent"], known["left"], known["again"][11:]) == ("few", 1, 0, "00:00:00.000Z")
        assert f"eviction budgets are used up: few until {known['again']}" in status["warnings"]
        assert re.search(r'^restow_eviction_budget_left\{budget="few",family="migration"\} 0\.0$', await made.metrics(), re.M)
        refused = await made.ask("POST", "/migrations", {"pod": await lone(made)})
        assert (refused[0], "the eviction budget few allows 1 a day: 1 spent" in refused[1]["error"]) == (409, True)
        ours = verify(ListSource(await records(made.server.process.context.log)), DECIDERS).families["migration"]
        assert (ours.different, ours.skipped, ours.identical > 0) == (0, 0, True)


PROPOSE = POLICY | {"restow": {"mode": "propose", "approveDeadline": "5m", "budgetPatience": "60s"}}


async def test_a_plan_waits_for_a_person_and_is_carried_out_when_that_approves_it(broker, tmp_path):
    async with world(broker, tmp_path, said=PROPOSE) as made:
        status, answer = await made.ask("POST", "/defragment")
        (planned,), plan = answer["events"], answer["plan"]
        assert (status, planned["mode"], len(planned["moves"])) == (200, "propose", 1)
        assert any("the mode is propose (the policy's)" in said for said in answer["warnings"])
        status, known = await made.ask("GET", "/status")
        assert (known["mode"]["name"], [one["plan"] for one in known["proposed"]], known["underWay"]) == ("propose", [plan], [])
        assert (await made.ask("GET", f"/plans/{plan}"))[1]["migrations"][0]["step"] == "proposed"
        assert "MigrationPlanned" not in await made.reasons("Node")
        assert re.search(r"^restow_plans_proposed\S* 1\.0$", await made.metrics(), re.M)
        status, answer = await made.ask("POST", f"/plans/{plan}/approve", {"by": "ada", "reason": "go", "moves": [f"{plan}-1"]})
        assert (status, answer["events"][0]["type"], answer["events"][0]["by"]) == (200, "migration.plan_approved", "ada")
        found = await made.over(plan)
        assert (found["plan"]["phase"], found["plan"]["answer"], found["plan"]["by"], found["migrations"][0]["step"]) == ("done", "approved", "ada", "landed")
        status, again = await made.ask("POST", f"/plans/{plan}/reject", {"by": "bob", "reason": "too late"})
        assert (status, "it was approved by ada" in again["error"]) == (409, True)

        async def told():
            return {"MigrationPlanned", "MigrationDone"} <= (await made.reasons("Node")).keys() and "Migrated" in await made.reasons("Pod")

        await made.until(told)


async def test_who_has_the_token_for_answers_may_answer_and_nothing_else(broker, tmp_path):
    answers = tmp_path / "answers"
    answers.write_text("token-for-answers-alone\n")
    async with world(broker, tmp_path, said=PROPOSE, answers_token_file=str(answers)) as made:
        async def ask(path, body):
            return (await made.ask("POST", path, body, token="token-for-answers-alone"))[0]

        plan = (await made.ask("POST", "/defragment"))[1]["plan"]
        assert [await ask(path, {}) for path in ("/defragment", "/deschedule", f"/plans/{plan}/cancel", "/plans/cancel")] == [401] * 4
        assert await ask("/migrations", {"pod": await lone(made)}) == 401
        assert (await made.ask("GET", "/plans", token="token-for-answers-alone"))[0] == 401
        assert await ask(f"/plans/{plan}/reject", {"by": "ada", "reason": "no"}) == 200
        assert [await ask(path, {"by": "ada", "reason": ""}) for path in ("/pause", "/resume")] == [200, 200]
        assert await ask("/mode", {"by": "ada", "mode": "observe"}) == 200


async def test_a_rejected_plan_moves_nobody_and_a_person_sets_the_mode(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        pod, before = await lone(made), await made.running()
        status, _ = await made.ask("POST", "/mode", {"mode": "propose", "by": "ada", "reason": "we look first"})
        assert status == 200
        plan = (await made.ask("POST", "/defragment"))[1]["plan"]
        status, answer = await made.ask("POST", f"/plans/{plan}/reject", {"by": "ada", "reason": "not today"})
        assert (status, answer["events"][0]["reason"]) == (200, "not today")
        found = (await made.ask("GET", f"/plans/{plan}"))[1]
        assert (found["plan"]["phase"], found["plan"]["why"], found["migrations"][0]["step"]) == ("rejected", "not today", "declined")
        planned = (await made.ask("POST", "/defragment"))[1]["events"][0]
        assert (planned["moves"], planned["kept"]) == ([], {"Refused": 1})
        assert await made.running() == before
        status, _ = await made.ask("POST", "/mode", {"mode": "observe", "by": "ada"})
        assert status == 200
        status, refused = await made.ask("POST", "/migrations", {"pod": pod})
        assert (status, "the mode is observe (set by ada)" in refused["error"]) == (409, True)
        assert (await made.ask("GET", "/status"))[1]["mode"]["by"] == "ada"


async def test_capacity_is_made_for_a_job_that_is_named(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10"}}}
        spec = {"schedulerName": "restow", "containers": [container]}
        await made.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": spec})

        async def waits():
            return bool(made.state.parked)

        await made.until(waits)
        status, real = await made.ask("POST", "/defragment", {"demand": "pod/default/big"})
        assert status == 200, real
        found = await made.over(real["plan"])
        assert (found["plan"]["reason"], found["plan"]["slots"], found["slots"][0]["node"]) == ("capacity for default/big", 1, "thin")

        async def runs():
            return (await made.running()).get("big") == "thin"

        await made.until(runs)


BAD = [
    ("POST", "/defragment", b"{", 400, "body: .*allowed: a JSON object with trigger, demand"),
    ("POST", "/defragment", b'{"trigger": "\xff"}', 400, "body: .*allowed: a JSON object with trigger, demand"),
    ("POST", "/defragment", b'{"trigger": "a", "\xff": 1}', 400, "body: .*allowed: a JSON object with trigger, demand"),
    ("POST", "/migrations?dryRun=true", b'{"pod": "\xff"}', 400, "body: .*allowed: a JSON object with pod, target"),
    ("POST", "/plans/cancel", b'{"reason": "\xff"}', 400, "body: .*allowed: a JSON object with reason"),
    ("POST", "/plans/cancel", b"[" * 30_000, 400, "body: .*allowed: a JSON object with reason"),
    ("POST", "/plans/cancel", b'{"reason": "\\ud800"}', 400, "body: .*allowed: a JSON object with reason"),
    ("POST", "/defragment", {"triger": "x"}, 400, "body: .*unknown field.*allowed"),
    ("POST", "/defragment", {"trigger": 7}, 400, "body: "),
    ("POST", "/defragment", {"trigger": "No Good"}, 400, "trigger is 'No Good'; allowed: "),
    ("POST", "/defragment", {"trigger": "demand"}, 400, "calls its own; allowed: any other"),
    ("POST", "/defragment", {"demand": "big"}, 400, "demand is 'big'; allowed: pod/NAMESPACE/NAME, podgroup"),
    ("POST", "/defragment", {"demand": "pod/default/nobody"}, 404, "there is no pod"),
    ("POST", "/defragment", {"demand": "podgroup/default/nobody"}, 404, "there is no PodGroup"),
    ("POST", "/defragment?dryRun=maybe", {}, 400, "dryRun is 'maybe'; allowed: true, false"),
    ("POST", "/defragment?dryrun=true", {}, 400, "query 'dryrun': unknown; allowed: dryRun, groupBy"),
    ("POST", "/defragment?dryRun=false&dryRun=true", {}, 400, "query 'dryRun': said more than once; allowed: once"),
    ("POST", "/migrations", {}, 400, "a move is of a pod, or of a podGroup"),
    ("POST", "/migrations", {"pod": "no-slash"}, 400, "pod is 'no-slash'; allowed: NAMESPACE/NAME"),
    ("POST", "/migrations", {"pod": "a/b/c"}, 400, "allowed: NAMESPACE/NAME"),
    ("POST", "/migrations", {"pod": "default/nobody"}, 404, "there is no pod 'default/nobody'"),
    ("POST", "/migrations", {"pod": "LONE", "target": "nowhere"}, 404, "there is no node 'nowhere'"),
    ("POST", "/migrations", {"pod": "LONE", "target": "thin"}, 409, "is on thin already"),
    ("POST", "/plans/nix/cancel", {}, 404, "there is no plan 'nix'"),
    ("POST", "/plans/cancel", {"reason": "x" * 201}, 400, "reason: 201 characters; allowed: up to 200"),
    ("POST", "/plans/cancel", {"reason": "a\nb"}, 400, "printable"),
    ("POST", "/plans/cancel", {}, 409, "no plan is under way"),
    ("POST", "/resume", {"by": "ada"}, 409, "moves are not paused"),
    ("POST", "/plans/nix/approve", {"by": "ada"}, 404, "there is no plan 'nix'"),
    ("POST", "/plans/nix/approve", {}, 400, "by: ''; allowed: who asks"),
    ("POST", "/plans/nix/approve", {"by": "ada", "moves": "all"}, 400, "body: .*allowed: a JSON object with by, reason, moves"),
    ("POST", "/plans/nix/reject", {"by": "ada", "reason": "no"}, 404, "there is no plan 'nix'"),
    ("POST", "/plans/nix/reject", {"by": "ada"}, 400, "reason: empty; allowed: why"),
    ("POST", "/mode", {"by": "ada", "mode": "auto"}, 400, "mode: 'auto'; allowed: observe, propose, automatic"),
    ("POST", "/mode", {"by": "ada", "mode": "automatic"}, 409, "it is automatic already"),
    ("POST", "/mode", {"mode": "observe"}, 400, "by: ''; allowed: who asks"),
    ("POST", "/pause", {}, 400, "by: ''; allowed: who asks"),
    ("POST", "/pause", {"by": " "}, 400, "by: ' '; allowed: who asks"),
    ("POST", "/pause", {"by": "x" * 101}, 400, "allowed: who asks, 1 to 100"),
    ("POST", "/pause", {"who": "ada"}, 400, "allowed: a JSON object with by, reason"),
    ("GET", "/plans/nix", None, 404, "there is no plan 'nix'"),
    ("GET", "/plans/nix?follow=true", None, 404, "there is no plan 'nix'"),
    ("GET", "/plans?limit=0", None, 400, "limit is '0'; allowed: 1 to 1000"),
    ("GET", "/plans?limit=٣", None, 400, "allowed: 1 to 1000"),
    ("GET", "/migrations?step=lost", None, 400, "step is 'lost'; allowed: planned, holding"),
    ("GET", "/migrations?plan=nix", None, 404, "there is no plan 'nix'"),
    ("GET", "/status?verbose=1", None, 400, "query 'verbose': unknown; allowed: none"),
    ("PUT", "/plans/nix", None, 405, "PUT; allowed: GET"),
    ("GET", "/plans/a/b", None, 404, "no /plans/a/b here"),
]


async def test_bad_input_is_refused_with_what_is_allowed_and_bad_tokens_first(broker, tmp_path, capfd):
    async with world(broker, tmp_path) as made:
        pod = await lone(made)
        before = made.state.last["migration"]
        for method, path, body, status, said in BAD:
            body = {**body, "pod": pod} if isinstance(body, dict) and body.get("pod") == "LONE" else body
            found, answer = await made.ask(method, path, body)
            assert (found, bool(re.search(said, answer["error"]))) == (status, True), (method, path, body, found, answer)
        status, answer = await made.ask("POST", "/defragment", b"x" * 100_000)
        assert (status, "64 KiB" in answer["error"]) == (413, True)
        status, answer = await made.ask("POST", "/defragment", b"{}", packed="gzip")
        assert (status, answer["error"].startswith("body: it cannot be read as its headers say")) == (400, True)
        described = (await made.ask("GET", "/openapi.json", token=""))[1]["paths"]
        asked = [(m.upper(), p.replace("{plan}", "nix")) for p, one in described.items() for m, o in one.items() if "security" in o]
        assert {("POST", "/defragment"), ("POST", "/plans/cancel"), ("GET", "/status")} < set(asked)
        for method, path in asked:
            for token in ("", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper()):
                status, answer = await made.ask(method, path, {} if method == "POST" else None, token=token)
                assert (status, list(answer)) == (401, ["error"]), (method, path, token)
        assert made.state.last["migration"] == before, "nothing of that is in the log"
    assert TOKEN not in "".join(capfd.readouterr())


async def test_without_a_token_people_may_look_and_nothing_more(broker, tmp_path):
    async with world(broker, tmp_path, token="") as made:
        pod = await lone(made)
        for path, body in (("/defragment", {}), ("/migrations", {"pod": pod}), ("/plans/cancel", {}), ("/plans/nix/cancel", {}), ("/plans/nix/approve", {"by": "a"}), ("/mode", {"mode": "observe", "by": "a"})):
            status, answer = await made.ask("POST", path, body, token="")
            assert (status, "RESTOW_API_TOKEN_FILE" in answer["error"]) == (403, True), path
            assert (await made.ask("POST", path, body, token=TOKEN))[0] == 403
        assert (await made.ask("POST", "/defragment?dryRun=true", token=""))[0] == 200
        assert (await made.ask("POST", "/migrations?dryRun=true", {"pod": pod}, token=""))[0] == 200
        for path in ("/plans", "/migrations", "/status"):
            assert (await made.ask("GET", path, token=""))[0] == 200
        assert (await made.ask("GET", "/status", token=""))[1]["changes"] == "refused: no token is configured"


async def test_whoever_does_not_lead_says_who_does_and_plans_dry(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        context = made.server.process.context

        context.leadership, leadership = Leadership("migration", "another"), context.leadership
        context.settings, settings = msgspec.structs.replace(context.settings, lease="on"), context.settings
        try:
            status, answer = await made.ask("POST", "/defragment", {})
            assert (status, answer["error"].startswith("not the leader; descheduler/")) == (503, True)
            assert (await made.ask("POST", "/plans/cancel", {}))[0] == 503
            assert (await made.ask("POST", "/defragment?dryRun=true", {}))[0] == 200
        finally:
            context.leadership, context.settings = leadership, settings


async def test_whoever_is_about_to_lead_is_waited_for(broker, tmp_path, monkeypatch):
    """`restow pause`, right after a repair of the log: it was told that the process before leads, which was no more."""
    async with world(broker, tmp_path) as made:
        context = made.server.process.context
        leading, context.leadership = context.leadership, Leadership("migration", "another")
        try:
            asked = asyncio.create_task(made.ask("POST", "/pause", {"by": "ann"}))
            await asyncio.sleep(0.2)
            context.leadership.claim()
            await asyncio.sleep(0.2)
            assert not asked.done()
            context.leadership.won(7)
            assert (await asyncio.wait_for(asked, SOON))[0] == 200
            context.leadership = Leadership("migration", "another")
            monkeypatch.setattr(api, "STARTS", 0.1)
            status, answer = await made.ask("POST", "/pause", {"by": "ann"})
            assert (status, answer["error"].startswith("not the leader; ")) == (503, True)
            assert not context.leadership.changed
        finally:
            context.leadership = leading


async def test_nothing_is_asked_for_that_would_be_done_after_a_repair_whenever_that_is(broker, tmp_path):
    async with world(broker, tmp_path) as made:
        state = made.server.process.context.state
        state.broken = 7
        try:
            for path, body in (("/defragment", {}), ("/pause", {"by": "ann"})):
                status, answer = await made.ask("POST", path, body)
                assert status == 503
                assert answer["error"].startswith("the log is broken: record 7 is missing")
                assert "`restow log repair`" in answer["error"]
            assert (await made.ask("POST", "/defragment?dryRun=true", {}))[0] == 200
        finally:
            state.broken = 0


def test_a_move_is_of_a_pod_or_of_a_group_that_the_log_has():
    state = given(pod_group("train"), pod("w", node=None, annotations={"scheduling.k8s.io/group-name": "train"}), shape("s"))
    assert http_requests.gang(state, http_requests.Move(pod="default/w")) == ""
    assert http_requests.gang(state, http_requests.Move(pod_group="default/train")) == "default/train"
    for wrong in ({}, {"pod": "default/w", "pod_group": "default/train"}, {"pod_group": "default/train", "target": "a"}, {"pod_group": "train"}):
        with pytest.raises(http_requests.Refused) as refused:
            http_requests.gang(state, http_requests.Move(**wrong))
        assert refused.value.status == 400
    with pytest.raises(http_requests.Refused) as refused:
        http_requests.gang(state, http_requests.Move(pod_group="default/nobody"))
    assert refused.value.status == 404
