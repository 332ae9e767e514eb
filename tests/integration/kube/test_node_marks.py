"""What a node says of us: what others have set stays, and what is ours goes, alone. Against kubesim, with its scripted faults."""

import json

import pytest

from restow.contracts.times import millis, seconds
from restow.domain.autoscalers import CORDONED, DAY, ENDS, GRACE, LEASE, PROTECTED, PROTECTS
from restow.kube.effects import Done, Gone, Refused
from restow.kube.node_marks import NodeMarks
from restow.kube.retry import Backoff

CA, KARPENTER = PROTECTS
LOG = "l0g"
NOW = millis("2026-01-01T00:00:00Z")


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

    async def ends(self):
        """Until when each mark counts."""
        notes = (await self.there())["metadata"].get("annotations", {})
        return {mark: millis(notes[end]) for mark, end in ENDS.items() if end in notes}

    async def mark(self, *, protect=False, plan="", log=LOG, uid="", until=NOW + LEASE):
        uid = uid or (await self.there())["metadata"]["uid"]
        return await self._marks.mark("node-a", uid, log, protect=protect, plan=plan, until=until)

    async def renew(self, *marks, log=LOG, until):
        return await self._marks.renew("node-a", (await self.there())["metadata"]["uid"], log, marks, until)

    async def collect(self, now):
        return await self._marks.collect("node-a", (await self.there())["metadata"]["uid"], now)


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


async def test_a_mark_says_when_it_ends_and_whoever_wants_it_puts_that_off(node):
    await node.mark(protect=True, plan="p")
    assert await node.ends() == {PROTECTED: NOW + LEASE, CORDONED: NOW + LEASE}
    assert await node.renew(CORDONED, until=NOW + 2 * LEASE) == Done()
    assert await node.ends() == {PROTECTED: NOW + LEASE, CORDONED: NOW + 2 * LEASE}
    await node.renew(CORDONED, log="other", until=NOW + 3 * LEASE)
    assert await node.ends() == {PROTECTED: NOW + LEASE, CORDONED: NOW + 2 * LEASE}, "another log's"
    await node.mark()
    assert await node.ends() == {}


async def test_nothing_is_put_off_that_is_not_there(node):
    assert await node.renew(CORDONED, until=NOW) == Done()
    assert await node.ends() == {}


async def test_what_has_ended_is_taken_away_whichever_log_has_set_it(node):
    """The descheduler that did has lost its log, or is gone."""
    await node.has(**{CA: "true"})
    await node.mark(protect=True, plan="p")
    await node.renew(CORDONED, until=NOW + 2 * LEASE)
    before = await node.notes()
    assert await node.collect(NOW + LEASE + GRACE - 1) == ()
    assert await node.notes() == before
    assert await node.collect(NOW + LEASE + GRACE) == (f"{PROTECTED}: {LOG} {KARPENTER}",)
    assert await node.notes() == ({CA: "true", CORDONED: f"{LOG} p"}, True)
    assert await node.collect(NOW + 2 * LEASE + GRACE) == (f"{CORDONED}: {LOG} p",)
    assert await node.notes() == ({CA: "true"}, False)
    assert await node.ends() == {}
    assert await node.collect(NOW + DAY) == ()


async def test_a_cordon_without_a_mark_of_ours_is_never_taken_away(node):
    await node.has(cordoned=True)
    await node.mark(plan="p")
    await node.collect(NOW + DAY)
    assert await node.notes() == ({}, True)


async def test_a_mark_that_somebody_has_uncordoned_goes_alone(node):
    await node.mark(plan="p")
    await node.has()
    assert await node.collect(NOW + DAY)
    assert await node.notes() == ({}, False)


@pytest.mark.parametrize("end", [None, "never", seconds(NOW + DAY + 1_000)])
async def test_a_mark_without_an_end_that_can_be_is_given_one(node, end):
    """Release 0.2 named none; and nobody puts an end off for so long."""
    await node.mark(plan="p")
    await node.has(**{ENDS[CORDONED]: end}, cordoned=True)
    assert await node.collect(NOW) == ()
    assert await node.notes() == ({CORDONED: f"{LOG} p"}, True)
    assert await node.ends() == {CORDONED: NOW + DAY}
    assert await node.collect(NOW + DAY + GRACE - 1) == ()
    assert await node.collect(NOW + DAY + GRACE)
    assert await node.notes() == ({}, False)


@pytest.mark.parametrize("said", [" log plan", " "])
async def test_a_mark_that_nobody_of_ours_has_written_stays(node, said):
    await node.has(**{CORDONED: said, ENDS[CORDONED]: seconds(NOW)}, cordoned=True)
    assert await node.collect(NOW + DAY) == ()
    assert await node.notes() == ({CORDONED: said}, True)
