"""Occupy, nominate, swap: each effect is safe to repeat and safe to be late. Against kubesim, with its scripted faults; what a real scheduler makes of
them is in tests/kubernetes."""

import asyncio
import json
import time
from contextlib import suppress

import pytest

from restow.contracts.times import rfc3339
from restow.contracts.values import PodShape
from restow.domain.leftovers import Remove
from restow.kube import beside as subject
from restow.kube import hearing, leftovers
from restow.kube.annotations import TOUCHED
from restow.kube.beside import LANDING, Beside
from restow.kube.canary import CANARY
from restow.kube.client import ApiStatus
from restow.kube.effects import Bound, Done, Failed, Gone, PodRef, Refused, Taken
from restow.kube.gates import Gates
from restow.kube.placeholder import NAMESPACE, Hold, placeholder
from restow.kube.reservation_objects import Created
from restow.kube.retry import Backoff

FAST = Backoff(attempts=3, first=0.001, longest=0.002)
STRANGER = "00000000-0000-0000-0000-000000000000"
LOG = "l0g"
GATES = [{"name": "theirs"}, {"name": LANDING}]
PROBES = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={CANARY}"
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
SHAPE = PodShape({"cpu": 1000, "pods": 1}, priority=7)


class Ears:
    """Of a scheduler that looks at probes, unless it is deaf."""

    def __init__(self, api):
        self.api, self.deaf, self.probes = api, False, []
        self.late = 0.0
        """Seconds after which it looks at a pod."""
        self.came = {}
        self.lost = 0
        """So many of its words do not reach the API, and it does not say them again."""

    async def listen(self):
        while True:
            for pod in json.loads(await self.api.client.get(PROBES))["items"]:
                came = self.came.setdefault(pod["metadata"]["name"], time.monotonic())
                if not self.deaf and time.monotonic() >= came + self.late and pod["metadata"]["name"] not in self.probes:
                    self.probes.append(pod["metadata"]["name"])
                    if len(self.probes) <= self.lost:
                        continue
                    with suppress(ApiStatus):
                        await self.api.patch_pod(PodRef(NAMESPACE, pod["metadata"]["name"], pod["metadata"]["uid"]), {"status": {"conditions": [REFUSED]}}, "/status")
            await asyncio.sleep(0.002)


@pytest.fixture
async def ears(api):
    await api.client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    one = Ears(api)
    listening = asyncio.create_task(one.listen())
    yield one
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@pytest.fixture
async def beside(api, ears):
    return Beside(api.client, FAST)


async def occupied(beside, slot="s-1", node="t"):
    manifest = placeholder(SHAPE, Hold(LOG, slot, node, "default"))
    outcome = await beside.occupy(manifest, 7, LOG)
    return PodRef(NAMESPACE, manifest.metadata.name, outcome.uid) if isinstance(outcome, Created) else outcome


async def there(api, pod):
    return [p for p in json.loads(await api.client.get(f"/api/v1/namespaces/{pod.namespace}/pods"))["items"] if p["metadata"]["uid"] == pod.uid]


# -- placeholders ------------------------------------------------------------------------------------------------------


async def test_the_first_placeholder_of_a_priority_makes_its_class(api, beside):
    held = await occupied(beside)
    assert (await api.read_pod(held))["spec"]["priority"] == 7
    assert (await api.read("/apis/scheduling.k8s.io/v1/priorityclasses/restow-hold-7")).preemptionPolicy == "Never"


async def test_a_placeholder_is_made_once(api, beside):
    first = await occupied(beside)
    assert await occupied(beside) == first
    assert await occupied(beside, slot="s-2") != first


@pytest.mark.parametrize("fault", ["drop", "cut"])
async def test_a_lost_answer_makes_no_second_placeholder(api, beside, fault):
    await occupied(beside, slot="s-0")
    rule = api.faults.add(fault, verb="create", resource="pods")
    held = await occupied(beside)
    assert rule.hits == 1
    assert len(await there(api, held)) == 1


