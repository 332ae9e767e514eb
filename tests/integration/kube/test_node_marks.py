"""What a node says of us: what others have set stays, and what is ours goes, alone. Against kubesim, with its scripted faults."""

import json

import pytest

from restow.domain.autoscalers import CORDONED, PROTECTED, PROTECTS
from restow.kube.effects import Done, Gone, Refused
from restow.kube.node_marks import NodeMarks
from restow.kube.retry import Backoff

CA, KARPENTER = PROTECTS
LOG = "l0g"


class Node:
    def __init__(self, api):
        self._api, self._marks = api, NodeMarks(api.client, Backoff(attempts=3, first=0.001, longest=0.002))

    async def there(self):
        return json.loads(await self._api.client.get("/api/v1/nodes/node-a"))

    async def notes(self):
        """Of all that are about us or autoscalers, and whether it is cordoned."""
        node = await self.there()
        notes = node["metadata"].get("annotations", {})
        return {k: v for k, v in notes.items() if k in (*PROTECTS, PROTECTED, CORDONED)}, bool(node["spec"].get("unschedulable"))

    async def has(self, *, cordoned=False, **notes):
        await self._api.client.patch("/api/v1/nodes/node-a", {"metadata": {"annotations": notes}, "spec": {"unschedulable": cordoned or None}})

    async def mark(self, *, protect=False, plan="", log=LOG, uid=""):
        uid = uid or (await self.there())["metadata"]["uid"]
        return await self._marks.mark("node-a", uid, log, protect=protect, plan=plan)


@pytest.fixture
async def node(api):
    await api.node("node-a")
    return Node(api)


async def test_what_is_set_is_named_and_taken_away_again(node):
    assert await node.mark(protect=True, plan="p") == Done()
    said = {CA: "true", KARPENTER: "true", PROTECTED: f"{LOG} {CA} {KARPENTER}", CORDONED: f"{LOG} p"}
    assert await node.notes() == (said, True)
    assert await node.mark(protect=True, plan="p") == Done()
    assert await node.notes() == (said, True)
    assert await node.mark(protect=True) == Done()
    assert await node.notes() == ({k: v for k, v in said.items() if k != CORDONED}, False)
    assert await node.mark() == Done()
    assert await node.notes() == ({}, False)


async def test_what_somebody_else_had_set_before_stays(node):
    await node.has(**{CA: "true", KARPENTER: "false"}, cordoned=True)
    await node.mark(protect=True, plan="p")
    assert await node.notes() == ({CA: "true", KARPENTER: "false", PROTECTED: LOG}, True)
    await node.mark()
    assert await node.notes() == ({CA: "true", KARPENTER: "false"}, True)


async def test_what_somebody_has_changed_since_is_his(node):
    await node.mark(protect=True, plan="p")
    await node.has(**{CA: "false"})
    await node.mark()
    assert await node.notes() == ({CA: "false"}, False)


async def test_marks_of_another_log_are_not_touched(node):
    await node.mark(protect=True, plan="p", log="other")
    before = await node.notes()
    for wanted in ({}, {"protect": True, "plan": "q"}):
        assert await node.mark(**wanted) == Done()
        assert await node.notes() == before


async def test_another_node_of_that_name_is_left_alone(node):
    assert await node.mark(protect=True, uid="another") == Gone()
    assert await node.notes() == ({}, False)


@pytest.mark.parametrize("fault", ["drop", "cut"])
async def test_a_lost_answer_is_asked_for_again(api, node, fault):
    api.faults.add(fault, verb="patch", resource="nodes")
    assert await node.mark(protect=True, plan="p") == Done()
    said = {CA: "true", KARPENTER: "true", PROTECTED: f"{LOG} {CA} {KARPENTER}", CORDONED: f"{LOG} p"}
    assert await node.notes() == (said, True)


async def test_a_node_that_changes_between_reading_and_writing_is_read_again(api, node):
    patch, times = api.client.patch, []

    async def overtaken(path, body, *more):
        if not times:
            times.append(1)
            await patch(path, {"metadata": {"annotations": {CA: "true"}}})
        return await patch(path, body, *more)

    api.client.patch = overtaken
    assert await node.mark(protect=True) == Done()
    await node.mark()
    assert await node.notes() == ({CA: "true"}, False), "it was not ours"


async def test_what_the_api_refuses_is_said(api, node):
    api.faults.add("status", verb="patch", resource="nodes", code=403, count=-1)
    assert isinstance(await node.mark(protect=True), Refused)
