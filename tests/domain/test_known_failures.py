"""Failures that other systems' reservations are known for (issue 4), on objects as the API server has them.

Two more are in test_gc.py ("expires beyond 24 h", "ttl 0 with expires") and one in tests/integration ("status stale after a
partial write").
"""

import json
from typing import Any

from domain.build import NOW, given, node, run, then
from domain.test_allocations import settle

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import SessionConfig
from restow.domain.snapshot import dump, load
from restow.kube import decode as d
from restow.kube.describe import pod_fact
from restow.kube.reservations import reservation_fact

META = {"resourceVersion": "1", "creationTimestamp": "2023-11-14T22:13:20Z", "generation": 1}
OURS = SessionConfig().scheduler_names[0]


def container(image="web:1", cpu="1", port=None) -> dict[str, Any]:
    ports = {"ports": [{"containerPort": port, "hostPort": port}]} if port else {}
    return {"name": "web", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}} | ports


def template(labels=None, **more) -> dict[str, Any]:
    affinity = {"affinity": more.pop("affinity")} if "affinity" in more else {}
    return {"metadata": {"labels": labels or {}}, "spec": {"schedulerName": OURS, "containers": [container(**more)]} | affinity}


def facts(shapes, fact) -> list[e.Event]:
    return [*[e.ShapeDeclared(id, shape) for id, shape in shapes.items()], fact]


def reservation(name="r", namespace="default", uid="", api="volcano", **spec) -> list[e.Event]:
    body = {"metadata": META | {"name": name, "namespace": namespace, "uid": uid or f"{namespace}-{name}"}, "spec": spec}
    collection = d.VOLCANO_RESERVATIONS if api == "volcano" else d.KOORDINATOR_RESERVATIONS
    return facts(*reservation_fact(collection.object(json.dumps(body).encode()), api))


def pod(name: str, spec: dict[str, Any], namespace="default", labels=None, owner=None, node=None) -> list[e.Event]:
    meta = META | {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": labels or {}}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    body = {"metadata": meta, "spec": spec | ({"nodeName": node} if node else {}), "status": {"phase": "Running" if node else "Pending"}}
    shape, id, fact = pod_fact(d.PODS.object(json.dumps(body).encode()))
    return [e.ShapeDeclared(id, shape), fact]


def handed(events) -> dict[str, str]:
    return {event.pod: event.reservation for event in events if isinstance(event, e.HandedOver)}


APP = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
TASKS = [{"name": "web", "replicas": 1, "template": template()}]
WEB = {"app": "web"}


def test_same_name_in_two_namespaces():
    state = given(node("a"))
    settle(then(state, *reservation(namespace="shop", tasks=TASKS, owners=APP), *reservation(namespace="bank", tasks=TASKS, owners=APP)))
    spec = template()["spec"]
    got = handed(settle(then(state, *pod("p", spec, "bank", WEB), *pod("p", spec, "shop", WEB), *pod("p", spec, "else", WEB))))
    assert got == {"bank-p": "bank-r", "shop-p": "shop-r"}
    then(state, e.ReservationGone("shop-r"))
    assert state.phases["bank-r"].phase == "Succeeded", "one's end is not the other's"


def test_image_bump_on_the_owner():
    state = given(node("a"))
    settle(then(state, *reservation(tasks=TASKS, owners=APP)))
    assert handed(settle(then(state, *pod("p", template(image="web:2")["spec"], labels=WEB)))) == {"default-p": "default-r"}


def test_recreated_replica_set_pod_with_a_new_name():
    owners = [{"controller": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "namespace": "default"}}]
    state = given(node("a"))
    settle(then(state, *reservation(api="koordinator", namespace="", template=template(), owners=owners, allocateOnce=False)))
    spec = template()["spec"]
    settle(then(state, *pod("web-5d8f-aaaaa", spec, owner="web-5d8f")))
    then(state, e.PodChanged("default-web-5d8f-aaaaa", "a", "Running"), e.PodGone("default-web-5d8f-aaaaa"))
    assert list(handed(settle(then(state, *pod("web-5d8f-zzzzz", spec, owner="web-5d8f"))))) == ["default-web-5d8f-zzzzz"]


def test_restart_between_release_and_allocate():
    """There is no between: after whichever commit a process ends, the next one goes on from the log, and nobody else has got
    what was held."""
    state = given(node("a", cpu=1_000))
    settle(then(state, *reservation(tasks=TASKS, owners=APP)))
    then(state, *pod("stranger", template()["spec"]), *pod("owner", template()["spec"], labels=WEB))
    before = load(dump(state))
    events = run(before, session.decider, c.Schedule(NOW))
    assert handed(events) == {"default-owner": "default-r"}
    assert not [event for event in events if isinstance(event, e.HoldReleased)]
    for at in (state, before):
        again = load(dump(at))
        settle(again)
        assert list(again.placed) == ["default-owner"]
        assert int(again.table.free[0].min()) >= 0


def test_host_port_released_too_early():
    """Reserved ports are free for the owner alone, while it waits to be bound and after it has gone."""
    spec = template(port=7777)
    state = given(node("a"))
    settle(then(state, *reservation(api="koordinator", namespace="", template=spec, owners=APP, allocateOnce=False)))
    settle(then(state, *pod("owner", spec["spec"], labels=WEB), *pod("stranger", spec["spec"])))
    assert list(state.placed) == ["default-owner"]
    run(state, session.decider, c.RefuseBind(NOW, "default-owner", "a", "no"))
    settle(state)
    assert list(state.placed) == ["default-owner"], "the stranger has not slipped in"
    settle(then(state, e.PodChanged("default-owner", "a", "Running"), e.PodGone("default-owner")))
    assert not state.placed
    assert "default-stranger" in state.parked


def test_a_hold_without_affinity_that_must_still_block_others():
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": WEB}}
            ]
        }
    }
    state = given(node("a", labels={"kubernetes.io/hostname": "a"}))
    owners = [{"object": {"kind": "Pod", "name": "chosen", "namespace": "default"}}]
    settle(then(state, *reservation(api="koordinator", namespace="", template=template(WEB), owners=owners)))
    settle(then(state, *pod("shy", template(WEB, affinity=apart)["spec"], labels=WEB)))
    assert "default-shy" in state.parked, "it would run beside the pod that the hold is for"


def test_an_owner_of_another_size_does_not_use_up_a_hold_that_it_cannot_use():
    state = given(node("a", cpu=4_000))
    settle(then(state, *reservation(tasks=TASKS, owners=APP)))
    settle(then(state, *pod("big", template(cpu="8")["spec"], labels=WEB)))
    assert state.phases["default-r"].phase == "Available"