async def test_somebody_elses_pod_of_that_name_is_refused(api, beside):
    manifest = placeholder(SHAPE, Hold(LOG, "s-1", "t", "default"))
    body = {"metadata": {"name": manifest.metadata.name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await api.client.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
    outcome = await occupied(beside)
    assert isinstance(outcome, Refused)
    assert outcome.reason == "AlreadyExists"


async def test_one_that_ends_is_no_hold(api, beside):
    held = await occupied(beside)
    await api.patch_pod(held, {"metadata": {"finalizers": ["example.com/wait"]}})
    for outcome in (await beside.vacate(held), await occupied(beside)):
        assert isinstance(outcome, Failed)
        assert outcome.reason == "Ending"


async def test_without_its_namespace_nothing_is_held(api):
    outcome = await occupied(Beside(api.client, FAST))
    assert isinstance(outcome, Refused)
    assert NAMESPACE in outcome.message


async def test_a_placeholder_goes_once_and_another_of_its_name_stays(api, beside):
    held = await occupied(beside)
    assert await beside.vacate(PodRef(held.namespace, held.name, STRANGER)) == Done()
    assert await there(api, held)
    assert await beside.vacate(held) == Done()
    assert await there(api, held) == []
    assert await beside.vacate(held) == Done()


async def test_a_conflict_that_is_not_the_uids_leaves_a_placeholder_that_is_deleted_then(api, beside):
    held = await occupied(beside)
    rule = api.faults.add("status", verb="delete", resource="pods", name="^hold-", code=409)
    assert await beside.vacate(held) == Done()
    assert (rule.hits, await there(api, held)) == (1, [])


async def test_a_virtual_placeholder_is_nominated(api, beside):
    manifest = placeholder(SHAPE, Hold(LOG, "s-1", "t", "default", virtual=True))
    pod = await api.pod()
    first = await beside.guard(manifest, 7, LOG, "t", pod)
    assert await beside.guard(manifest, 7, LOG, "t", pod) == first
    got = await api.read_pod(PodRef(NAMESPACE, manifest.metadata.name, first.uid))
    assert got["status"]["nominatedNodeName"] == "t"
    assert "nodeName" not in got["spec"]


@pytest.mark.parametrize(("resource", "name"), [("pods", "^web$"), ("pods/status", "^hold-")])
async def test_who_may_not_let_a_successor_go_or_nominate_it_has_no_guard_that_is_nominated(api, beside, resource, name):
    """Nobody is evicted then: RBAC lacks `patch pods`, or somebody's admission refuses it of pods like this one."""
    manifest, pod = placeholder(SHAPE, Hold(LOG, "guard/m-1", "s", "default", virtual=True)), await api.pod()
    rule = api.faults.add("status", verb="patch", resource=resource, name=name, code=403)
    outcome = await beside.guard(manifest, 7, LOG, "s", pod)
    assert (type(outcome), outcome.code, rule.hits) == (Refused, 403, 1)
    made = json.loads(await api.client.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{manifest.metadata.name}"))
    assert "nominatedNodeName" not in made["status"]
    assert isinstance(await beside.guard(manifest, 7, LOG, "s", pod), Created)


async def test_the_proof_changes_nothing_of_the_pod_and_one_that_has_gone_needs_none(api, beside):
    manifest, pod = placeholder(SHAPE, Hold(LOG, "guard/m-1", "s", "default", virtual=True)), await api.pod()
    before = await api.read_pod(pod)
    assert isinstance(await beside.guard(manifest, 7, LOG, "s", pod), Created)
    assert await api.read_pod(pod) == before
    await api.client.delete(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"gracePeriodSeconds": 0})
    assert isinstance(await beside.guard(manifest, 7, LOG, "s", pod), Created)


# -- the pod -----------------------------------------------------------------------------------------------------------


async def test_a_pod_lands_with_its_nomination_before_the_placeholder_goes_and_its_gate_after(api, beside):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    api.faults.add("status", verb="delete", resource="pods", name="^hold-", code=503, count=3)
    assert isinstance(await beside.land(pod, "t", held, LOG), Failed)
    got = await api.read_pod(pod)
    assert got["status"]["nominatedNodeName"] == "t"
    assert got["spec"]["schedulingGates"] == GATES
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert (await api.read_pod(pod))["spec"]["schedulingGates"] == GATES[:1]
    assert await there(api, held) == []
    assert await beside.land(pod, "t", held, LOG) == Done()


async def test_a_placeholder_that_somebodys_finalizer_keeps_is_not_taken_for_gone(api, beside):
    """Its scheduler counts it until it has gone, and would take the nomination away from who is let go beside it."""
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    await api.patch_pod(held, {"metadata": {"finalizers": ["example.com/wait"]}})
    assert isinstance(await beside.land(pod, "t", held, LOG), Failed)
    assert (await api.read_pod(pod))["spec"]["schedulingGates"] == GATES
    await api.patch_pod(held, {"metadata": {"finalizers": None}})
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert (await api.read_pod(pod))["spec"]["schedulingGates"] == GATES[:1]


async def test_a_pod_that_has_a_node_has_landed_or_not_and_needs_no_placeholder(api, beside):
    for node, outcome in (("t", Bound()), ("u", Taken("u"))):
        held, pod = await occupied(beside), await api.pod(name=f"on-{node}")
        await beside.bind(pod, node)
        assert await beside.land(pod, "t", held, LOG) == outcome
        assert await there(api, held) == []


async def test_a_pod_that_has_gone_leaves_the_placeholder_to_whom_it_may_concern(api, beside):
    held, pod = await occupied(beside), await api.pod()
    assert await beside.land(PodRef("default", "web", STRANGER), "t", held, LOG) == Gone()
    assert await beside.land(PodRef("default", "nobody", STRANGER), "t", held, LOG) == Gone()
    assert "nominatedNodeName" not in (await api.read_pod(pod))["status"]
    assert await there(api, held)


async def probes_left(api):
    for _ in range(500):
        left = json.loads(await api.client.get(PROBES))["items"]
        if not left:
            break
        await asyncio.sleep(0.01)
    return [pod["metadata"]["name"] for pod in left]


async def test_the_placeholder_stays_until_the_scheduler_has_looked_at_a_pod_that_is_newer_than_the_nomination(api, beside, ears, monkeypatch):
    monkeypatch.setattr(hearing, "PATIENCE", 0.1)
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    ears.deaf = True
    unheard = await beside.land(pod, "t", held, LOG)
    assert (type(unheard), unheard.reason) == (Failed, "Unheard")
    assert await there(api, held)
    got = await api.read_pod(pod)
    assert (got["status"]["nominatedNodeName"], got["spec"]["schedulingGates"]) == ("t", GATES)
    ears.deaf = False
    monkeypatch.setattr(hearing, "PATIENCE", 10.0)
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert (await there(api, held), await probes_left(api)) == ([], [])


async def test_a_scheduler_that_is_slower_than_anybody_waits_is_heard_by_the_same_probe(api, beside, ears, monkeypatch):
    """A new probe is behind all that is in its queue again: where it takes longer than that, nothing would ever land."""
    monkeypatch.setattr(hearing, "PATIENCE", 0.1)
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    ears.late = 0.5
    outcomes = []
    while not outcomes or isinstance(outcomes[-1], Failed):
        outcomes.append(await beside.land(pod, "t", held, LOG))
        assert len(outcomes) < 20
    assert (outcomes[-1], await there(api, held)) == (Done(), [])
    assert len(ears.came) == 1
    assert await probes_left(api) == []


async def test_whoever_writes_to_a_successor_meanwhile_does_not_have_its_scheduler_asked_anew(api, beside, ears, monkeypatch):
    """Its session puts off the end of its gate each minute and a half, and others write to it, too: by another probe each time, a slow scheduler would never be heard."""
    monkeypatch.setattr(hearing, "PATIENCE", 0.1)
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    ears.late = 0.5
    outcomes = []
    while not outcomes or isinstance(outcomes[-1], Failed):
        outcomes.append(await beside.land(pod, "t", held, LOG))
        assert await Gates(api.client, FAST).keep_gated(pod, LOG, 1_000 * len(outcomes)) == Done()
        assert len(outcomes) < 20
    assert (len(outcomes) > 2, outcomes[-1], await there(api, held)) == (True, Done(), [])
    assert len(ears.came) == 1


async def test_a_nomination_that_is_made_again_is_to_be_heard_of_anew(api, beside, ears, monkeypatch):
    monkeypatch.setattr(hearing, "PATIENCE", 0.1)
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    ears.late = 0.5
    assert isinstance(await beside.land(pod, "t", held, LOG), Failed)
    assert await beside.patch_nominated_node(pod, "elsewhere") == Done()
    while isinstance(await beside.land(pod, "t", held, LOG), Failed):
        pass
    assert len(ears.came) == 2


async def test_a_placeholder_stays_where_the_nomination_that_was_heard_of_has_gone_meanwhile(api, beside, ears, monkeypatch):
    """Whoever preempts another pod of that node has it taken away. Without it an equal pod would get what the placeholder leaves."""
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    heard, taken = beside._hearing.heard, []

    async def hears(who, of):
        said = await heard(who, of)
        if not taken:
            taken.append(await api.patch_pod(pod, {"status": {"nominatedNodeName": None}}, "/status"))
        return said

    monkeypatch.setattr(beside._hearing, "heard", hears)
    outcome = await beside.land(pod, "t", held, LOG)
    assert (type(outcome), outcome.reason) == (Failed, "Denominated")
    assert await there(api, held)
    assert (await api.read_pod(pod))["spec"]["schedulingGates"] == GATES
    assert await beside.land(pod, "t", held, LOG) == Done()
    got = await api.read_pod(pod)
    assert (got["status"]["nominatedNodeName"], got["spec"]["schedulingGates"], await there(api, held)) == ("t", GATES[:1], [])
    assert len(ears.came) == 2, "the new nomination is heard of anew"


async def test_a_nomination_that_goes_between_the_placeholder_and_the_gate_is_made_again(api, beside, ears, monkeypatch):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    vacate = beside.vacate

    async def vacates(placeholder):
        done = await vacate(placeholder)
        await api.patch_pod(pod, {"status": {"nominatedNodeName": None}}, "/status")
        return done

    monkeypatch.setattr(beside, "vacate", vacates)
    assert await beside.land(pod, "t", held, LOG) == Done()
    got = await api.read_pod(pod)
    assert (got["status"]["nominatedNodeName"], got["spec"]["schedulingGates"]) == ("t", GATES[:1])


async def test_a_word_that_does_not_reach_the_api_is_asked_for_again(api, beside, ears, monkeypatch):
    """kube-scheduler has looked at the probe while the API was away, and looks at it again after five minutes."""
    monkeypatch.setattr(hearing, "AGAIN", 0.1)
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    ears.lost = 2
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert len(ears.came) >= 3
    assert (await there(api, held), await probes_left(api)) == ([], [])


async def test_a_probe_goes_once_nobody_waits_for_it_any_more(api, ears, monkeypatch):
    """Its move has ended meanwhile: a scheduler that is not there would leave the probe for ten minutes."""
    monkeypatch.setattr(hearing, "PATIENCE", 0.1)
    monkeypatch.setattr(hearing, "ABANDONED", 0.4)
    ears.deaf = True
    one, who = hearing.Hearing(api.client, FAST, asyncio.sleep), hearing.Who("theirs", 7, LOG)
    assert isinstance(await one.heard(who, ("pod", "1")), Failed)
    while not ears.came:
        await asyncio.sleep(0.01)
    assert await probes_left(api) == []
    ears.deaf = False
    monkeypatch.setattr(hearing, "PATIENCE", 10.0)
    assert await one.heard(who, ("pod", "1")) == Done()


async def test_who_asks_a_slow_scheduler_does_not_wait_for_the_probes_of_others(api, ears, monkeypatch):
    monkeypatch.setattr(hearing, "SHARED", 0.05)
    ears.late = 0.6
    one, who = hearing.Hearing(api.client, FAST, asyncio.sleep), hearing.Who("theirs", 7, LOG)
    began = time.monotonic()
    asked = []
    for i in range(4):
        asked.append(asyncio.create_task(one.heard(who, (f"p{i}", "1"))))
        await asyncio.sleep(0.1)
    assert await asyncio.gather(*asked) == [Done()] * 4
    assert time.monotonic() - began < 4 * 0.6, "one after the other"


async def test_pods_of_a_gang_that_land_at_the_same_time_lose_their_gates_at_the_same_time(api, beside, ears, monkeypatch):
    """Where one of them cannot go on, the others do not wait for it."""
    monkeypatch.setattr(hearing, "SHARED", 0.01)
    ears.late = 0.3
    in_gang = {"schedulingGates": GATES, "schedulingGroup": {"podGroupName": "g"}}
    pods = [await api.pod(f"g-{i}", **in_gang) for i in range(3)]
    helds = [await occupied(beside, f"s-{i}", f"t{i}") for i in range(3)]
    landing = []
    for i in range(3):
        landing.append(asyncio.create_task(beside.land(pods[i], f"t{i}", helds[i], LOG)))
        await asyncio.sleep(0.1)
    await asyncio.wait(landing, return_when=asyncio.FIRST_COMPLETED)
    assert await there(api, helds[2]) == [], "the last one is so far"
    assert await asyncio.gather(*landing) == [Done()] * 3
    alone = await api.pod("g-4", **in_gang)
    assert await beside.land(alone, "t4", await occupied(beside, "s-4", "t4"), LOG) == Done()
    assert beside._gangs == {}


async def nominated(api, pod):
    return (await api.read_pod(pod))["status"].get("nominatedNodeName", "")


async def until_nominated(api, pod, node):
    for _ in range(200):
        if await nominated(api, pod) == node:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_the_nomination_of_one_of_a_gang_is_made_again_until_it_is_bound(api, beside):
    """kube-scheduler takes it away while others of the gang have their gates: too few are there."""
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES, schedulingGroup={"podGroupName": "g"})
    assert await beside.land(pod, "t", held, LOG) == Done()
    for _ in range(2):
        await api.patch_pod(pod, {"status": {"nominatedNodeName": None}}, "/status")
        assert await until_nominated(api, pod, "t")
    assert await beside.let_go(pod) == Done()
    await api.patch_pod(pod, {"status": {"nominatedNodeName": None}}, "/status")
    assert not await until_nominated(api, pod, "t"), "it was let go"


async def test_one_that_has_changed_places_is_nominated_where_its_slot_is_now_and_nowhere_where_it_has_none(api, beside):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES, schedulingGroup={"podGroupName": "g"})
    now = ["t"]
    assert await beside.land(pod, "t", held, LOG, lambda: now[0]) == Done()
    now[0] = "other"
    assert await until_nominated(api, pod, "other")
    now[0] = ""
    for _ in range(200):
        if not beside._kept:
            break
        await asyncio.sleep(0.01)
    assert beside._kept == {}


