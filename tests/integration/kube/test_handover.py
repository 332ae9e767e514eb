"""A placeholder's claim is handed over to the successor, on kubesim with its scheduler and its controllers: wherever it stops, it can go on, and whoever gives up leaves nothing."""

import asyncio
import json

import pytest

from restow.kube import handover
from restow.kube.beside import Beside, Unkept
from restow.kube.client import ApiStatus, ClientConfig, connect
from restow.kube.effects import Done, Failed, Gone, PodRef, Refused
from restow.kube.handover import LOOKS, Handover
from restow.kube.retry import Backoff
from restow.kubesim.resources import (
    DEVICECLASSES,
    NODES,
    PODS,
    RESOURCECLAIMS,
    RESOURCECLAIMTEMPLATES,
    RESOURCESLICES,
)
from restow.kubesim.testing import kubesim

DRIVER = "gpu.example.com"
GATE = "restow.dev/landing"


class Cut:
    """A client that breaks down after so many writes; with code 403 they are refused from then on."""

    def __init__(self, client, writes, code=503):
        self._client, self._left, self._code = client, writes, code

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def get(self, *args):
        return await self._client.get(*args)

    async def _write(self, call, *args):
        if self._left <= 0:
            raise ApiStatus(self._code, "Cut", "it is away")
        self._left -= 1
        return await call(*args)

    async def patch(self, *args):
        return await self._write(self._client.patch, *args)

    async def delete(self, *args):
        return await self._write(self._client.delete, *args)


class World:
    """One device: the placeholder `h` has it, `crowd-*` wait for it, and the successor `s` is gated."""

    def __init__(self, server, client):
        self.store, self.client = server.cluster.store, client

    async def begin(self):
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        self.store.create(NODES, {"metadata": {"name": "n"}, "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}})
        self.store.create(DEVICECLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}})
        asked = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}}
        self.store.create(RESOURCECLAIMTEMPLATES, {"metadata": {"name": "one"}, "spec": asked}, "default")
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
        self.store.create(RESOURCESLICES, {"metadata": {"name": "n"}, "spec": {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [{"name": "gpu-0"}]}})
        self.h = await self.pod("h")
        await self.until(lambda: self.having() == {"h": ["h"]})
        for i in range(3):
            await self.pod(f"crowd-{i}")
        self.s = await self.pod("s", schedulingGates=[{"name": GATE}])
        await self.until(lambda: self.claim_of("s"))
        return self

    async def pod(self, name, **spec):
        body = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}], **spec}
        await self.client.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body})
        return PodRef("default", name, self.store.find(PODS, "default", name)["metadata"]["uid"])

    async def until(self, found):
        for _ in range(200):
            if got := found():
                return got
            await asyncio.sleep(0.02)
        raise AssertionError(f"never: {self.having()}, {[one['metadata']['name'] for one in self.store.list(RESOURCECLAIMS, 'default')]}")

    def claim_of(self, pod):
        there = self.store.find(PODS, "default", pod)
        return next((one["resourceClaimName"] for one in there["status"].get("resourceClaimStatuses") or ()), "")

    def having(self):
        """Of claims with a device: whose they are → for whom they are reserved."""
        found = {}
        for claim in self.store.list(RESOURCECLAIMS, "default"):
            if (claim.get("status") or {}).get("allocation"):
                (owner,) = claim["metadata"]["ownerReferences"]
                found[owner["name"]] = [one["name"] for one in claim["status"].get("reservedFor") or ()]
        return found

    def left(self):
        """Whose claims there are."""
        return sorted(claim["metadata"]["ownerReferences"][0]["name"] for claim in self.store.list(RESOURCECLAIMS, "default"))

    async def delete(self, name):
        await self.client.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})

    async def lands(self):
        await self.delete("h")
        await self.client.patch("/api/v1/namespaces/default/pods/s", {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}, "strategic")
        await self.until(lambda: self.store.find(PODS, "default", "s")["spec"].get("nodeName") == "n")
        assert self.having() == {"s": ["s"]}
        await self.until(lambda: self.left() == ["crowd-0", "crowd-1", "crowd-2", "s"])


@pytest.fixture
async def world():
    async with kubesim(controllers=True) as server, await connect(ClientConfig(url=server.url, timeout=3.0)) as client:
        yield await World(server, client).begin()


async def hand(world, writes=100, to=None):
    return await Handover(Cut(world.client, writes), Backoff(attempts=1)).hand(to or world.s, world.h)


async def test_the_successor_has_the_claim_of_the_placeholder(world):
    held, made = world.claim_of("h"), world.claim_of("s")
    assert await hand(world) == Done()
    assert world.claim_of("s") == held
    assert world.store.find(RESOURCECLAIMS, "default", made) is None
    assert world.having() == {"s": ["s"]}
    assert await hand(world, writes=0) == Done(), "there is nothing left to do"
    await world.lands()


