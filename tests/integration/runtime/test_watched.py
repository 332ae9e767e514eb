"""The cluster watcher against the embedded Kubernetes API: what it watches, in which order, and what may be absent."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
import yaml

from restow.cluster_watcher import service as watcher_service
from restow.cluster_watcher.service import Watches
from restow.cluster_watcher.service import service as cluster_watcher
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import decode
from restow.eventlog.testing import running_server, unique_cluster
from restow.kube import decode as d
from restow.kube.client import ApiStatus
from restow.kubesim.cluster import Options
from restow.kubesim.server import Server
from restow.kubesim.testing import kubesim

from .rig import history
from .test_services import SOON, _create, _node, _pod, _post, service

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODGROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
OPTIONAL = {c.name for c in d.COLLECTIONS if c.optional and not c.name.endswith(".resource.k8s.io")}
"""Those that kubesim does not serve by itself."""
OTHERS = {name for name in OPTIONAL if not list(CRDS.rglob(f"{name}*.yaml"))}
"""Of which we have no CRD: the API's own, and Volcano's Jobs."""


@pytest.fixture(scope="module")
def broker():
    with running_server() as server:
        yield server


@pytest.fixture
def cluster():
    return unique_cluster()


def a_group(name="gang", **spec):
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 2, **spec},
    }


async def define(kube, *names):
    for name in names:
        (path,) = CRDS.rglob(f"{name}*.yaml")
        await _post(kube, DEFINITIONS, yaml.safe_load(path.read_text()))


async def define_all(kube):
    await define(kube, *OPTIONAL - OTHERS)


async def told(watcher, *kinds):
    """Every fact of these kinds, in the order of the log."""
    commits = await history(watcher.process.context.log, "cluster")
    return [event for _, _, events in commits for event in events if isinstance(event, kinds)]


async def commands(log, family):
    """Every command of this family, in the order of the log."""
    found, tail = [], await log.tail()
    async for batch in log.read(await log.first()):
        found += [decision.command for record in batch if record.family == family for decision in decode(record.body)]
        if batch[-1].seq >= tail:
            break
    return found


async def test_without_any_crd_pods_are_reported_and_nothing_is_missing(broker, cluster):
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await _create(kube, _node("n0"), _pod("p0"))
        await watcher.until(lambda state: state.pods)
        state = watcher.process.context.state
        assert set(state.synced) >= {c.name for c in d.COLLECTIONS} - OPTIONAL - {d.PODS.name}
        assert not OPTIONAL & set(state.synced)
        assert (await watcher.get("/readyz"))[0] == 200
        registry, family = watcher.process.metrics.registry, {"family": "cluster"}
        assert {registry.get_sample_value("restow_watch_synced", family | {"kind": c.name}) for c in d.COLLECTIONS} == {1.0}
        assert registry.get_sample_value("restow_watch_lag_seconds_count", family) > 0
        assert registry.get_sample_value("restow_watch_oldest_seconds", family) >= 0
        began_again = [one.labels for metric in registry.collect() for one in metric.samples if one.name == "restow_watch_restarts_total"]
        assert not [labels for labels in began_again if labels["reason"] == "Status404"], "what nobody serves has not begun"


async def test_a_crd_that_appears_later_is_watched(broker, cluster):
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await watcher.until(lambda state: d.PODS.name in state.synced)
        assert d.POD_GROUPS.name not in watcher.process.context.state.synced
        await define(kube, d.POD_GROUPS.name)
        await watcher.until(lambda state: d.POD_GROUPS.name in state.synced)
        await _post(kube, PODGROUPS, a_group())
        await watcher.until(lambda state: ("default", "gang") in state.pod_groups)
        assert d.QUEUES.name not in watcher.process.context.state.synced


def own_groups(*versions):
    """Kubernetes serves them by itself; kubesim does not, and for a watcher there is no difference."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = [{"name": v, "served": True, "storage": v == versions[0], "schema": schema} for v in versions]
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"}
    spec = {"group": "scheduling.k8s.io", "scope": "Namespaced", "names": names, "versions": served}
    meta = {"name": d.UPSTREAM_GROUPS.name, "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_groups_of_the_apis_own_are_read_at_the_version_that_the_server_names(broker, cluster, version):
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await _post(kube, DEFINITIONS, own_groups(version))
        gang = {"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
        await _post(kube, f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups", gang | {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup"})
        pod = _pod("p0")
        pod["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
        await _create(kube, pod)
        await watcher.until(lambda state: state.pods and state.pod_groups)
        state = watcher.process.context.state
        (key, group), (members,) = *state.pod_groups.items(), state.groups
        assert (key, group.min_member, members) == (("default", "scheduling.k8s.io:gang"), 3, key)
        assert d.PRIORITY_CLASSES.name in state.synced
        await taken_away(kube, d.UPSTREAM_GROUPS.name)
        await watcher.until(lambda state: not state.pod_groups)
        assert (await watcher.get("/readyz"))[0] == 200


KOORDINATOR = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


async def taken_away(kube, *names):
    async with aiohttp.ClientSession() as session:
        for name in names:
            async with session.delete(f"{kube.url}{DEFINITIONS}/{name}") as response:
                assert response.status < 300, await response.text()


async def known_of_every_crd(kube):
    await define_all(kube)
    await _create(kube, _node("n0"))
    await _post(kube, PODGROUPS, a_group())
    await _post(kube, QUEUES, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}})
    await _post(kube, KOORDINATOR, a_hold())