async def test_the_first_of_a_gang_keeps_its_nomination_while_others_of_it_land_on_its_node(api, beside, monkeypatch):
    """One after the other, each for ten seconds: the gang is complete when the last of them has no gate."""
    monkeypatch.setattr(subject, "KEPT", 3.0)
    pods = [await api.pod(f"g-{i}", schedulingGates=GATES, schedulingGroup={"podGroupName": "g"}) for i in range(3)]
    for i, pod in enumerate(pods):
        assert await beside.land(pod, "t", await occupied(beside, f"s-{i}"), LOG) == Done()
        await asyncio.sleep(1.6 * (i < 2))
    await api.patch_pod(pods[0], {"status": {"nominatedNodeName": None}}, "/status")
    assert await until_nominated(api, pods[0], "t")
    for pod in pods:
        assert await beside.let_go(pod) == Done()
    await asyncio.sleep(0)
    assert (beside._kept, beside._ungated) == ({}, {})


async def test_a_probe_is_newer_than_the_nomination_and_the_pod_is_touched_before_its_placeholder_goes(api, beside, ears):
    """A scheduler that has listed it, gated, with its nomination counts that only once the pod changes."""
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    order = []

    def seen(change):
        old, new = change.old, change.new
        name = (new or old)["metadata"]["name"]
        if name.startswith("canary-") and old is None:
            order.append("probe")
        elif name.startswith("hold-") and new is None:
            order.append("vacated")
        elif name == "web" and old is not None:
            order.append("touched" if TOUCHED in (new["metadata"].get("annotations") or {}) else "nominated" if new["spec"]["schedulingGates"] == GATES else "free")

    api.server.cluster.store.subscribe(seen)
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert order == ["nominated", "probe", "touched", "vacated", "free"]
    assert TOUCHED not in ((await api.read_pod(pod))["metadata"].get("annotations") or {})


