"""Reservations are created once, deleted safely, and their status is written only when it differs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kube.effects import Done, Gone, Refused
from restow.kube.reservation_objects import Created, CrRef, Reservations, merge_difference
from restow.kube.retry import Backoff

FAST = Backoff(attempts=3, first=0.001, longest=0.002)
PATH = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"


def manifest(migration: str = "p-1", log: str = "mine"):
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "restow-p-1", "namespace": "default", "labels": {"restow.dev/migration": migration, "restow.dev/log": log}},
        "spec": {"tasks": [{"name": "pod", "replicas": 1, "template": template}], "owners": [{"labelSelector": {}}]},
    }


@pytest.fixture
async def reservations(api):
    await api.crds()
    return Reservations(api.client, FAST)


async def created(reservations) -> CrRef:
    made = await reservations.create("volcano", manifest())
    assert isinstance(made, Created)
    return CrRef("volcano", "default", "restow-p-1", made.uid)


async def test_a_reservation_is_created_once(reservations):
    first = await created(reservations)
    assert await created(reservations) == first


async def test_a_lost_answer_to_a_creation_is_success(api, reservations):
    api.faults.add("drop", verb="create", resource="reservations")
    await created(reservations)


async def test_somebody_elses_object_of_that_name_is_left_alone(reservations):
    await created(reservations)
    outcome = await reservations.create("volcano", manifest("other-1"))
    assert isinstance(outcome, Refused)
    assert outcome.reason == "AlreadyExists"


async def test_another_installations_object_is_not_success_although_it_is_named_alike(reservations):
    """Two plans of the same millisecond: the second fails with a reason, before anybody was evicted."""
    await created(reservations)
    outcome = await reservations.create("volcano", manifest(log="theirs"))
    assert isinstance(outcome, Refused)
    assert outcome.reason == "AlreadyExists"
    assert "restow.dev/log=mine" in outcome.message


async def test_a_lost_answer_to_the_creation_of_a_slot_is_success(api, reservations):
    capacity = manifest()
    capacity["metadata"]["labels"] = {"restow.dev/plan": "x", "restow.dev/log": "mine"}
    api.faults.add("drop", verb="create", resource="reservations")
    assert isinstance(await reservations.create("volcano", capacity), Created)


async def test_an_invalid_manifest_is_refused(reservations):
    outcome = await reservations.create("volcano", manifest() | {"spec": {"tasks": "none"}})
    assert isinstance(outcome, Refused)


@pytest.mark.parametrize("action", ["drop", "cut"])
async def test_a_deletion_is_safe_to_repeat(api, reservations, action):
    ref = await created(reservations)
    api.faults.add(action, verb="delete", resource="reservations")
    assert await reservations.delete(ref) == Done()
    assert await reservations.delete(ref) == Done()


async def test_a_successor_of_the_same_name_is_not_deleted(api, reservations):
    old = await created(reservations)
    await reservations.delete(old)
    new = await created(reservations)
    assert await reservations.delete(old) == Done()
    assert json.loads(await api.client.get(f"{PATH}/restow-p-1"))["metadata"]["uid"] == new.uid


async def test_a_status_is_written_once_and_made_equal(api, reservations):
    ref = await created(reservations)
    first = {"state": {"phase": "Pending", "reason": "Unfit"}, "pending": 1}
    second = {"state": {"phase": "Available"}, "available": 1}
    for status in (first, first, second, second):
        assert await reservations.write_status(ref, status) == Done()
    there = json.loads(await api.client.get(f"{PATH}/restow-p-1"))
    assert there["status"] == second
    version = there["metadata"]["resourceVersion"]
    await reservations.write_status(ref, second)
    assert json.loads(await api.client.get(f"{PATH}/restow-p-1"))["metadata"]["resourceVersion"] == version


async def test_the_status_of_a_reservation_that_is_gone(reservations):
    assert await reservations.write_status(CrRef("volcano", "default", "nobody", "u"), {"pending": 1}) == Gone()
    ref = await created(reservations)
    stranger = CrRef("volcano", "default", ref.name, "another")
    assert await reservations.write_status(stranger, {"pending": 1}) == Gone()


async def test_a_reservation_that_goes_before_its_status_is_written_is_gone_and_nothing_else_is_tried(api, reservations, monkeypatch):
    """reservation-cache may patch statuses alone: to patch the object, in case the CRD has no /status, was forbidden, and so the answer."""
    ref, patch, patched = await created(reservations), api.client.patch, []

    async def late(path, *more):
        patched.append(path)
        if len(patched) == 1:
            await api.client.delete(f"{PATH}/{ref.name}")
        return await patch(path, *more)

    monkeypatch.setattr(api.client, "patch", late)
    assert await reservations.write_status(ref, {"pending": 1}) == Gone()
    assert patched == [f"{PATH}/{ref.name}/status"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=1), inner, max_size=3),
    max_leaves=12,
)


def merged(target, patch):
    """RFC 7386, in its own words."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=1), json_values, max_size=3),
    st.dictionaries(st.text("abc", min_size=1, max_size=1), json_values, max_size=3),
)
def test_the_difference_merges_one_into_the_other(now, wanted):
    now, wanted = without_nulls(now), without_nulls(wanted)
    patch = merge_difference(now, wanted)
    assert (patch is None) == (now == wanted)
    assert (now if patch is None else merged(now, patch)) == wanted