def a_hold():
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
    owners = [{"labelSelector": {"matchLabels": {"a": "b"}}}]
    meta = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "hold"}}
    return {**meta, "spec": {"ttl": "0", "owners": owners, "template": template}}


def holds(state):
    return [one for one in state.reservations.values() if not one.gone]


async def test_with_a_crd_that_is_taken_away_go_its_objects_although_nobody_watched(broker, cluster):
    """And those of no other one; and no pod is told before."""
    async with kubesim() as kube:
        async with service(cluster_watcher(), broker, cluster, kube) as watcher:
            await known_of_every_crd(kube)
            await watcher.until(lambda state: state.pod_groups and "q" in state.queues and holds(state))
        await taken_away(kube, d.KOORDINATOR_RESERVATIONS.name, d.POD_GROUPS.name)
        await _create(kube, _pod("p0"))
        async with service(cluster_watcher(), broker, cluster, kube) as watcher:
            await watcher.until(lambda state: state.pods)
            state = watcher.process.context.state
            assert not holds(state)
            assert not state.pod_groups
            assert "q" in state.queues
            assert (await watcher.get("/readyz"))[0] == 200
            written = await told(watcher, e.ReservationGone, e.PodGroupGone)
            await asyncio.sleep(1)
            assert await told(watcher, e.ReservationGone, e.PodGroupGone) == written
            await define(kube, d.KOORDINATOR_RESERVATIONS.name)
            await _post(kube, KOORDINATOR, a_hold())
            await watcher.until(holds)


async def test_with_a_crd_that_is_taken_away_from_a_running_watcher_go_its_objects(broker, cluster):
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await known_of_every_crd(kube)
        await watcher.until(lambda state: "q" in state.queues and holds(state))
        await taken_away(kube, d.KOORDINATOR_RESERVATIONS.name)
        await watcher.until(lambda state: not holds(state))
        assert "q" in watcher.process.context.state.queues