async def test_pods_that_land_in_the_same_moment_share_a_probe(api, beside, ears):
    both = [(await occupied(beside, slot=f"s-{i}"), await api.pod(name=f"web-{i}", schedulingGates=GATES)) for i in range(8)]
    assert await asyncio.gather(*(beside.land(pod, "t", held, LOG) for held, pod in both)) == [Done()] * 8
    assert len(ears.probes) <= 3


async def test_who_asks_while_a_probe_is_looked_at_has_another_one(api, ears):
    """It may have written something since."""
    ears.deaf = True
    one = hearing.Hearing(api.client, FAST, asyncio.sleep, "local/pause")
    who = hearing.Who("theirs", 7, LOG)
    first = asyncio.create_task(one.heard(who, ("p", "1")))
    while not (made := json.loads(await api.client.get(PROBES))["items"]):
        await asyncio.sleep(0.002)
    second = asyncio.create_task(one.heard(who, ("q", "1")))
    await asyncio.sleep(0)
    ears.deaf = False
    assert (await first, await second) == (Done(), Done())
    assert len(ears.probes) == 2
    (probe,) = made
    assert (probe["spec"]["schedulerName"], probe["spec"]["priority"], probe["spec"]["preemptionPolicy"]) == ("theirs", 7, "Never")
    assert [container["image"] for container in probe["spec"]["containers"]] == ["local/pause"]
    assert await probes_left(api) == []


