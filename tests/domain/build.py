"""Words for given-when-then: small facts with defaults, and the state that follows from them."""

from collections.abc import Iterable

from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.commands import Observe
from restow.contracts.values import (
    DeviceRequest,
    LabelSelector,
    ObjectRef,
    OwnerRef,
    OwnerRule,
    PodShape,
    ReservationSpec,
    ReservationTask,
)
from restow.domain import config
from restow.domain.decider import decide
from restow.domain.fold import fold
from restow.domain.records import hold_names
from restow.domain.state import ClusterState

GPU = "restow.dev/gpu-milli"
GIB = 1 << 30
NOW = 1_700_000_000_000


def node(name: str, cpu: int = 8_000, memory: int = 32 * GIB, gpus: int = 0, pods: int = 110, **more) -> e.NodeObserved:
    """A node with `cpu` in thousandths of a core and `memory` in bytes."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods} | ({GPU: gpus * 1000} if gpus else {})
    allocatable |= more.pop("allocatable", {})
    return e.NodeObserved(name, more.pop("uid", f"uid-{name}"), allocatable, devices=gpus, **more)


def shape(id: str, cpu: int = 1_000, memory: int = GIB, gpu: tuple[int, int] | None = None, **more) -> e.ShapeDeclared:
    """`gpu` is (count, thousandths of each)."""
    requests = {"cpu": cpu, "memory": memory, "pods": 1} | ({GPU: gpu[0] * gpu[1]} if gpu else {})
    requests |= more.pop("requests", {})
    devices = DeviceRequest(*gpu) if gpu else None
    more.setdefault("scheduler", "restow")
    more.setdefault("spec_digest", id)
    return e.ShapeDeclared(id, PodShape(requests, devices=devices, **more))


def replica_of(owner: str, kind: str = "ReplicaSet") -> OwnerRef:
    return OwnerRef(kind, owner, f"uid-{owner}", "batch/v1" if kind == "Job" else "apps/v1")


def job_of(name: str, evicted: str = "ignored", retries: int = 0, **more) -> e.WorkloadObserved:
    """A Job of the pods of `replica_of(name, "Job")`, and what it makes of one that is evicted."""
    return e.WorkloadObserved(f"uid-{name}", "Job", "default", name, evicted=evicted, retries=retries, **more)


def pod(name: str, shape: str = "s", node: str | None = None, **more) -> e.PodObserved:
    more.setdefault("namespace", "default")
    more.setdefault("created", NOW)
    if node is not None:
        more.setdefault("phase", "Running")
        more.setdefault("ready", True)
    return e.PodObserved(more.pop("uid", name), name=name, shape=shape, node=node, **more)


def changed(name: str, **more) -> e.PodChanged:
    return e.PodChanged(name, **more)


def reservation(
    name: str,
    *tasks: tuple[str, int, str],
    owners: tuple[OwnerRule, ...] = (OwnerRule(selector=LabelSelector({"app": "owner"})),),
    namespace: str = "default",
    generation: int = 1,
    migration: str = "",
    deleting: int = 0,
    created: int = NOW,
    node: str = "",
    back: bool = False,
    preferred: tuple[str, ...] = (),
    **spec,
) -> e.ReservationObserved:
    """`tasks` are (name, replicas, shape), each place used once. `name` is its uid, too; a migration's hold has the name that it must have,
    the target's or `back` at the source."""
    spec.setdefault("allocate_once", True)
    what = ReservationSpec(
        tuple(ReservationTask(t, n, s, node=node, preferred_nodes=preferred) for t, n, s in tasks), owners, **spec
    )
    return e.ReservationObserved(
        name, "volcano", namespace, hold_names(migration)[back] if migration else name, created, generation, deleting, migration, what
    )


def queue(name: str, weight: int = 1, **more) -> e.QueueObserved:
    """Amounts are dicts in canonical units: `capability`, `guarantee`, `deserved`."""
    return e.QueueObserved(name, f"uid-{name}", more.pop("created", NOW), weight, **more)


def pod_group(name: str, queue: str = "", need: int = 1, **more) -> e.PodGroupObserved:
    """In namespace default, admitted already where nothing else is said; its pods are those of `member`."""
    more.setdefault("phase", "Inqueue")
    more.setdefault("created", NOW)
    return e.PodGroupObserved(more.pop("namespace", "default"), name, f"uid-{name}", queue=queue, min_member=need, **more)


def member(name: str, group: str, shape: str = "s", node: str | None = None, **more) -> e.PodObserved:
    """A pod of a PodGroup."""
    annotations = {"scheduling.k8s.io/group-name": group} | more.pop("annotations", {})
    return pod(name, shape, node, annotations=annotations, **more)


def in_queue(name: str, queue: str, shape: str = "s", node: str | None = None, **more) -> e.PodObserved:
    """A pod on its own in a queue."""
    annotations = {"scheduling.volcano.sh/queue-name": queue} | more.pop("annotations", {})
    return pod(name, shape, node, annotations=annotations, **more)


def owner(**labels: str) -> OwnerRule:
    return OwnerRule(selector=LabelSelector(labels))


def controlled_by(kind: str, name: str) -> OwnerRule:
    return OwnerRule(controller=ObjectRef(kind, name=name))


def configured(family: str, conf: config.Config) -> e.Event:
    text = config.text_of(conf)
    return e.CONFIGURED[family](text, config.digest_of(text))




def given(*facts: e.Event | Iterable[e.Event], time: int = NOW) -> ClusterState:
    """The state after these events, one commit each."""
    return then(ClusterState(), *facts, time=time)


def then(state: ClusterState, *facts: e.Event | Iterable[e.Event], time: int = NOW) -> ClusterState:
    """The same state, further on."""
    for fact in facts:
        events = (fact,) if isinstance(fact, e.Event) else tuple(fact)
        if events:
            family = str(type(events[0]).__struct_config__.tag).partition(".")[0]
            fold(state, state.seq + 1, family, time, [Decision(Observe("test", "given"), events)])
    return state


def when(state: ClusterState, decider, command) -> list[e.Event]:
    """What the decider answers; the state stays as it was."""
    return list(decide(state, decider, command))


def run(state: ClusterState, decider, command) -> list[e.Event]:
    """Decide, and fold the answer."""
    events = when(state, decider, command)
    if events:
        then(state, events, time=getattr(command, "time", NOW))
    return events