async def test_where_discovery_does_not_confirm_that_a_crd_is_gone_nothing_is_forgotten(broker, cluster, monkeypatch):
    """A 404 alone says too little: the objects may be served in another version, or in a moment. While nobody says, the service says that."""
    answers = [ApiStatus(503, "ServiceUnavailable", "starting"), ["scheduling.koordinator.sh/v1beta1"]]

    async def answered(client, collection):
        answer = [] if collection.discovered else answers[0]
        if isinstance(answer, ApiStatus):
            raise answer
        return answer

    async with kubesim() as kube:
        async with service(cluster_watcher(), broker, cluster, kube) as watcher:
            await known_of_every_crd(kube)
            await watcher.until(holds)
        await taken_away(kube, d.KOORDINATOR_RESERVATIONS.name)
        await _create(kube, _pod("p0"))
        monkeypatch.setattr(watcher_service, "serving", answered)
        async with service(cluster_watcher(), broker, cluster, kube) as watcher:
            await watcher.until(lambda state: watcher.process.context.leadership.leading)
            async with asyncio.timeout(SOON):
                while "discovery says 503 ServiceUnavailable: starting" not in " ".join((await watcher.get("/readyz"))[1]["reasons"]):
                    await asyncio.sleep(0.01)
            assert not watcher.process.context.state.pods
            del answers[0]
            await watcher.until(lambda state: state.pods)
            assert holds(watcher.process.context.state)
            assert (await watcher.get("/readyz"))[0] == 200


async def test_discovery_is_asked_ever_less_often_about_what_nobody_serves(broker, cluster, monkeypatch):
    """That is so for ever on most clusters. The collection itself is looked for as before."""
    asked = []

    async def nobody(client, collection):
        asked.append(collection.name)
        return []

    monkeypatch.setattr(watcher_service, "serving", nobody)
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await _create(kube, _pod("p0"))
        await watcher.until(lambda state: state.pods)
        await asyncio.sleep(2)
    assert asked == [d.UPSTREAM_GROUPS.name]


def test_the_pauses_of_discovery_grow_to_a_minute_and_end(monkeypatch):
    now = 0.0
    monkeypatch.setattr(watcher_service.machine, "steady", lambda: now)
    patience, asked = watcher_service.Patience(), []
    while now < 300:
        if not patience.rests():
            asked.append(now)
            patience.answered()
        now += 1.0
    assert asked == [0, 3, 9, 21, 45, 93, 153, 213, 273]


async def test_everything_else_is_in_the_log_before_the_first_pod(broker, cluster):
    """Also where the other lists take longer than that of the pods."""
    async with kubesim() as kube:
        await define_all(kube)
        await _create(kube, _node("n0"), *(_pod(f"p{i}") for i in range(3)))
        await _post(kube, PODGROUPS, a_group())
        for resource in ("podgroups", "storageclasses", "nodes"):
            kube.cluster.faults.add(action="delay", verb="list", resource=resource, seconds=0.4)
        async with service(cluster_watcher(), broker, cluster, kube) as watcher:
            await watcher.until(lambda state: len(state.pods) == 3)
            synced = set()
            for _, _, events in await history(watcher.process.context.log, "cluster"):
                # A commit counts as a whole: where the last lists come together with the pods, one says all of it.
                synced |= {event.kind for event in events if isinstance(event, e.Synced)}
                if any(isinstance(event, e.PodObserved) for event in events):
                    break
            assert synced >= {c.name for c in d.COLLECTIONS} - OTHERS - {d.PODS.name}
            order = [type(event) for event in await told(watcher, e.PodGroupObserved, e.NodeObserved, e.PodObserved)]
            assert order[2:] == [e.PodObserved] * 3


async def test_while_something_cannot_be_listed_no_pod_is_reported_and_the_service_says_what(broker, cluster):
    async with kubesim() as kube:
        kube.cluster.faults.add(action="status", verb="list", resource="csinodes.storage.k8s.io", code=403, count=-1)
        await _create(kube, _node("n0"), _pod("p0"))
        async with service(cluster_watcher(), broker, cluster, kube) as watcher:
            await watcher.until(lambda state: {d.NODES.name, d.CLAIMS.name, d.NAMESPACES.name} <= set(state.synced))
            await asyncio.sleep(0.3)
            assert not watcher.process.context.state.pods
            status, body = await watcher.get("/readyz")
            assert status == 503
            assert "csinodes.storage.k8s.io (Status403" in " ".join(body["reasons"])
            kube.cluster.faults.clear()
            await watcher.until(lambda state: state.pods)
            async with asyncio.timeout(SOON):
                while (await watcher.get("/readyz"))[0] != 200:
                    await asyncio.sleep(0.01)