@pytest.mark.parametrize("fault", ["drop", "cut"])
@pytest.mark.parametrize("verb", ["create", "get", "delete"])
async def test_lost_answers_about_a_probe_leave_none(api, beside, ears, fault, verb):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    rule = api.faults.add(fault, verb=verb, resource="pods", name="" if verb == "create" else "^canary-")
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert await probes_left(api) == []
    assert rule.hits == 1


async def test_a_probe_that_the_api_does_not_let_go_at_first_is_deleted_later(api, beside, ears):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    rule = api.faults.add("status", verb="delete", resource="pods", name="^canary-", code=403, count=2)
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert (await probes_left(api), rule.hits) == ([], 2)


async def test_where_the_api_takes_no_probe_nothing_is_proven_and_the_pod_lands(api, beside, ears):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    api.faults.add("status", verb="create", resource="pods", code=403)
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert ears.probes == []


async def test_a_probe_that_somebody_deletes_is_no_proof(api, beside, ears):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    ears.deaf = True
    landing = asyncio.create_task(beside.land(pod, "t", held, LOG))
    while not (made := json.loads(await api.client.get(PROBES))["items"]):
        await asyncio.sleep(0.002)
    await api.client.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{made[0]['metadata']['name']}", {"gracePeriodSeconds": 0})
    outcome = await landing
    assert (type(outcome), outcome.reason) == (Failed, "Gone")
    assert await there(api, held)


