"""One look at a cluster: lists become a state; what cannot be listed or read is said."""

import json

import pytest

from restow.kube import decode as d
from restow.kube import list_once
from restow.kube.client import ApiStatus

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}}


def a_pod(i, **spec):
    meta = {"name": f"p{i}", "namespace": "shop", "uid": f"u{i}"}
    return {"metadata": meta, "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **spec}, "status": {"phase": "Running"}}


class Api:
    """Lists by collection, in pages of `size`; `fails` by collection, once each where it is a list."""

    def __init__(self, size=2, fails=None, **lists):
        self.lists, self.size, self.fails, self.asked = lists, size, fails or {}, []

    async def list_page(self, collection, query):
        name, asked = collection.name, dict(query)
        self.asked.append((name, asked.get("continue", "")))
        failing = self.fails.get(name)
        if isinstance(failing, list):
            failing = failing.pop(0) if failing and asked.get("continue") else None
        if failing is not None:
            raise failing
        items = self.lists.get(name.partition(".")[0], [])
        begin = int(asked.get("continue") or 0)
        end = begin + self.size
        meta = {"resourceVersion": "7", "continue": str(end) if end < len(items) else ""}
        return json.dumps({"metadata": meta, "items": items[begin:end]}).encode()


async def test_all_pages_become_one_state():
    api = Api(nodes=[NODE], pods=[a_pod(i) for i in range(5)], namespaces=[{"metadata": {"name": "shop"}}])
    seen = await list_once.look(api)
    assert sorted(seen.state.pods) == [f"u{i}" for i in range(5)]
    assert list(seen.state.on_node["n1"]) == [f"u{i}" for i in range(5)]
    assert list(seen.state.namespaces) == ["shop"]
    assert [at for name, at in api.asked if name == "pods"] == ["", "2", "4"]
    assert not seen.unread
    assert not seen.undecodable


async def test_what_helps_and_may_not_be_listed_is_said():
    forbidden = ApiStatus(403, "Forbidden", "poddisruptionbudgets is forbidden")
    absent = ApiStatus(404, "NotFound", "no such CRD")
    seen = await list_once.look(Api(nodes=[NODE], pods=[a_pod(1)], fails={d.BUDGETS.name: forbidden, d.NUMA.name: absent}))
    assert list(seen.unread) == [d.BUDGETS.name], "a CRD that is not installed is nothing to speak of"
    assert "forbidden" in seen.unread[d.BUDGETS.name]


@pytest.mark.parametrize("collection", list_once.NEEDED, ids=lambda c: c.name)
async def test_without_nodes_or_pods_there_is_nothing_to_look_at(collection):
    with pytest.raises(ApiStatus, match="403"):
        await list_once.look(Api(fails={collection.name: ApiStatus(403, "Forbidden", "no")}))


async def test_pages_that_have_become_too_old_are_listed_anew():
    gone = ApiStatus(410, "Expired", "too old")
    api = Api(nodes=[NODE], pods=[a_pod(i) for i in range(5)], fails={d.PODS.name: [gone]})
    assert len((await list_once.look(api)).state.pods) == 5
    always = Api(nodes=[NODE], pods=[a_pod(i) for i in range(5)], fails={d.PODS.name: [gone] * 9})
    with pytest.raises(ApiStatus, match="410"):
        await list_once.look(always)


async def test_an_object_that_cannot_be_read_is_left_out():
    bad = a_pod(2, containers="none")
    seen = await list_once.look(Api(nodes=[NODE], pods=[a_pod(1), bad]))
    assert list(seen.state.pods) == ["u1"]
    (said,) = seen.undecodable
    assert (said.kind, said.name) == ("Pod", "p2")


async def test_a_pod_whose_request_cannot_be_read_is_there_all_the_same():
    bad = a_pod(2, containers=[{"name": "c", "resources": {"requests": {"koordinator.sh/gpu": "150", "cpu": "2"}}}])
    seen = await list_once.look(Api(nodes=[NODE], pods=[a_pod(1), bad]))
    assert not seen.undecodable
    assert seen.state.shapes[seen.state.pods["u2"].fact.shape].requests["cpu"] == 2000


async def test_what_is_no_list_is_an_error_with_its_collection():
    class Html(Api):
        async def list_page(self, collection, query):
            return b"<html>"

    with pytest.raises(ApiStatus, match="not a page of nodes"):
        await list_once.look(Html())