def test_what_only_was_not_listed_yet_does_not_hide_what_cannot_be():
    """26 collections, on a log that is broken: each with the same words."""
    watches = SimpleNamespace(synced=lambda: {"nodes": False, "pods": False, "jobs.batch": True, "csinodes": False, "queues": False, "devices": False}, _why={"csinodes": "Status403 no"})
    assert Watches.problem(watches) == "waiting for csinodes (Status403 no), nodes, pods, queues and 1 more (not listed yet)"
    watches.synced = lambda: {"nodes": True}
    assert Watches.problem(watches) == ""


async def test_statuses_and_a_relist_say_nothing_new(broker, cluster):
    """Our own status writes, a cut and an expired watch: no fact is said twice."""
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await define_all(kube)
        await _post(kube, PODGROUPS, a_group())
        await _post(kube, QUEUES, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}})
        await watcher.until(lambda state: state.pod_groups and "q" in state.queues)
        client = watcher.process.context.client
        for running in range(3):
            await client.patch(f"{PODGROUPS}/gang/status", {"status": {"phase": "Pending", "running": running}})
            await client.patch(f"{QUEUES}/q/status", {"status": {"state": "Open", "running": running}})
        kube.cluster.faults.watches("gone")
        await _post(kube, PODGROUPS, a_group("last"))
        await watcher.until(lambda state: ("default", "last") in state.pod_groups)
        said = [(event.name, event.phase) for event in await told(watcher, e.PodGroupObserved)]
        assert said == [("gang", ""), ("gang", "Pending"), ("last", "")]
        assert len(await told(watcher, e.QueueObserved)) == 1
        assert len(await told(watcher, e.NamespaceObserved)) == len(watcher.process.context.state.namespaces)


async def test_a_bad_group_is_a_fact_that_says_why_and_a_deleted_one_is_gone(broker, cluster):
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await define_all(kube)
        await _post(kube, PODGROUPS, a_group(minMember=-3))
        await watcher.until(lambda state: state.pod_groups)
        (group,) = watcher.process.context.state.pod_groups.values()
        assert group.invalid == "spec.minMember: -3; allowed: 0 to 2147483647"
        await watcher.process.context.client.delete(f"{PODGROUPS}/gang", {})
        await watcher.until(lambda state: not state.pod_groups)


async def test_after_the_api_was_built_anew_its_facts_replace_those_of_the_log(broker, cluster):
    """Its versions will never reach those that the log knows. Whatever it lists is what there is, and the log says why."""
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await _create(kube, *(_node(f"n{i}") for i in range(30)), _pod("p0"))
        await watcher.until(lambda state: len(state.nodes) == 30 and state.pods)
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await _create(kube, _node("n1"), _node("new"))
        await watcher.until(lambda state: sorted(state.nodes) == ["n1", "new"] and not state.pods)
        assert (await watcher.get("/readyz"))[0] == 200
        await _create(kube, _pod("p1"))
        await watcher.until(lambda state: len(state.pods) == 1)
        log = watcher.process.context.log
        assert "reset" in [command.how for command in await commands(log, "cluster") if isinstance(command, c.Observe)]


async def test_a_watch_of_an_api_that_was_restored_under_it_does_not_stay_silent(broker, cluster):
    """Another server answers it, from a version that this one has never reached: nothing would ever come but its bookmarks."""
    first = Server()
    await first.start()
    async with service(cluster_watcher(), broker, cluster, first) as watcher:
        await _create(first, *(_node(f"n{i}") for i in range(30)))
        await watcher.until(lambda state: len(state.nodes) == 30 and d.PODS.name in state.synced)
        await first.stop()
        async with kubesim(port=first.port, options=Options(bookmark_interval=0.1)) as second:
            await _create(second, _node("n1"), _node("new"))
            await watcher.until(lambda state: sorted(state.nodes) == ["n1", "new"])
            await _create(second, _pod("p1"))
            await watcher.until(lambda state: len(state.pods) == 1)
