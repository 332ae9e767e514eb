"""Who waits behind our gate: the list, its renewal, the dry run, the end that a pod says. Against kubesim, with its scripted faults; what a real API server
makes of it is in tests/kubernetes."""

import json

import pytest

from restow.contracts.times import rfc3339
from restow.contracts.values import OwnerRef
from restow.domain.beside import GATE
from restow.kube.beside import Beside
from restow.kube.effects import Done, Gone, PodRef, Refused
from restow.kube.gates import Gates, Missing, NotGated, Owned
from restow.kube.placeholder import NAMESPACE
from restow.kube.retry import Backoff

FAST = Backoff(attempts=3, first=0.001, longest=0.002)
STRANGER = "00000000-0000-0000-0000-000000000000"
LOG = "l0g"


@pytest.fixture
async def gates(api):
    await api.client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return Gates(api.client, FAST)


async def test_controllers_are_listed_and_taken_off_one_by_one(api, gates):
    await api.landings()
    assert await gates.landing(LOG, {"u-1": None}) == Done()
    assert await gates.landing(LOG, {"u-1": 1_000}) == Done()
    made = json.loads(await api.client.get(f"/apis/restow.dev/v1/landings/{LOG}"))
    assert made["metadata"]["labels"]["restow.dev/log"] == LOG
    assert await gates.landing(LOG, {"u-2": 2_500, "u-1": None}) == Done()
    assert (await api.landing(LOG))["open"] == {"u-2": "1970-01-01T00:00:02.500Z"}


async def test_what_was_taken_off_meanwhile_is_not_renewed_and_everything_else_is(api, gates):
    await api.landings()
    assert await gates.renew(LOG, {"u-1": 2_000}, {}) == Missing(frozenset({"u-1"})), "nor is there a Landing"
    team = Owned("default", [{"app": "a"}], 1_000)
    assert await gates.landing(LOG, {"u-1": 1_000, "u-2": 1_000}, {"r/1~a": team}) == Done()
    assert await gates.renew(LOG, {"u-1": 2_000, "u-2": 2_000}, {"r/1~a": team._replace(until=2_000)}) == Done()
    await gates.landing(LOG, {"u-1": None})
    assert await gates.renew(LOG, {"u-1": 3_000, "u-2": 3_000}, {"r/1~a": team._replace(until=3_000)}) == Missing(frozenset({"u-1"}))
    spec = (await api.landing(LOG))
    assert spec["open"] == {"u-2": rfc3339(3_000)}
    assert spec["owners"]["r/1~a"]["until"] == rfc3339(3_000)


async def test_one_of_hundreds_that_was_taken_off_is_found_in_a_few_writes(api, gates, monkeypatch):
    """Each write is of the whole Landing, of up to a megabyte: one by one, an entry that a move had just closed had a gigabyte written."""
    await api.landings()
    entries = {f"u-{i}": 1_000 for i in range(300)}
    await gates.landing(LOG, {key: one for key, one in entries.items() if key != "u-123"})
    writes, patch = [], gates._client.patch
    monkeypatch.setattr(gates._client, "patch", lambda *said: writes.append(said) or patch(*said))
    assert await gates.renew(LOG, dict.fromkeys(entries, 2_000), {}) == Missing(frozenset({"u-123"}))
    assert set((await api.landing(LOG))["open"].values()) == {rfc3339(2_000)}
    assert len(writes) == 3, "all; which are there; these"
    await gates.landing(LOG, dict.fromkeys(entries))
    writes.clear()
    assert await gates.renew(LOG, dict.fromkeys(entries, 3_000), {}) == Missing(frozenset(entries)), "somebody has taken all of them off"
    assert len(writes) == 2
    writes.clear()
    assert await gates.renew("nobodys", dict.fromkeys(entries, 2_000), {}) == Missing(frozenset(entries))
    assert len(writes) == 1


async def test_one_that_is_taken_off_after_it_was_listed_is_found_by_halves(api, gates, monkeypatch):
    await api.landings()
    entries = {f"u-{i}": 1_000 for i in range(16)}
    await gates.landing(LOG, {key: one for key, one in entries.items() if key != "u-3"})
    there = gates._listed

    async def raced(log):
        found = await there(log)
        await gates.landing(LOG, {"u-9": None})
        return found

    monkeypatch.setattr(gates, "_listed", raced)
    assert await gates.renew(LOG, dict.fromkeys(entries, 2_000), {}) == Missing(frozenset({"u-3", "u-9"}))
    assert (await api.landing(LOG))["open"] == {key: rfc3339(2_000) for key in entries if key not in ("u-3", "u-9")}


@pytest.mark.parametrize("fault", ["drop", "cut"])
@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_lost_answer_lists_all_the_same(api, gates, fault, verb):
    await api.landings()
    if verb == "patch":
        await gates.landing(LOG, {"u-0": 1_000})
    rule = api.faults.add(fault, verb=verb, resource="landings.restow.dev")
    assert await gates.landing(LOG, {"u-1": 1_000}) == Done()
    assert rule.hits == 1
    assert (await api.landing(LOG))["open"]["u-1"] == rfc3339(1_000)


async def test_without_the_crd_nobody_is_listed(gates):
    outcome = await gates.landing(LOG, {"u-1": 1_000})
    assert isinstance(outcome, Refused)
    assert outcome.code == 404


async def test_where_no_policy_gates_the_dry_run_says_so_and_leaves_nothing(api, gates):
    assert await gates.gated(OwnerRef("ReplicaSet", "web", "u-1", "apps/v1")) == NotGated()
    assert json.loads(await api.client.get("/api/v1/pods"))["items"] == []


async def test_the_dry_run_names_no_owner_that_others_would_look_for_in_its_namespace(api, gates):
    """Kueue's webhook refuses pods whose owner, of a kind that it knows, is not gates them."""
    asked = []
    create = gates._client.create

    async def seen(path, body):
        asked.append(body)
        return await create(path, body)

    gates._client.create = seen
    await gates.gated(OwnerRef("Job", "train", "u-1", "batch/v1"))
    ((owner,),) = [body["metadata"]["ownerReferences"] for body in asked]
    assert (owner["apiVersion"], owner["uid"], owner["controller"]) == ("restow.dev/v1", "u-1", True)


async def test_the_end_of_a_gate_is_not_put_off_where_it_has_gone_meanwhile(api, gates):
    """The session knows the pod as it was: nobody would take such an annotation off again."""
    pod = await api.pod(schedulingGates=[{"name": "theirs"}, {"name": GATE}])
    assert await gates.keep_gated(pod, LOG, 1_000) == Done()
    assert (await api.read_pod(pod))["metadata"]["annotations"] == {GATE: f"{LOG} 1970-01-01T00:00:01.000Z"}
    assert await Beside(api.client, FAST).let_go(pod) == Done()
    assert await gates.keep_gated(pod, LOG, 2_000) == Done()
    assert not (await api.read_pod(pod))["metadata"].get("annotations")
    assert await gates.keep_gated(PodRef(pod.namespace, pod.name, STRANGER), LOG, 2_000) == Gone()
