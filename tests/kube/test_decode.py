"""Bytes of a page or of a line are read, or refused, never half of both."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.siblings import NAMES, manifest
from kube.streams import error, line, node, page

from restow.kube import decode as d


def test_a_null_list_is_empty():
    assert d.NODES.page(b'{"metadata":{"resourceVersion":"4"},"items":null}') == d.Page([], "4", "")


def test_the_continue_token_is_read():
    assert d.NODES.page(page(4, more="abc")).more == "abc"


def test_an_error_line_is_a_status():
    got = d.NODES.line(error(410, "Expired", "too old"))
    assert (got.type, got.status.code, got.status.reason) == ("ERROR", 410, "Expired")


@pytest.mark.parametrize("collection", d.COLLECTIONS, ids=lambda c: c.name)
def test_an_error_line_is_a_status_in_every_collection(collection):
    assert collection.line(error(410)).status.code == 410


def test_an_undecodable_object_says_which_one_it_was():
    got = d.PODS.line(line("ADDED", {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"}, "spec": 5}))
    assert got.object == d.Undecodable("Pod", "n", "p", "u", "Expected `object | null`, got `int` - at `$.spec`", "7")
    assert got.version == "7"


@pytest.mark.parametrize("meta", [None, 5, [], {"name": 5}])
def test_an_object_without_identity_is_undecodable_too(meta):
    got = d.PODS.object(json.dumps({"metadata": meta, "spec": 5}).encode())
    assert isinstance(got, d.Undecodable)


def nested(depth: int) -> bytes:
    deep = b'{"a":[' * depth + b'"x]}{"' + b"]}" * depth
    return b'{"metadata":{"name":"deep","uid":"u","resourceVersion":"9"},"spec":{"taints":[],"more":' + deep + b"}}"


@pytest.mark.parametrize("depth", [1, 48, 49, 50, 51, 5_000])
def test_an_object_that_is_nested_absurdly_is_read_and_hides_no_other(depth):
    body = b'{"metadata":{"resourceVersion":"9"},"items":[' + nested(depth) + b"," + json.dumps(node("b", 1)).encode() + b"]}"
    assert [item.metadata.name for item in d.NODES.page(body).items] == ["deep", "b"]
    assert d.NODES.line(b'{"type":"ADDED","object":' + nested(depth) + b"}").object.metadata.uid == "u"
    assert json.loads(d.pruned(body))["items"][1] == node("b", 1)


@given(st.recursive(st.none() | st.text(max_size=4), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=2), x)))
def test_pruning_changes_nothing_that_is_not_deep(value):
    assert d.pruned(json.dumps(value).encode()) == json.dumps(value).encode()


@given(st.sampled_from(NAMES), st.data())
def test_a_cut_or_flipped_page_is_refused_or_read_but_never_crashes(name, data):
    body = bytearray(b'{"metadata":{"resourceVersion":"4"},"items":[' + manifest(name) + b"]}")
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    else:
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        d.PODS.page(bytes(body))
    except d.DecodeError as refused:
        assert str(refused).startswith("not a page of pods: ")  # noqa: PT017


def test_keys_are_names_for_nodes_and_uids_for_the_rest():
    assert d.NODES.key(d.NODES.object(json.dumps(node("a", 1, "u")).encode())) == "a"
    assert d.PODS.key(d.PODS.object(json.dumps(node("a", 1, "u")).encode())) == "u"


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"{}"])
def test_an_error_body_that_is_no_status(body):
    got = d.status(body)
    assert got is None or got.code == 0