@pytest.mark.parametrize("writes", range(5))
async def test_it_goes_on_where_it_has_stopped(world, writes):
    assert (await hand(world, writes)) == (Done() if writes == 4 else Failed(503, "Cut", "it is away"))
    assert await hand(world) == Done()
    await world.lands()


@pytest.mark.parametrize("writes", range(5))
async def test_nothing_is_left_of_one_that_is_given_up(world, writes):
    """The successor goes, and then the placeholder: the device is free for one of those that wait."""
    await hand(world, writes)
    await world.delete("s")
    await world.delete("h")
    await world.until(lambda: len(world.having()) == 1 and next(iter(world.having())).startswith("crowd"))
    await world.until(lambda: world.left() == ["crowd-0", "crowd-1", "crowd-2"])


async def test_of_a_placeholder_without_a_device_nothing_is_handed_over(world):
    bare = await world.pod("bare")
    await world.until(lambda: world.claim_of("bare"))
    made = world.claim_of("s")
    assert await Handover(world.client, Backoff(attempts=1)).hand(world.s, bare) == Done(), "the successor competes for one"
    assert (world.having(), world.claim_of("s")) == ({"h": ["h"]}, made)


async def test_a_claim_that_somebody_deletes_is_not_handed_over(world):
    """No pod could use it. Its device is free once the placeholder has gone, and the successor, which has its own claim, competes for it."""
    made = world.claim_of("s")
    await world.client.delete(f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{world.claim_of('h')}", {})
    assert await hand(world) == Done()
    assert (world.having(), world.claim_of("s")) == ({"h": ["h"]}, made)
    await world.delete("h")
    await world.until(lambda: world.having() and "h" not in world.having())


@pytest.mark.parametrize("writes", [1, 2])
async def test_a_controller_that_makes_the_placeholder_another_claim_meanwhile_does_no_harm(world, writes):
    """It does where it starts again once the first one is the successor's."""
    held = world.claim_of("h")
    await hand(world, writes)
    other = await world.pod("other")
    another = await world.until(lambda: world.claim_of("other"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "h", "uid": world.h.uid, "controller": True}
    await world.client.patch(f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{another}", {"metadata": {"ownerReferences": [owner]}})
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": another}]}
    await world.client.patch("/api/v1/namespaces/default/pods/h/status", {"status": status}, "strategic")
    assert await hand(world) == Done()
    assert (world.claim_of("s"), world.having()) == (held, {"s": ["s"]})
    await world.delete(other.name)


async def test_somebody_elses_claim_is_never_handed_over(world):
    """Not even where a placeholder's status names it."""
    other = await world.pod("other")
    await world.until(lambda: world.claim_of("other"))
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": world.claim_of("h")}]}
    await world.client.patch("/api/v1/namespaces/default/pods/other/status", {"status": status}, "strategic")
    assert await Handover(world.client, Backoff(attempts=1)).hand(world.s, other) == Done()
    assert world.having() == {"h": ["h"]}


class Late:
    """A client that does not see for so many looks that a claim was made for the successor."""

    def __init__(self, client, looks):
        self._client, self.left = client, looks

    async def get(self, path, *args):
        body = await self._client.get(path, *args)
        if path.endswith("/pods/s") and self.left > 0:
            self.left -= 1
            there = json.loads(body)
            there["status"].pop("resourceClaimStatuses", None)
            return json.dumps(there).encode()
        return body

    def __getattr__(self, name):
        return getattr(self._client, name)


@pytest.mark.parametrize(("looks", "slept"), [(0, 0), (1, 1), (7, 7), (LOOKS, LOOKS), (10**6, LOOKS)])
async def test_it_waits_for_the_controller_to_name_the_claim_that_it_makes(world, looks, slept):
    """It writes that name whatever is there: between its claim and its word, which come late where it has much to do, no other name would last. Where it makes none (a quota, a
    template that is gone) nobody waits for ever."""
    naps, late, held = [], Late(world.client, looks), world.claim_of("h")

    async def sleep(seconds):
        assert world.having() == {"h": ["h"]}, "nothing is handed over before"
        naps.append(seconds)

    handover = Handover(late, Backoff(attempts=1), sleep)
    assert await handover.named(world.s, world.h) == Done()
    assert len(naps) == slept
    assert sum(naps) <= 10
    assert await handover.hand(world.s, world.h) == Done()
    assert (world.claim_of("s"), world.having()) == (held, {"s": ["s"]})


class Denominated(Late):
    """Whoever preempts takes the nomination away while the controller is waited for."""

    nominated = 0

    async def get(self, path, *args):
        if self.left > 0 and path.endswith("/pods/s"):
            await self._client.patch(f"{path}/status", {"status": {"nominatedNodeName": None}}, "strategic")
        return await super().get(path, *args)

    async def patch(self, path, body, *args):
        self.nominated += (body.get("status") or {}).get("nominatedNodeName") == "n"
        assert not self.nominated or self.left <= 0, "what is proven before the wait may not hold after it"
        return await self._client.patch(path, body, *args)


async def test_the_nomination_is_proven_after_the_controller_has_been_waited_for(world):
    """So that the placeholder never goes while nobody is nominated: the successor's claim ties it to that node, which could be full by then."""
    client = Denominated(world.client, 20)

    async def sleep(seconds):
        await asyncio.sleep(0.001)

    await Beside(client, Backoff(attempts=1), sleep).land(world.s, "n", world.h, "log", claims=True)
    assert (client.left, client.nominated) == (0, 1)
    await world.until(lambda: world.store.find(PODS, "default", "s")["spec"].get("nodeName") == "n")
    assert world.having() == {"s": ["s"]}


async def test_who_has_gone_is_not_waited_for(world):
    assert await Handover(world.client, Backoff(attempts=1)).named(PodRef("default", "s", "another"), world.h) == Gone()


async def test_a_successor_that_has_gone_gets_nothing(world):
    assert await hand(world, to=PodRef("default", "s", "another")) == Gone()
    assert world.having() == {"h": ["h"]}


class Asleep:
    """A client of a leader that stands still before its first patch, and wakes up when another one leads."""

    def __init__(self, client):
        self._client, self.asleep, self.wake = client, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def patch(self, *args):
        self.asleep.set()
        await self.wake.wait()
        return await self._client.patch(*args)


async def test_a_leader_that_wakes_up_does_not_take_the_claim_from_who_has_it_by_now(world):
    """Its successor has gone, and the claim is the next one's: given back to a pod that is no more, it would go with that, under a pod that runs."""
    client = Asleep(world.client)
    late = asyncio.create_task(Handover(client, Backoff(attempts=1)).hand(world.s, world.h))
    await client.asleep.wait()
    await world.delete("s")
    world.s = await world.pod("s", schedulingGates=[{"name": GATE}])
    await world.until(lambda: world.claim_of("s"))
    assert await hand(world) == Done()
    claim = world.claim_of("s")
    client.wake.set()
    assert await late == Done(), "there is nothing for its own to get"
    (owner,) = world.store.find(RESOURCECLAIMS, "default", claim)["metadata"]["ownerReferences"]
    assert (owner["uid"], world.having()) == (world.s.uid, {"s": ["s"]})
    await world.lands()


async def test_a_claim_that_somebody_changes_all_the_time_is_handed_over_all_the_same(world):
    """Its scheduler, or a controller, has written into it since it was read."""
    changes = []

    class Busy(Asleep):
        async def patch(self, path, *args):
            if "/resourceclaims/" in path and len(changes) < 3:
                changes.append(path)
                await self._client.patch(path, {"metadata": {"labels": {"change": str(len(changes))}}})
            return await self._client.patch(path, *args)

    assert await Handover(Busy(world.client), Backoff(attempts=1)).hand(world.s, world.h) == Done()
    assert len(changes) == 3
    await world.lands()


class Guarded(Cut):
    """Somebody's admission refuses all writes to claims after so many."""

    async def _write(self, call, path, *args):
        if "/resourceclaims/" not in path and not path.endswith("/pods/s/status"):
            return await call(path, *args)
        if path.endswith("/pods/s/status") and "resourceClaimStatuses" not in json.dumps(args):
            return await call(path, *args)
        return await super()._write(call, path, *args)


@pytest.mark.parametrize("writes", range(2))
async def test_a_hand_over_that_is_refused_for_long_is_given_up_and_says_why(world, monkeypatch, writes):
    """Its pod has been evicted: whoever asks until the end of the move keeps the successor from a device that is free for it."""
    refused = Refused(403, "Cut", "it is away")
    beside = Beside(Guarded(world.client, writes, 403), Backoff(attempts=1))
    assert await beside.land(world.s, "n", world.h, "log", claims=True) == refused
    assert await beside.land(world.s, "n", world.h, "log", claims=True) == refused, "not before it has been for some seconds"
    assert world.store.find(PODS, "default", "h") is not None
    monkeypatch.setattr(handover, "PATIENCE", 0.0)
    assert await beside.land(world.s, "n", world.h, "log", claims=True) == Unkept(refused)
    there = world.store.find(PODS, "default", "s")
    assert (world.store.find(PODS, "default", "h"), there["spec"].get("schedulingGates") or []) == (None, [])
    await world.until(lambda: len(world.having()) == 1 and "h" not in world.having())


async def test_a_claim_without_a_device_that_may_not_be_deleted_keeps_nobody_waiting(world):
    """All that matters is done by then. It goes with the pod."""
    beside, held, made = Beside(Guarded(world.client, 3, 403), Backoff(attempts=1)), world.claim_of("h"), world.claim_of("s")
    assert await beside.land(world.s, "n", world.h, "log", claims=True) == Done()
    await world.until(lambda: world.store.find(PODS, "default", "s")["spec"].get("nodeName") == "n")
    assert (world.having(), world.claim_of("s"), world.store.find(RESOURCECLAIMS, "default", made) is not None) == ({"s": ["s"]}, held, True)
    await world.delete("s")
    await world.until(lambda: world.store.find(RESOURCECLAIMS, "default", made) is None)
