"""The collector's look at what is left in the API: one object that stays keeps no other, and what may not be listed is said."""

from types import SimpleNamespace

import msgspec
import pytest
from domain.build import NOW, configured, given
from structlog.testing import capture_logs

from restow.contracts import events as e
from restow.domain import config
from restow.garbage_collector import leftovers as subject
from restow.kube.client import ApiStatus

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Api:
    """Three canaries that nobody needs. `refusals`: by the name of what is not to be deleted; `unlisted`: paths."""

    def __init__(self, refusals=(), unlisted=()):
        self.refusals, self.unlisted, self.deleted, self.listed = dict(refusals), unlisted, [], []

    async def get(self, path, query=()):
        self.listed.append(path)
        if path in self.unlisted:
            raise ApiStatus(403, "Forbidden", f"cannot list {path}")
        pods = "/restow-holds/" in path
        meta = {"labels": {"restow.dev/log": "l", "restow.dev/canary": "c"}, "namespace": "restow-holds", "creationTimestamp": "1970-01-01T00:00:01Z"}
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
    context = SimpleNamespace(client=api, state=state, clock=SimpleNamespace(now=lambda: NOW), commander=SimpleNamespace(to_tail=to_tail))
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
