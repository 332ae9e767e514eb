"""Whatever JSON a Reservation is made of, nobody stumbles over it, and nothing that is malformed ever holds capacity.

Objects of both APIs and all forms go the way of a service's: bytes, wire form, facts, log, fold, review, session, status.
The judge of what is malformed is the CRDs' own schema, which no code under test reads.

`RESTOW_EXAMPLES=5000` draws that many lists of objects instead of a few hundred.
"""

import copy
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from deploy.structural import strict
from domain.build import NOW, configured, given, node, then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from restow.contracts import commands as c
from restow.contracts.codec import Decision, decode, encode
from restow.domain import config, session
from restow.domain import reservation as reservations
from restow.domain.decider import decide_all
from restow.domain.other_schedulers import other_scheduler
from restow.domain.records import ON_NODE, ReservationPhase
from restow.domain.snapshot import dump, load
from restow.domain.statuses.reservation_status import status
from restow.kube import decode as d
from restow.kube import reflector
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown

EXAMPLES = int(os.environ.get("RESTOW_EXAMPLES") or examples(200))
ROOT = Path(__file__).parents[2]
APIS = {"volcano": d.VOLCANO_RESERVATIONS, "koordinator": d.KOORDINATOR_RESERVATIONS}
POD = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"alibabacloud.com/gpu-card-model": "A|B"}},
    "spec": {
        "schedulerName": "volcano",
        "nodeName": "a",
        "priority": 5,
        "nodeSelector": {"zone": "z"},
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}}
                ]
            },
        },
        "topologySpreadConstraints": [
            {"maxSkew": 9, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {}}}
        ],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}},
                "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
            }
        ],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"}],
        "volumes": [{"name": "v", "configMap": {"name": "x"}}],
    },
}
"""Fits node `a`."""
SMALL = {"spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}
OWNERS = [
    {"object": {"kind": "Pod", "name": "p", "namespace": "default"}},
    {"controller": {"kind": "Job", "name": "j", "controller": True}, "labelSelector": {"matchLabels": {"app": "web"}}},
    {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
]
USE = {
    "owners": OWNERS,
    "ttl": "1h",
    "expires": "2099-01-01T00:00:00Z",
    "matchPolicy": "Owner",
    "allocatePolicy": "Restricted",
    "preAllocation": False,
    "unschedulable": False,
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
}
GANG = {
    "schedulerName": "volcano",
    "queue": "default",
    "minAvailable": 2,
    "tasks": [
        {"name": "one", "replicas": 2, "template": SMALL, "reservationNodeNames": ["a", "b"]},
        {"name": "two", "replicas": 1, "template": POD},
    ],
}
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("volcano", GANG | USE | {"allocateOnce": True}),
    ("volcano", {"template": POD, "queue": "default", "minAvailable": 1, "allocateOnce": False} | USE),
    ("koordinator", {"template": POD, "allocateOnce": False} | USE),
]
ANNOTATION = "scheduling.koordinator.sh/reservation-restricted-options"

DEEP = "@deep@"
"""Stands for brackets that are nested deeper than any reader would follow."""
ODD: list[Any] = [
    None, True, False, "", " ", "a", "\x00", "\ud800", "é" * 300, "9" * 400, -1, 0, 1, 1 << 31, 1 << 63, 1 << 64, 10**30, 0.5,
    1e308, -0.0, [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, {"key": 5}, "NaN", "1e400", "5Q", "-1", "10000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z", "-5s", "1000000h", DEEP, "In", "Exists", ["x"] * 100,
]  # fmt: skip
json_values = st.one_of(
    st.sampled_from(ODD),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
)
changes = st.tuples(st.integers(0, 10**6), st.sampled_from(["set", "set", "drop", "add", "copy"]), st.integers(0, 10**6), json_values)
whole = st.tuples(st.sampled_from(sorted(APIS)), json_values | st.dictionaries(st.sampled_from(sorted(GANG | USE)), json_values))


def changed(good: tuple[str, dict[str, Any]], spoils: list[tuple[int, str, int, Any]], annotation: Any) -> tuple[str, Any, Any]:
    """A good object with some places set to something else, left out, added, or copied from another place."""
    api, spec = good[0], copy.deepcopy(good[1])
    for where, how, other, value in spoils:
        places = list(_places(spec))
        if not places:
            break
        parent, key = places[where % len(places)]
        if how == "copy":
            from_parent, from_key = places[other % len(places)]
            parent[key] = copy.deepcopy(from_parent[from_key])
        elif how == "drop":
            del parent[key]
        elif how == "add" and isinstance(parent, dict):
            parent[f"x{other % 9}"] = copy.deepcopy(value)
        else:
            parent[key] = copy.deepcopy(value)
    return api, spec, annotation


def _places(value: Any):
    """(container, key) of everything inside."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)


objects = st.one_of(
    st.builds(changed, st.sampled_from(GOOD), st.lists(changes, min_size=1, max_size=3), st.none() | json_values),
    st.builds(lambda said, annotation: (*said, annotation), whole, st.none() | json_values),
)


def body(api: str, name: str, spec: Any, annotation: Any = None, generation: int = 1) -> bytes:
    """As the API server would send it."""
    meta: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "generation": generation, "resourceVersion": "1"}
    meta |= {"creationTimestamp": "2026-03-01T08:00:00Z"} | ({"namespace": "default"} if api == "volcano" else {})
    if annotation is not None:
        meta["annotations"] = {ANNOTATION: json.dumps(annotation) if not isinstance(annotation, str) else annotation}
    text = json.dumps({"metadata": meta, "spec": spec}).replace(f'"{DEEP}"', "[" * 3_000 + "]" * 3_000)
    return text.encode()


@cache
def schema(api: str) -> Draft7Validator:
    name = next(p for p in (ROOT / "deploy/crds").glob("reservations.*.yaml") if api in p.name)
    (version,) = yaml.safe_load(name.read_text())["spec"]["versions"]
    return Draft7Validator(strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def malformed(api: str, spec: Any) -> list[str]:
    """What an API server with our CRD would refuse: by schema, and by its CEL rules between fields. What it would prune, and
    `null` where that means absent, is no reason. Nor is a text that is too long, and a task without a name gets one."""
    pruned = _without_nulls(spec)
    for i, task in enumerate(pruned["tasks"] if isinstance(pruned, dict) and isinstance(pruned.get("tasks"), list) else ()):
        if isinstance(task, dict) and task.get("name") in (None, ""):
            task["name"] = f"default{i}"
    found = [e.message for e in schema(api).iter_errors(pruned) if e.validator not in ("additionalProperties", "maxLength")]
    if found or not isinstance(pruned, dict):
        return found
    tasks, said = pruned.get("tasks"), set(pruned)
    if api == "volcano" and ("tasks" in said) == ("template" in said):
        found.append("exactly one of tasks and template")
    if not pruned.get("owners"):
        found.append("owners")
    replicas = sum(task.get("replicas", 1) for task in tasks or [{}]) if api == "volcano" else 1
    if any(task.get("replicas", 1) < 1 for task in tasks or () if api == "volcano"):
        found.append("replicas")
    if api == "volcano" and pruned.get("minAvailable", 0) > replicas:
        found.append("minAvailable")
    if api == "volcano" and tasks and pruned.get("allocateOnce") is False:
        found.append("allocateOnce")
    templates = [task.get("template", {}) for task in tasks] if api == "volcano" and tasks else [pruned.get("template", {})]
    if any("spec" not in template for template in templates):
        found.append("template without spec")
    for owner in pruned.get("owners", ()):
        one, controller = owner.get("object"), owner.get("controller")
        if one is not None and not any(one.get(field) for field in ("kind", "name", "uid", "namespace")):
            found.append("object")
        if controller is not None and not any(controller.get(field) for field in ("kind", "name", "uid")):
            found.append("controller")
        for e in owner.get("labelSelector", {}).get("matchExpressions", ()):
            if (e["operator"] in ("In", "NotIn")) != bool(e.get("values")):
                found.append("values")
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def observe(state, api: str, raw: bytes) -> None:
    """What cluster_watcher makes of it, through the log's own encoding."""
    batch = Batch(StateKnown(state))
    batch.add(APIS[api], reflector.Upsert(APIS[api].object(raw)))
    written = encode([Decision(c.Observe("test", "given"), batch.events())])
    for decision in decode(written):
        then(state, decision.events)


def settle(state) -> None:
    """Review all, and hold what can be held."""
    for _ in range(10):
        busy = False
        for decider, command in ((reservations.decider, c.Review(NOW)), (session.decider, c.Schedule(NOW, 1_000))):
            for decision in decide_all(state, decider, [command]):
                busy = busy or bool(decision.events)
                then(state, decode(encode([decision]))[0].events)
        if not busy:
            return
    raise AssertionError("still busy after ten rounds")


def begin():
    """Capacity for about forty of the good ones."""
    answers = configured("session", config.SessionConfig(scheduler_names=("restow", "volcano")))
    return given(answers, node("a", cpu=64_000, labels={"zone": "z"}), node("b", cpu=64_000, labels={"zone": "z"}))


def holds(state, uid: str) -> bool:
    return any(slot.phase in ON_NODE for slot in state.slots.get(uid, {}).values()) or any(
        key[0] == uid for held in state.held_on.values() for key in held
    )


def check(state, uid: str, api: str, spec: Any) -> None:
    """Every Reservation that the log knows says what became of it, and why."""
    if uid not in state.reservations:
        assert not holds(state, uid)
        return
    record, phase = state.reservations[uid], state.phases[uid]
    if other_scheduler(state, record):
        assert not holds(state, uid)
        assert not phase.reason, "nobody looks at it"
        return
    wrong = malformed(api, spec)
    if wrong:
        assert not holds(state, uid), wrong
        assert phase.phase is ReservationPhase.FAILED, wrong
    if phase.phase is ReservationPhase.FAILED and not record.expired:
        assert not holds(state, uid)
        assert phase.reason == "InvalidSpec"
        assert "; allowed" in phase.message, phase.message
    elif phase.phase is ReservationPhase.PENDING:
        assert phase.reason, phase
        assert phase.message
    assert len(record.fact.unknown) <= 16
    json.dumps(status(state, uid)).encode()


def test_the_good_ones_are_held():
    state = begin()
    for i, (api, spec) in enumerate(GOOD):
        assert malformed(api, spec) == []
        bare = {key: value for key, value in spec.items() if key != "tasks"} | ({"tasks": spec["tasks"][:1]} if "tasks" in spec else {})
        if "template" in bare:
            bare["template"] = SMALL
        observe(state, api, body(api, f"r{i}", bare))
        settle(state)
        assert state.phases[f"uid-r{i}"].phase is ReservationPhase.AVAILABLE, state.phases[f"uid-r{i}"]


@settings(max_examples=EXAMPLES)
@for_all(st.lists(objects, min_size=1, max_size=8))
def test_whatever_a_reservation_says_nothing_raises_and_nothing_malformed_holds_capacity(said):
    state = begin()
    for i, (api, spec, annotation) in enumerate(said):
        observe(state, api, body(api, f"r{i}", spec, annotation))
    settle(state)
    for i, (api, spec, _) in enumerate(said):
        check(state, f"uid-r{i}", api, spec)
    list(reservations.decider.pending(state, None))
    # Whoever read them goes on. Its node is out of reach of whatever the others say of zones.
    then(state, node("new", cpu=10**12))
    urgent = {"spec": SMALL["spec"] | {"nodeName": "new", "priority": 2_000_000_000}}
    observe(state, "koordinator", body("koordinator", "good", {"template": urgent, "owners": OWNERS}))
    settle(state)
    assert state.phases["uid-good"].phase is ReservationPhase.AVAILABLE
    again = load(dump(state))
    assert again.phases == state.phases


@settings(max_examples=EXAMPLES // 2)
@for_all(st.sampled_from(GOOD), st.lists(st.tuples(changes, st.none() | json_values), min_size=1, max_size=4))
def test_an_update_to_whatever_never_leaves_capacity_held_for_what_is_malformed(good, updates):
    api, first = good
    state = begin()
    observe(state, api, body(api, "r", first))
    settle(state)
    for generation, (change, annotation) in enumerate(updates, 2):
        _, spec, annotation = changed(good, [change], annotation)
        observe(state, api, body(api, "r", spec, annotation, generation))
        settle(state)
        if malformed(api, spec) and "uid-r" in state.reservations:
            # What the API server would not have stored is refused, or is not even a fact; then the former one stays in force.
            record = state.reservations["uid-r"]
            assert not holds(state, "uid-r") or record.fact.generation < generation
    list(reservations.decider.pending(state, None))
    if "uid-r" in state.reservations:
        json.dumps(status(state, "uid-r")).encode()
