"""Who puts the end of a node's marks off, and who takes them away: what the API refuses of one node keeps no other, and is said."""

from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace

import msgspec
import pytest
from domain.build import NOW, node, then
from domain.saga import advance, hold, move, plan, world
from structlog.testing import capture_logs

from restow.contracts.times import millis, seconds
from restow.descheduler.effects import executors
from restow.descheduler.landings import Landings
from restow.descheduler.node_leases import NodeLeases
from restow.domain.autoscalers import CORDONED, ENDS, GRACE, LEASE, PROTECTED
from restow.domain.effects import MarkNode
from restow.garbage_collector.node_marks import MarksOfNobody
from restow.kube.client import ApiStatus

LOG = "log-1"


class Api:
    """Nodes with annotations. `refuses`: by name. `ahead`: milliseconds of its clock."""

    def __init__(self, **notes):
        self.notes, self.refuses, self.asked, self.ahead = notes, {}, [], 0

    async def peek(self, path):
        return 200, b"", format_datetime(datetime.fromtimestamp((NOW + self.ahead) // 1000, UTC), usegmt=True)

    async def get(self, path):
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if name in self.refuses:
            raise self.refuses[name]
        return msgspec.json.encode({"metadata": {"name": name, "uid": "n-" + name, "resourceVersion": "1", "annotations": self.notes[name]}, "spec": {}})

    async def patch(self, path, body):
        self.notes[path.rpartition("/")[2]].update(body["metadata"]["annotations"])


def context(state, api):
    return SimpleNamespace(client=api, state=state, clock=SimpleNamespace(now=lambda: NOW), leadership=SimpleNamespace(leading=True))


def marked(**marks):
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", target="c")), protect_targets=True)
    state.log = LOG
    advance(state)
    hold(state, "x-1", "x-2")
    then(state, *(node(name, cpu=8_000, uid="n-" + name, marks={PROTECTED: said}) for name, said in marks.items()))
    return state


@pytest.mark.parametrize("refused", [False, True])
async def test_the_descheduler_puts_off_the_end_of_each_mark_that_it_wants(refused):
    api = Api(b={PROTECTED: LOG, ENDS[PROTECTED]: seconds(NOW)}, c={PROTECTED: LOG})
    if refused:
        api.refuses["b"] = ApiStatus(403, "Forbidden", "no")
    with capture_logs() as said:
        await NodeLeases(context(marked(b=LOG, c=LOG, d=LOG), api)).round()
    later = seconds(NOW + LEASE)
    assert {name: notes.get(ENDS[PROTECTED]) for name, notes in api.notes.items()} == {"b": seconds(NOW) if refused else later, "c": later}
    assert api.asked == ["b", "c"], "nobody is on the way to d"
    assert [one["node"] for one in said if one["log_level"] == "warning"] == ["b"] * refused


@pytest.mark.parametrize("refused", [False, True])
async def test_the_collector_takes_away_what_has_ended_whichever_log_has_set_it(refused):
    over = {ENDS[PROTECTED]: seconds(NOW - GRACE)}
    api = Api(b={PROTECTED: "other", **over}, c={PROTECTED: LOG, **over}, d={PROTECTED: "other", ENDS[PROTECTED]: seconds(NOW)})
    if refused:
        api.refuses["b"] = ApiStatus(403, "Forbidden", "no")
    with capture_logs() as said:
        await MarksOfNobody(context(marked(b="other", c=LOG, d="other"), api)).look()
    assert {name: notes.get(PROTECTED) for name, notes in api.notes.items()} == {"b": "other" if refused else None, "c": None, "d": "other"}
    assert api.asked == ["b", "c", "d"], "those without a mark are not read"
    assert [one["node"] for one in said if one["log_level"] == "warning"] == ["b"] * refused
    assert CORDONED not in api.notes["b"]


@pytest.mark.parametrize("ahead", [3_600_000, -3_600_000])
async def test_ends_are_said_and_asked_by_the_clock_of_the_api(ahead):
    """With a collector's clock an hour ahead, what counts for another half hour was taken away; with one behind, what had ended stayed for that hour."""
    over, later = ({ENDS[PROTECTED]: seconds(NOW + ahead + more)} for more in (-GRACE - 2_000, LEASE // 2))
    api = Api(b={PROTECTED: "other", **over}, c={PROTECTED: "other", **later})
    api.ahead = ahead
    await MarksOfNobody(context(marked(b="other", c="other"), api)).look()
    assert {name: notes.get(PROTECTED) for name, notes in api.notes.items()} == {"b": None, "c": "other"}


@pytest.mark.parametrize("ahead", [3_600_000, -3_600_000])
async def test_an_end_is_put_off_by_the_clock_of_the_api(ahead):
    api = Api(b={PROTECTED: LOG, ENDS[PROTECTED]: seconds(NOW)})
    api.ahead = ahead
    await NodeLeases(context(marked(b=LOG), api)).round()
    assert abs(millis(api.notes["b"][ENDS[PROTECTED]]) - (NOW + ahead + LEASE)) <= 2_000


@pytest.mark.parametrize("ahead", [3_600_000, -3_600_000])
async def test_a_mark_ends_by_the_clock_of_the_api(ahead):
    """Set by a descheduler whose clock is an hour away from that of the collector that takes it away."""
    api, state = Api(b={}), marked(b="")
    api.ahead = ahead
    there = SimpleNamespace(**vars(context(state, api)), metrics=SimpleNamespace(gauges=lambda read: None), recorder=None)
    await executors(there, Landings(there))[MarkNode].execute(MarkNode("b", protect=True, plan=""), state)
    assert api.notes["b"][PROTECTED].split()[0] == LOG
    assert abs(millis(api.notes["b"][ENDS[PROTECTED]]) - (NOW + ahead + LEASE)) <= 2_000
