"""One leader at a time; a new one as soon as the old one lets go, and no sooner than its lease allows."""

import asyncio
from datetime import UTC, datetime

import pytest

from restow.kube.client import ApiStatus
from restow.kube.lease import Elector, LeaseConfig, leading

CONFIG = LeaseConfig(duration=15, retry=2, renew=2)


class Time:
    """A clock that moves when it is told, or when somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def elector(api, time):
    def make(identity: str) -> Elector:
        return Elector(api.client, "default", "session", identity, CONFIG, time, lambda: datetime(2026, 3, 1, tzinfo=UTC))

    return make


async def lease(api):
    return await api.read("/apis/coordination.k8s.io/v1/namespaces/default/leases/session")


async def test_a_free_lease_is_taken(api, elector):
    assert await elector("a").acquire_or_renew()
    spec = (await lease(api)).spec
    assert (spec.holderIdentity, spec.leaseDurationSeconds, spec.leaseTransitions) == ("a", 15, 0)
    assert spec.renewTime == "2026-03-01T00:00:00.000000Z"


async def test_a_held_lease_is_not_taken(elector):
    assert await elector("a").acquire_or_renew()
    assert not await elector("b").acquire_or_renew()


async def test_who_wrote_a_lease_a_moment_ago_has_it_for_sure(elector, time):
    a, b = elector("a"), elector("b")
    assert not a.surely_holds()
    await a.acquire_or_renew()
    await b.acquire_or_renew()
    assert (a.surely_holds(), b.surely_holds()) == (True, False)
    time.now += 7.5
    assert not a.surely_holds(), "it may be another's soon"
    time.now += 7.5
    await b.acquire_or_renew()
    await a.acquire_or_renew()
    assert (a.surely_holds(), b.surely_holds()) == (False, True)


async def test_an_abandoned_lease_is_taken_after_its_duration_by_ones_own_clock(api, elector, time):
    a, b = elector("a"), elector("b")
    await a.acquire_or_renew()
    assert not await b.acquire_or_renew()
    time.now += 14.9
    assert not await b.acquire_or_renew()
    time.now += 0.2
    assert await b.acquire_or_renew()
    assert (await lease(api)).spec.leaseTransitions == 1
    assert not await a.acquire_or_renew()


async def test_a_renewal_starts_the_duration_again(api, elector, time):
    a, b = elector("a"), elector("b")
    a._now = lambda: datetime.fromtimestamp(time(), UTC)
    for _ in range(5):
        assert await a.acquire_or_renew()
        assert not await b.acquire_or_renew()
        time.now += 10


async def test_a_released_lease_is_free_at_once(elector):
    a, b = elector("a"), elector("b")
    await a.acquire_or_renew()
    await a.release()
    assert await b.acquire_or_renew()


async def test_of_two_that_try_at_once_one_wins(api, elector):
    results = await asyncio.gather(*(elector(name).acquire_or_renew() for name in "abcdef"))
    assert results.count(True) == 1


async def test_what_others_wrote_on_the_lease_stays(api, elector):
    a = elector("a")
    await a.acquire_or_renew()
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/session"
    await api.client.patch(path, {"metadata": {"labels": {"team": "x"}}})
    assert await a.acquire_or_renew()
    assert (await lease(api)).metadata.labels.team == "x"


async def test_a_leader_renews_with_one_request(api, elector, monkeypatch):
    a = elector("a")
    await a.acquire_or_renew()
    asked = []
    call = api.client._call
    monkeypatch.setattr(api.client, "_call", lambda method, *rest, **more: asked.append(method) or call(method, *rest, **more))
    assert await a.acquire_or_renew()
    assert await a.acquire_or_renew()
    assert asked == ["PUT", "PUT"]


async def test_a_renewal_finds_a_lease_that_another_has_taken_meanwhile(api, elector, time):
    a, b = elector("a"), elector("b")
    await a.acquire_or_renew()
    assert not await b.acquire_or_renew()
    time.now += 16
    assert await b.acquire_or_renew()
    assert not await a.acquire_or_renew()
    assert not await a.acquire_or_renew()
    assert (await lease(api)).spec.holderIdentity == "b"


async def test_a_lease_that_was_deleted_is_made_again_by_its_leader(api, elector):
    a = elector("a")
    await a.acquire_or_renew()
    await api.client.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/session")
    assert await a.acquire_or_renew()
    assert (await lease(api)).spec.holderIdentity == "a"


async def test_a_renewal_whose_answer_was_lost_is_no_loss(api, elector, monkeypatch):
    a = elector("a")
    await a.acquire_or_renew()
    replace = api.client.replace

    async def lost(path, body):
        await replace(path, body)
        raise ApiStatus(0, "NoAnswer", "reset")

    with monkeypatch.context() as patch:
        patch.setattr(api.client, "replace", lost)
        with pytest.raises(ApiStatus):
            await a.acquire_or_renew()
    assert await a.acquire_or_renew()


async def test_leading_releases_at_the_end(api, elector, time):
    async with leading(elector("a"), sleep=time.sleep) as leadership:
        assert not leadership.lost.is_set()
        assert (await lease(api)).spec.holderIdentity == "a"
    assert not getattr((await lease(api)).spec, "holderIdentity", "")


async def test_leading_waits_for_the_other(api, elector, time):
    await elector("a").acquire_or_renew()
    waits = []
    async with leading(elector("b"), on_wait=waits.append, sleep=time.sleep, share=lambda: 0.0):
        assert (await lease(api)).spec.holderIdentity == "b"
    assert waits == [None] * 8


async def test_a_leader_whose_lease_was_taken_is_told_once(api, elector, time):
    told = []
    async with leading(elector("a"), on_lost=lambda: told.append(1), sleep=time.sleep) as leadership:
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/session"
        await api.client.patch(path, {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 3600}})
        async with asyncio.timeout(60):
            await leadership.lost.wait()
    assert told == [1]
    assert (await lease(api)).spec.holderIdentity == "b"


async def test_a_leader_whom_the_api_does_not_answer_goes_on_until_another_has_the_lease(api, elector, time):
    """The log decides: without another leader, one that stops is worse than one that goes on."""
    async with leading(elector("a"), sleep=time.sleep, share=lambda: 0.0) as leadership:
        began = time.now
        api.faults.add("status", resource="leases", code=503, count=-1)
        async with asyncio.timeout(60):
            while time.now < began + 10 * CONFIG.duration:
                await asyncio.sleep(0)
        assert not leadership.lost.is_set()
        api.faults.clear()
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/session"
        await api.client.patch(path, {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 3600}})
        async with asyncio.timeout(60):
            await leadership.lost.wait()


async def test_time_without_an_answer_of_the_api_counts_for_nobody(api, elector, time):
    """Else each who stands by would take over when the API is back, before the leader could renew."""
    a, b = elector("a"), elector("b")
    await a.acquire_or_renew()
    assert not await b.acquire_or_renew()
    rule = api.faults.add("status", resource="leases", code=503, count=-1)
    for _ in range(20):
        time.now += CONFIG.retry
        with pytest.raises(ApiStatus):
            await b.acquire_or_renew()
    assert rule.hits
    api.faults.clear()
    assert not await b.acquire_or_renew()
    time.now += CONFIG.duration - 0.1
    assert not await b.acquire_or_renew()
    time.now += 0.2
    assert await b.acquire_or_renew()


def test_a_duration_says_how_often_is_renewed_and_looked():
    assert LeaseConfig.of(2) == LeaseConfig(duration=2, retry=0.25, renew=0.6)


async def test_a_short_outage_costs_no_leadership(api, elector, time):
    async with leading(elector("a"), sleep=time.sleep, share=lambda: 0.0) as leadership:
        rule = api.faults.add("status", resource="leases", code=503, count=3)
        async with asyncio.timeout(60):
            while rule.hits < 3:
                await asyncio.sleep(0)
        hits = len(api.faults.rules)
        assert hits == 1
        assert not leadership.lost.is_set()


async def test_a_leader_that_could_not_renew_tries_again_sooner(api, time):
    config, slept, four = LeaseConfig(duration=10, retry=1, renew=2), [], asyncio.Event()

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            api.faults.add("status", resource="leases", code=503, count=1)
        if len(slept) == 4:
            four.set()
            await asyncio.Event().wait()
        await time.sleep(seconds)

    one = Elector(api.client, "default", "session", "a", config, time, lambda: datetime(2026, 3, 1, tzinfo=UTC))
    async with leading(one, sleep=sleep, share=lambda: 0.0) as leadership, asyncio.timeout(60):
        await four.wait()
        assert not leadership.lost.is_set()
    assert slept == [2, 2, 1, 2]


PAGE = b"<html>maintenance</html>"


@pytest.mark.parametrize("verb", ["get", "create", "replace"])
async def test_a_gateways_page_is_no_answer_about_a_lease(api, elector, time, verb, monkeypatch):
    """A 200 of somebody in between: the Lease is asked for again, and nobody takes it for ours."""
    one = elector("a")
    if verb != "create":
        await elector("a").acquire_or_renew()
    answer, away, waits = getattr(api.client, verb), [True, True], []

    async def gateway(*arguments):
        if away:
            away.pop()
            return PAGE
        return await answer(*arguments)

    monkeypatch.setattr(api.client, verb, gateway)
    with pytest.raises(ApiStatus) as garbled:
        await one.acquire_or_renew()
    assert (garbled.value.code, garbled.value.reason, garbled.value.transient) == (0, "Garbled", True)
    async with leading(one, on_wait=waits.append, sleep=time.sleep) as leadership:
        assert "maintenance" in str(waits[0])
        assert not leadership.lost.is_set()
        away.append(True)
        await asyncio.sleep(0)
    assert (await lease(api)).spec.leaseTransitions in (0, 1)


async def test_a_gateways_page_ends_no_release(api, elector, monkeypatch):
    one = elector("a")
    await one.acquire_or_renew()

    async def gateway(*_):
        return PAGE

    monkeypatch.setattr(api.client, "get", gateway)
    await one.release()


async def test_a_lease_says_what_its_holder_notes_and_tells_it_to_who_takes_it_over(api, time):
    heard = {"a": [], "b": []}

    def holder(name):
        def note(said):
            heard[name].append(said)
            return f"{name}{len(heard[name])}"

        return Elector(api.client, "default", "session", name, CONFIG, time, lambda: datetime(2026, 3, 1, tzinfo=UTC), note=note)

    a, b = holder("a"), holder("b")
    for _ in range(3):
        assert await a.acquire_or_renew()
    assert not await b.acquire_or_renew()
    assert heard == {"a": ["", "a1", "a2"], "b": []}, "who only waits says nothing"
    await a.release()
    assert await b.acquire_or_renew()
    assert heard == {"a": ["", "a1", "a2", "a3"], "b": ["a4"]}
    assert vars((await lease(api)).metadata.annotations)["restow.dev/log-read"] == "b1"


async def test_a_leader_that_does_not_reach_the_log_gives_the_lease_to_somebody_who_does(api, time):
    """Cut off from the brokers alone, it would renew for ever, and nobody would decide."""
    reached = {"a": True, "b": True}

    def elector(name):
        return Elector(api.client, "default", "session", name, CONFIG, time, lambda: datetime(2026, 3, 1, tzinfo=UTC), reaches=lambda: reached[name])

    lost = []
    async with leading(elector("a"), lambda: lost.append(time.now), sleep=time.sleep):
        reached["a"], began = False, time.now
        async with leading(elector("b"), sleep=time.sleep):
            assert time.now - began >= CONFIG.duration
            assert (await lease(api)).spec.holderIdentity == "b"
            for _ in range(200):
                await asyncio.sleep(0.001)
            assert not lost, "it does not know yet who leads"
            reached["a"] = True
            async with asyncio.timeout(5):
                while not lost:
                    await asyncio.sleep(0.001)
            assert (await lease(api)).spec.holderIdentity == "b"


async def test_who_hears_late_that_it_has_a_lease_does_not_have_it_for_sure(api, elector, time, monkeypatch):
    """On a busy machine another one led by then, and was said to be of another cluster, or namespace, on the same log."""
    create = api.client.create

    async def late(*of):
        answer = await create(*of)
        time.now += CONFIG.duration
        return answer

    monkeypatch.setattr(api.client, "create", late)
    a = elector("a")
    assert await a.acquire_or_renew()
    assert not a.surely_holds()


async def test_where_nobody_reached_the_log_the_leader_of_before_goes_on(api, time):
    reached = [True]

    def elector(name):
        return Elector(api.client, "default", "session", name, CONFIG, time, lambda: datetime(2026, 3, 1, tzinfo=UTC), reaches=lambda: reached[0])

    a, b = elector("a"), elector("b")
    assert a.can_lead()
    assert await a.acquire_or_renew()
    assert not await b.acquire_or_renew()
    reached[0] = False
    assert (a.can_lead(), b.can_lead()) == (True, False)
    time.now += CONFIG.duration
    assert (a.can_lead(), b.can_lead()) == (False, False)
    await a.give_way()
    assert (await lease(api)).spec.holderIdentity == ""
    assert not a.surely_holds()
    reached[0] = True
    assert (a.can_lead(), b.can_lead()) == (True, False)
    assert await a.acquire_or_renew()
    time.now += CONFIG.duration / 2
    assert b.can_lead()
    assert not await b.acquire_or_renew()