class Scheduler:
    """Stands for one that looks at a pod without the gate: what it does at each pause of ours."""

    def __init__(self, api, pod, *does):
        self.api, self.pod, self.does, self.there = api, pod, list(does), []

    async def __call__(self, seconds):
        if seconds != subject.SETTLED:
            await asyncio.sleep(0.002)
            return
        await (self.does.pop(0)(self) if self.does else asyncio.sleep(0))

    async def refuse(self):
        """As one does to whom it does not fit: the nomination goes."""
        self.there.append(len(await there(self.api, self.held)))
        await self.api.patch_pod(self.pod, {"status": {"conditions": [REFUSED], "nominatedNodeName": None}}, "/status")

    async def wait(self):
        """It does not look."""

    async def bind(self):
        self.nominated = (await self.api.read_pod(self.pod))["status"].get("nominatedNodeName")
        await Beside(self.api.client, FAST).bind(self.pod, "t")


QUIET = [Scheduler.wait] * subject.QUIET


async def test_a_pod_without_the_gate_keeps_its_placeholder_until_its_scheduler_has_looked_at_it_and_left_it_the_nomination(api, beside):
    held, pod = await occupied(beside), await api.pod()
    scheduler = Scheduler(api, pod, Scheduler.wait, Scheduler.refuse, *QUIET[1:], Scheduler.refuse, *QUIET, Scheduler.wait, Scheduler.bind)
    scheduler.held = held
    assert await Beside(api.client, FAST, scheduler).land_free(pod, "t", held, LOG, "stock") == Bound()
    assert scheduler.there == [1, 1]
    assert scheduler.nominated == "t"
    assert await there(api, held) == []


