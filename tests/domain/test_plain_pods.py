"""What plugins say at `podWaits` of one plain pod holds for all of its shape; any other pod is asked about itself."""

from types import SimpleNamespace

import pytest
from domain.build import NOW, configured, given, member, node, pod_group, run, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain import session_config as conf
from restow.domain.groups import TASK_ANNOTATION
from restow.domain.session.args import NoArgs
from restow.domain.session.plugins import PLUGINS


@pytest.fixture
def asked(monkeypatch):
    """The pods that a plugin was asked about."""
    pods: list[str] = []
    plugin = SimpleNamespace(Args=NoArgs, open=lambda session, args: session.extensions.veto("podWaits", lambda pod: pods.append(pod.pod)))
    monkeypatch.setitem(PLUGINS, "asked", plugin)
    return pods


def placed(group: e.PodGroupObserved, *pods: e.PodObserved) -> list[str]:
    plugins = [{"name": "asked"}, {"name": "gang"}, {"name": "predicates"}]
    told = configured("session", conf.read_conf({"actions": "allocate", "tiers": [{"plugins": plugins}]}))
    events = run(given(told, node("n"), shape("s"), group, *pods), session.decider, c.Schedule(NOW, 1_000))
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def annotated(name: str, **more: str) -> e.PodObserved:
    pod = member(name, "g")
    return e.PodObserved(**{field: getattr(pod, field) for field in pod.__struct_fields__} | {"annotations": {**pod.annotations, **more}})


def test_of_a_gang_whose_pods_say_only_where_they_belong_one_is_asked(asked):
    pods = annotated("a"), annotated("b", **{TASK_ANNOTATION: "worker"}), annotated("c")
    assert placed(pod_group("g", need=3), *pods) == ["a", "b", "c"]
    assert asked == ["a"]


def test_each_is_asked_whose_podgroup_has_annotations(asked):
    assert placed(pod_group("g", need=2, annotations={"x": "y"}), annotated("a"), annotated("b")) == ["a", "b"]
    assert asked == ["a", "b"]


def test_each_is_asked_that_says_something_itself(asked):
    assert placed(pod_group("g", need=3), annotated("a"), annotated("b", x="y"), annotated("c")) == ["a", "b", "c"]
    assert asked == ["a", "b"]
