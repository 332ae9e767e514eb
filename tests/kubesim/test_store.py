"""The store: history can be walked back, indexes agree, whatever happens in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.kubesim.cluster import Cluster
from restow.kubesim.errors import ApiError
from restow.kubesim.objects import clone
from restow.kubesim.resources import CONFIGMAPS, PODS
from restow.kubesim.selectors import label_selector_test, label_test
from restow.kubesim.store import Store

steps = st.lists(st.tuples(st.sampled_from(["create", "update", "delete"]), st.sampled_from("abcd"), st.integers(0, 3)), max_size=30)  # fmt: skip


def play(store: Store, script: Any) -> dict[int, dict[str, Any]]:
    """Run the steps; returns what the store held at each version."""
    seen = {store.resource_version: {}}
    for verb, name, value in script:
        try:
            if verb == "create":
                store.create(CONFIGMAPS, {"metadata": {"name": name}, "data": {"v": str(value)}}, "default")
            elif verb == "update":
                obj = clone(store.get(CONFIGMAPS, "default", name))
                obj["data"] = {"v": str(value)}
                store.update(CONFIGMAPS, obj)
            else:
                store.delete(CONFIGMAPS, "default", name)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        seen[store.resource_version] = {
            obj["metadata"]["name"]: obj["data"]["v"] for obj in store.list(CONFIGMAPS, "default")
        }
    return seen


@given(steps)
@settings(max_examples=examples(60))
def test_every_remembered_version_can_be_listed(script: Any) -> None:
    store = Store()
    for rv, expected in play(store, script).items():
        listed = store.shelf(CONFIGMAPS).at(rv)
        assert listed is not None
        assert {item.obj["metadata"]["name"]: item.obj["data"]["v"] for item in listed} == expected
        assert [item.key for item in listed] == sorted(item.key for item in listed)


@given(steps)
@settings(max_examples=examples(60))
def test_changes_rebuild_the_state(script: Any) -> None:
    store = Store()
    state: dict[str, Any] = {}
    versions = []

    def follow(change: Any) -> None:
        versions.append(change.rv)
        name = change.stored.obj["metadata"]["name"]
        if change.new is None:
            del state[name]
        else:
            state[name] = change.new["data"]["v"]

    store.subscribe(follow)
    final = list(play(store, script).values())[-1]
    assert state == final
    assert versions == sorted(set(versions))


def test_with_a_seed_names_and_uids_follow_from_what_objects_are_called_and_not_from_which_came_first() -> None:
    def made(seed: int | None, *bases: str) -> set[tuple[str, str]]:
        store = Store(seed=seed)
        objects = [store.create(CONFIGMAPS, {"metadata": {"generateName": base}}, "default") for base in bases]
        return {(obj["metadata"]["name"], obj["metadata"]["uid"]) for obj in objects}

    first = made(7, "a-", "b-", "a-")
    assert len(first) == len({uid for _, uid in first}) == 3
    assert made(7, "a-", "a-", "b-") == first
    assert not made(8, "a-", "b-", "a-") & first
    assert not made(None, "a-") & made(None, "a-")


def test_a_bounded_history_forgets() -> None:
    store = Store(history=2)
    play(store, [("create", name, 0) for name in "abcd"])
    assert store.shelf(CONFIGMAPS).at(2) is None
    assert len(store.shelf(CONFIGMAPS).at(store.resource_version) or ()) == 4


def test_changes_made_by_subscribers_are_delivered_afterwards() -> None:
    store = Store()
    order: list[tuple[str, str]] = []

    def eager(change: Any) -> None:
        if change.stored.obj["metadata"]["name"] == "a":
            store.create(CONFIGMAPS, {"metadata": {"name": "b"}}, "default")

    store.subscribe(eager)
    store.subscribe(lambda change: order.append((change.type, change.stored.obj["metadata"]["name"])))
    store.create(CONFIGMAPS, {"metadata": {"name": "a"}}, "default")
    assert order == [("ADDED", "a"), ("ADDED", "b")]


def test_callers_keep_their_objects() -> None:
    cluster = Cluster()
    given_pod: dict[str, Any] = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    before = clone(given_pod)
    cluster.store.create(PODS, given_pod, "default")
    assert given_pod == before


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": "x"},
        {"containers": ["x"]},
        {"containers": [{"name": 1, "image": "x"}]},
        "x",
        {"tolerations": 5},
    ],
)
def test_wrong_types_are_refused(spec: Any) -> None:
    with pytest.raises(ApiError) as caught:
        Cluster().store.create(PODS, {"metadata": {"name": "a"}, "spec": spec}, "default")
    assert caught.value.code in (400, 422)


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


@given(labels, st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), min_size=1, max_size=2))
def test_operators_are_complements(found: Any, key: str, chosen: list[str]) -> None:
    within, without = (
        label_test(f"{key} in ({','.join(chosen)})"),
        label_test(f"{key} notin ({','.join(chosen)})"),
    )
    assert within is not None
    assert without is not None
    assert within(found) != without(found)
    expression = {"key": key, "operator": "In", "values": chosen}
    assert label_selector_test({"matchExpressions": [expression]})(found) == within(found)


def test_a_restored_server_has_the_same_objects_at_lower_versions_and_no_history():
    store = Cluster().store
    for number in range(5):
        store.create(CONFIGMAPS, {"metadata": {"name": f"c{number}"}, "data": {"v": "1"}}, "default")
        store.delete(CONFIGMAPS, "default", f"c{number}") if number % 2 else None
    uids = [obj["metadata"]["uid"] for obj in store.list(CONFIGMAPS, "default")]
    before = store.resource_version
    store.restore()
    found = store.list(CONFIGMAPS, "default")
    assert [obj["metadata"]["uid"] for obj in found] == uids
    assert store.resource_version < before
    assert all(int(obj["metadata"]["resourceVersion"]) <= store.resource_version for obj in found)
    shelf = store.shelf(CONFIGMAPS)
    assert not list(shelf.changes_after(0))
    assert shelf.compacted == store.resource_version
    changed = store.update(CONFIGMAPS, {**clone(found[0]), "data": {"v": "2"}})
    assert int(changed["metadata"]["resourceVersion"]) == store.resource_version
    assert store.get(CONFIGMAPS, "default", found[0]["metadata"]["name"])["data"] == {"v": "2"}