async def test_one_that_loses_the_nomination_after_all_is_nominated_again_until_it_is_bound(api, beside):
    held, pod = await occupied(beside), await api.pod()
    scheduler = Scheduler(api, pod, Scheduler.refuse, *QUIET, Scheduler.wait, Scheduler.refuse, Scheduler.wait, Scheduler.bind)
    scheduler.held = held
    assert await Beside(api.client, FAST, scheduler).land_free(pod, "t", held, LOG, "stock") == Bound()
    assert scheduler.there == [1, 0]
    assert scheduler.nominated == "t"


class Busy(Scheduler):
    """Whenever a nomination goes it looks at all that wait, which takes it so many of our pauses; at this pod last. Once the placeholder is gone it binds."""

    def __init__(self, api, pod, pauses):
        super().__init__(api, pod)
        self.pauses = self.left = pauses

    async def __call__(self, seconds):
        if seconds != subject.SETTLED:
            await asyncio.sleep(0.002)
            return
        if not await there(self.api, self.held):
            await self.bind()
        self.left -= 1
        if self.left == 0 and (await self.api.read_pod(self.pod))["status"].get("nominatedNodeName"):
            await self.refuse()
            self.left = self.pauses


async def test_a_nomination_that_goes_again_and_again_is_made_again_once_the_scheduler_is_through_with_all_that_wait(api, beside):
    """Before that it would go again: on a busy machine, or where many wait, for ten seconds, and then the placeholder went without it."""
    held, pod = await occupied(beside), await api.pod()
    scheduler = Busy(api, pod, 8)
    scheduler.held = held
    assert await Beside(api.client, FAST, scheduler).land_free(pod, "t", held, LOG, "stock") == Bound()
    assert len(scheduler.there) == 5
    assert scheduler.nominated == "t"


class Crowded(Scheduler):
    """Once the placeholder is gone somebody else has the place: it takes each nomination away."""

    async def __call__(self, seconds):
        await asyncio.sleep(0.0005)
        if not await there(self.api, self.held) and (await self.api.read_pod(self.pod))["status"].get("nominatedNodeName"):
            await self.refuse()


