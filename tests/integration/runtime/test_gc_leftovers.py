"""The collector's look at what is left in the API: one object that stays keeps no other, and what may not be listed is said."""

from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace

import msgspec
import pytest
from domain.build import NOW, configured, given
from structlog.testing import capture_logs

from restow.contracts import events as e
from restow.domain import config
from restow.domain.leftovers import GRACE
from restow.garbage_collector import leftovers as subject
from restow.kube.client import ApiStatus

HOURS = 7_200_000
"""Milliseconds since the log's last event: that clock does not count here."""
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Api:
    """Three canaries of another installation, which nobody needs after six GRACE, made `age` ms ago by its clock. `refusals`: by the name of what is not to be deleted; `unlisted`: paths; `ahead`: ms, of its clock."""

    def __init__(self, refusals=(), unlisted=(), ahead=0, age=7 * GRACE):
        self.refusals, self.unlisted, self.deleted, self.listed = dict(refusals), unlisted, [], []
        self.time = NOW + HOURS + ahead
        self.made = datetime.fromtimestamp((self.time - age) / 1000, UTC)

    async def peek(self, path):
        return 200, b"", format_datetime(datetime.fromtimestamp(self.time // 1000, UTC), usegmt=True)

    async def get(self, path, query=()):
        self.listed.append(path)
        if path in self.unlisted:
            raise ApiStatus(403, "Forbidden", f"cannot list {path}")
        pods = "/restow-holds/" in path
        meta = {"labels": {"restow.dev/log": "l", "restow.dev/canary": "c"}, "namespace": "restow-holds", "creationTimestamp": f"{self.made:%Y-%m-%dT%H:%M:%SZ}"}
        return msgspec.json.encode({"items": [{"metadata": {"name": name, "uid": name} | meta} for name in "abc"] if pods else []})

    async def delete(self, path, options):
        name = path[-1]
        if name in self.refusals:
            raise self.refusals[name]
        self.deleted.append(name)


async def look(api, beside=("default-scheduler",)):
    async def to_tail():
        pass

    state = given(configured("migration", config.MigrationConfig(beside=beside)), e.NamespaceObserved("restow-holds", {}), time=NOW)
    context = SimpleNamespace(client=api, state=state, clock=SimpleNamespace(now=lambda: NOW + HOURS), commander=SimpleNamespace(to_tail=to_tail))
    with capture_logs() as said:
        await subject.Leftovers(context).look()
    return said


@pytest.mark.parametrize("code", [403, 422, 500])
async def test_what_cannot_be_removed_is_said_and_the_others_go(code):
    api = Api({"a": ApiStatus(code, "Denied", "by somebody's webhook")})
    said = await look(api)
    assert api.deleted == ["b", "c"]
    assert [(one["name"], one["reason"]) for one in said if one["log_level"] == "warning"] == [("a", f"{code} Denied: by somebody's webhook")]


@pytest.mark.parametrize("code", [0, 429])
async def test_an_api_that_does_not_answer_is_asked_later(code):
    api = Api({"a": ApiStatus(code, "Timeout", "")})
    await look(api)
    assert api.deleted == []


async def test_what_may_not_be_listed_is_said_where_pods_move_beside_another_scheduler():
    said = await look(Api(unlisted=[CLASSES]))
    assert [one["reason"] for one in said if one["log_level"] == "warning"] == [f"403 Forbidden: cannot list {CLASSES}"]
    assert not [one for one in await look(Api(unlisted=[CLASSES]), beside=()) if one["log_level"] == "warning"]


async def test_a_namespace_that_is_not_there_is_not_asked_for():
    api = Api()
    await look(api)
    assert not any("restow-holds-ports" in path for path in api.listed)


@pytest.mark.parametrize("minutes", [-57, 0, 57])
@pytest.mark.parametrize(("age", "deleted"), [(6 * GRACE + 1_500, ["a", "b", "c"]), (6 * GRACE - 2_500, [])])
async def test_how_old_something_is_goes_by_the_clock_of_whoever_says_when_it_was_made(minutes, age, deleted):
    api = Api(ahead=minutes * 60_000, age=age)
    await look(api)
    assert api.deleted == deleted
