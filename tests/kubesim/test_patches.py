"""The patch functions by themselves: worked examples and laws that hold for any input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.kubesim.errors import ApiError
from restow.kubesim.objects import clone
from restow.kubesim.patch import json_patch, merge_patch, strategic_merge

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3), max_leaves=12
)  # fmt: skip
objects = st.dictionaries(st.text("abc", max_size=2), values, max_size=4)


@given(objects, objects)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(objects, objects)
def test_patches_leave_their_inputs_alone(target: Any, patch: Any) -> None:
    before, given_patch = clone(target), clone(patch)
    merge_patch(target, patch)
    strategic_merge(target, patch)
    assert (target, patch) == (before, given_patch)


@given(objects)
def test_an_empty_patch_changes_nothing(target: Any) -> None:
    assert merge_patch(target, {}) == target
    assert strategic_merge(target, {}) == target
    assert json_patch(target, []) == target


@given(objects, objects)
def test_replacing_the_root_gives_the_value(target: Any, value: Any) -> None:
    assert json_patch(target, [{"op": "replace", "path": "", "value": value}]) == value


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_merging_containers_is_a_union_by_name(old: list[str], new: list[str]) -> None:
    target = {"spec": {"containers": [{"name": name, "image": "old"} for name in old]}}
    patch = {"spec": {"containers": [{"name": name, "image": "new"} for name in new]}}
    merged = strategic_merge(target, patch)["spec"].get("containers", [])
    assert [item["name"] for item in merged] == [*old, *(name for name in new if name not in old)]
    assert {item["name"] for item in merged if item["image"] == "new"} == set(new)


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/l/-", "value": 3}], {"l": [1, 2, 3], "m": {"a/b": 1}}),
        ([{"op": "add", "path": "/l/0", "value": 0}], {"l": [0, 1, 2], "m": {"a/b": 1}}),
        ([{"op": "remove", "path": "/m/a~1b"}], {"l": [1, 2], "m": {}}),
        ([{"op": "move", "from": "/l/0", "path": "/m/x"}], {"l": [2], "m": {"a/b": 1, "x": 1}}),
        ([{"op": "copy", "from": "/m", "path": "/n"}], {"l": [1, 2], "m": {"a/b": 1}, "n": {"a/b": 1}}),
    ],
)
def test_json_patch_operations(operations: Any, expected: Any) -> None:
    assert json_patch({"l": [1, 2], "m": {"a/b": 1}}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/l/9", "value": 1},
        {"op": "replace", "path": "/s/x", "value": 1},
        {"op": "replace", "path": "/none/x", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "test", "path": "/l/0", "value": True},
        {"op": "add", "path": "/s/x", "value": 1},
        {"op": "explode", "path": "/l"},
        {"op": "add", "path": "no-slash", "value": 1},
    ],
)
def test_json_patches_that_are_refused(operation: Any) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"l": [1, 2], "s": "text"}, [operation])
    assert caught.value.code in (400, 422)


def test_set_element_order_moves_elements() -> None:
    target = {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
    patch = {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "x"}],
    }
    merged = strategic_merge(target, patch)
    assert [item["name"] for item in merged["containers"]] == ["c", "a", "b"]


def test_service_ports_merge_by_port_and_container_ports_by_container_port() -> None:
    service = {"spec": {"ports": [{"port": 80, "name": "x"}]}}
    merged = strategic_merge(
        service, {"spec": {"ports": [{"port": 80, "name": "y"}, {"port": 81}]}}, kind="Service"
    )
    assert merged["spec"]["ports"] == [{"port": 80, "name": "y"}, {"port": 81}]
    pod = {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}}
    change = {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 2}]}]}}
    merged = strategic_merge(pod, change, kind="Pod")
    assert [port["containerPort"] for port in merged["spec"]["containers"][0]["ports"]] == [1, 2]


def test_tolerations_are_atomic() -> None:
    merged = strategic_merge({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]})
    assert merged == {"tolerations": [{"key": "b"}]}