async def test_where_somebody_else_has_the_place_the_nomination_is_made_again_a_few_times_and_not_at_each_look(api, beside):
    held, pod = await occupied(beside), await api.pod()
    scheduler = Crowded(api, pod)
    scheduler.held = held
    assert await Beside(api.client, FAST, scheduler).land_free(pod, "t", held, LOG, "stock") == Done()
    assert scheduler.there == [0] * 9


async def test_without_the_gate_one_lands_after_the_other_and_nobody_waits_for_ever(api, beside):
    held, pod = await occupied(beside), await api.pod()
    quick = Beside(api.client, FAST, Scheduler(api, pod))
    landing = asyncio.create_task(quick.land_free(pod, "t", held, LOG, "stock"))
    await asyncio.sleep(0)
    assert quick.is_landing_free("stock")
    assert not quick.is_landing_free("slow"), "another scheduler's need not wait"
    assert await landing == Done(), "nobody has looked at it"
    assert not quick.is_landing_free("stock")
    assert (await api.read_pod(pod))["status"]["nominatedNodeName"] == "t"
    assert await quick.land_free(PodRef("default", "nobody", STRANGER), "t", held, LOG, "stock") == Gone()


@pytest.mark.parametrize("fault", ["drop", "cut"])
@pytest.mark.parametrize("resource", ["pods", "pods/status"])
async def test_lost_answers_to_a_landing_are_no_failure(api, beside, fault, resource):
    held, pod = await occupied(beside), await api.pod(schedulingGates=GATES)
    rule = api.faults.add(fault, verb="patch", resource=resource)
    assert await beside.land(pod, "t", held, LOG) == Done()
    assert rule.hits == 1
    assert (await api.read_pod(pod))["spec"]["schedulingGates"] == GATES[:1]


async def test_letting_go_takes_our_gate_and_no_other(api, beside):
    pod = await api.pod(schedulingGates=GATES)
    assert await beside.let_go(pod) == Done()
    assert (await api.read_pod(pod))["spec"]["schedulingGates"] == GATES[:1]
    assert await beside.let_go(pod) == Done()
    assert await beside.let_go(PodRef("default", "web", STRANGER)) == Gone()


async def test_a_touch_changes_nothing_but_our_own_annotation(api, beside):
    pod = await api.pod(schedulingGates=GATES)
    assert await beside.touch(pod, "1") == Done()
    assert (await api.read_pod(pod))["metadata"]["annotations"] == {"restow.dev/touched": "1"}


# -- what is left ------------------------------------------------------------------------------------------------------


async def test_what_is_left_is_listed_by_its_log_and_removed_as_it_was(api, beside):
    await api.landings()
    held = await occupied(beside)
    await Gates(api.client, FAST).landing(LOG, {"u-1": 1_000, "u-2": 2_000})
    found = {one.kind: one for one in await leftovers.listed(api.client)}
    assert {kind: (one.name, one.log) for kind, one in found.items()} == {
        "Pod": (held.name, LOG), "PriorityClass": ("restow-hold-7", LOG), "Landing": (LOG, LOG),
    }  # fmt: skip
    assert (found["Pod"].uid, found["Pod"].class_name, found["Pod"].canary) == (held.uid, "restow-hold-7", False)
    assert found["Landing"].entries == {"u-1": 1_000, "u-2": 2_000}
    await leftovers.remove(api.client, Remove(found["Landing"], ("u-1",)))
    assert (await api.landing(LOG))["open"] == {"u-2": rfc3339(2_000)}
    await leftovers.remove(api.client, Remove(found["Landing"], ("u-2",)))
    assert (await api.landing(LOG))["open"] == {"u-2": rfc3339(2_000)}, "it has changed since it was looked at"
    for one in found.values():
        await leftovers.remove(api.client, Remove(one))
        await leftovers.remove(api.client, Remove(one))
    assert await leftovers.listed(api.client) == []


async def test_without_the_crd_and_the_namespaces_nothing_is_left(api):
    assert await leftovers.listed(api.client) == []
