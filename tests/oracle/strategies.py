"""Small but nasty clusters, as lists of facts in the order in which a log would have them.

`worlds(features)` draws only from what the features name, so that a difference is quickly narrowed down. Everything that
has a name gets it from a permutation: an order dependence on names does not go unseen. First choices are the plainest, so
that examples shrink towards nothing special.
"""

from collections.abc import Collection

from domain.build import GIB, NOW, node, pod, shape
from hypothesis import strategies as st

from oracle import storage, terms
from oracle.filters import pick_devices
from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import Container, DeviceShare, HostPort, NumaZone, Taint, Toleration

FEATURES = (
    "node_state",
    "taints",
    "selectors",
    "pinned",
    "ports",
    "extended",
    "devices",
    "spread",
    "affinity",
    "volumes",
    "running",
    "terminating",
    "namespaces",
    "gangs",
    "best_effort",
)
OPTIONAL = ("numa", "queues", "preferences")  # not in FEATURES: drawn only where they are asked for

TAINTS = (
    Taint("team", "NoSchedule", "a"),
    Taint("team", "NoExecute", "b"),
    Taint("spot", "NoSchedule"),
    Taint("spot", "PreferNoSchedule"),
)
TOLERATIONS = (
    Toleration("team", "Exists"),
    Toleration("team", "Equal", "a", "NoSchedule"),
    Toleration("spot", "", "", "NoSchedule"),
    Toleration("", "Exists", "", "NoExecute"),
    Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoSchedule"),
    Toleration("node.kubernetes.io/unschedulable", "Exists"),
    Toleration("", "Exists"),
)
PORTS = (
    HostPort(80),
    HostPort(80, "UDP"),
    HostPort(80, "TCP", "10.0.0.1"),
    HostPort(80, "TCP", "10.0.0.2"),
    HostPort(443),
)
NIC = "example.com/nic"
LABELS = ("app", "tier")

some = st.sampled_from


def few(values, most: int = 2, none: int = 2):
    """Up to `most` different ones; `none` says how often none at all."""
    return some([0] * none + [*range(1, most + 1)]).flatmap(
        lambda n: st.lists(some(values), min_size=n, max_size=n, unique=True).map(tuple)
    )


@st.composite
def nodes(draw, names: list[str], on: Collection[str]) -> list[e.NodeObserved]:
    found = []
    spacious = draw(some([1, 4]))
    for name in names:
        labels = {"kubernetes.io/hostname": name}
        labels |= {"zone": z} if (z := draw(some(["a", "b", "a", "b", "c", ""]))) else {}
        labels |= {"rack": r} if (r := draw(some(["r1", "r2", "r3", "r1", "r2", ""]))) else {}
        if "selectors" in on:
            labels |= {"disk": d} if (d := draw(some(["", "ssd", "hdd"]))) else {}
            labels |= {"size": s} if (s := draw(some(["", "1", "5", "-3", "x"]))) else {}
        if "volumes" in on:
            labels |= draw(some([{}, {}, {"topology.kubernetes.io/zone": "a"}, {"topology.kubernetes.io/zone": "b"}]))
        more: dict = {"allocatable": {NIC: draw(some([0, 1, 2]))}} if "extended" in on else {}
        if "node_state" in on:
            more["ready"] = draw(some([True, True, True, True, False]))
            more["unschedulable"] = draw(some([False, False, False, False, True]))
        found.append(
            node(
                name,
                cpu=draw(st.integers(1, 8)) * 500 * spacious,
                memory=draw(st.integers(1, 8)) * GIB * spacious,
                gpus=draw(st.integers(0, 3)) if "devices" in on else 0,
                pods=draw(some([110, 110, 2, 4])),
                labels=labels,
                taints=draw(few(TAINTS)) if "taints" in on else (),
                **more,
            )
        )
    return found


@st.composite
def shapes(draw, ids: list[str], on: Collection[str], names: list[str]) -> list[e.ShapeDeclared]:
    found = []
    for id in ids:
        more: dict = {"priority": draw(some([0, 0, 5, 10]))}
        if "taints" in on or "node_state" in on:
            more["tolerations"] = draw(few(TOLERATIONS))
        if "selectors" in on:
            more["node_selector"] = draw(some([{}, {}, {}, {"zone": "a"}, {"disk": "ssd"}]))
            more["node_affinity"] = draw(terms.node_affinity(names))
        if "ports" in on:
            more["host_ports"] = draw(few(PORTS))
        if "extended" in on and (count := draw(some([0, 0, 1, 2]))):
            more["requests"] = {NIC: count}
        if "devices" in on:
            more["gpu"] = draw(some([None, None, (1, 1000), (1, 400), (1, 700), (2, 1000), (2, 500)]))
        if "spread" in on:
            more["spread"] = draw(terms.spreads)
        if "affinity" in on:
            more["pod_affinity"] = draw(st.one_of(st.just(()), terms.pod_terms))
            more["pod_anti_affinity"] = draw(st.one_of(st.just(()), terms.pod_terms, terms.pod_terms))
        if "preferences" in on:
            for key, liked in draw(terms.preferences()).items():
                more[key] = (*more.get(key, ()), *liked)
        if "volumes" in on:
            more["disks"] = draw(few(storage.DISKS, 1))
        least = 0 if "best_effort" in on else 1
        cpu, memory = draw(some([1, 2, least, 4])) * 300, draw(some([1, least, 2, 3])) * GIB
        if "numa" in on and draw(some([False, True])):
            more |= {"qos": "Guaranteed", "containers": draw(containers(cpu, memory))}
        found.append(shape(id, cpu, memory, **more))
    return found


@st.composite
def containers(draw, cpu: int, memory: int) -> tuple[Container, ...]:
    """The pod's requests in one container or in two, and what may have run before."""
    parts = draw(some([(3,), (1, 2), (2, 1)]))
    whole = [Container(f"c{n}", requests={"cpu": cpu * n // 3, "memory": memory * n // 3}) for n in parts]
    before = [Container("first", requests={"cpu": cpu, "memory": memory}, init=True)]
    return (*draw(some([[], [], before])), *whole)


@st.composite
def body(draw, on: Collection[str]) -> dict:
    """What differs between pods of one shape."""
    more: dict = {"labels": {k: v for k in LABELS if (v := draw(some(["a", "a", "b", ""])))}}
    if "namespaces" in on:
        more["namespace"] = draw(some(["default", "default", "team", "other"]))
    if "volumes" in on:
        more["claims"] = draw(few(storage.CLAIMS, none=1))
    return more


@st.composite
def running(draw, world: World, uids: list[str], on: Collection[str]) -> list[e.PodObserved]:
    """Pods that have a node already, where devices are only as many as there are. Capacity may be overallocated: facts may be."""
    found = []
    for uid in uids:
        kind, home = draw(some(list(world.shapes))), draw(some(list(world.nodes)))
        more = draw(body(on))
        devices: tuple[DeviceShare, ...] | None = ()
        if ask := world.shapes[kind].devices:
            devices = pick_devices(world.device_free(home), ask)
        if devices is None:
            continue
        if "terminating" in on:
            more["deleting"] = draw(some([0, 0, 0, NOW]))
            more["phase"] = draw(some(["Running", "Running", "Running", "Succeeded"]))
        fact = pod(uid, kind, home, devices=devices, **more)
        world.observe(fact)
        found.append(fact)
    return found


@st.composite
def waiting(draw, world: World, uids: list[str], on: Collection[str]) -> list[e.Event]:
    """Pods without a node; a gang's PodGroup comes just before its first member."""
    found: list[e.Event] = []
    gangs: dict[str, e.PodGroupObserved] = {}
    whole = [k for k, s in world.shapes.items() if s.requests.get("cpu") or s.requests.get("memory")]
    for i, uid in enumerate(uids):
        more = draw(body(on)) | {"created": NOW + i}
        kinds = list(world.shapes)
        if "gangs" in on and whole and (gang := draw(some(["", "", "g1", "g2"]))):
            kinds = whole
            if gang not in gangs:
                gangs[gang] = draw(pod_group(gang, NOW + i, more.get("namespace", "default"), on))
                found.append(gangs[gang])
            more["namespace"] = gangs[gang].namespace
            more["annotations"] = {"scheduling.k8s.io/group-name": gang, "volcano.sh/task-spec": draw(some(["x", "y"]))}
        if "pinned" in on:
            more["pinned_node"] = draw(some([""] * 9 + [*world.nodes, "gone"]))
        found.append(pod(uid, draw(some(kinds)), **more))
    return found


@st.composite
def pod_group(draw, name: str, created: int, namespace: str, on: Collection[str]) -> e.PodGroupObserved:
    return e.PodGroupObserved(
        namespace,
        name,
        f"uid-{name}",
        created,
        queue=draw(some(["", "narrow"])) if "queues" in on else "",
        min_member=draw(st.integers(1, 4)),
        min_task_member=draw(some([{}, {}, {"x": 1}, {"x": 1, "y": 1}, {"y": 2}])),
        priority_class=draw(some(["batch", "urgent"])),
        phase="Inqueue",
    )


@st.composite
def numa(draw, world: World) -> list[e.NumaObserved]:
    found = []
    for name, fact in world.nodes.items():
        policy = draw(some(["", "single-numa-node", "best-effort"]))
        if policy:
            halves = tuple(
                NumaZone(f"node-{i}", {r: fact.allocatable[r] // 2 for r in ("cpu", "memory")}) for i in range(2)
            )
            found.append(e.NumaObserved(name, policy, draw(some(["container", "pod"])), halves))
    return found


def permuted(prefix: str, count: int):
    return st.permutations(range(count)).map(lambda order: [f"{prefix}{i:02}" for i in order])


@st.composite
def worlds(draw, features: Collection[str] = FEATURES, most_pods: int = 20) -> list[e.Event]:
    """The facts of one cluster, about a few of the features: where everything is asked for at once, nothing fits and
    little is tried."""
    allowed = [feature for feature in (*FEATURES, *OPTIONAL) if feature in features]
    count = draw(st.integers(0, min(len(allowed), 5)))
    on = frozenset(draw(st.permutations(allowed))[:count])
    if "terminating" in on and "running" in allowed:
        on |= {"running"}
    names = draw(permuted("n", draw(st.integers(3, 8))))
    facts: list[e.Event] = list(draw(shapes(draw(permuted("s", draw(st.integers(1, 5)))), on, names)))
    facts += draw(nodes(names, on))
    facts += [e.NamespaceObserved("default", {"env": "prod"})]
    if "namespaces" in on:
        facts += [e.NamespaceObserved("team", {"env": "dev"}), e.NamespaceObserved("other")]
    if "gangs" in on:
        facts += [e.PriorityClassObserved("batch", 0), e.PriorityClassObserved("urgent", 7)]
    if "queues" in on:
        facts += [e.QueueObserved("default", "q1", NOW), e.QueueObserved("narrow", "q2", NOW, capability={"cpu": 1200})]
    if "volumes" in on:
        facts += draw(storage.stores(names))
    world = World.of(facts)
    if "numa" in on:
        facts += draw(numa(world))
    settled = draw(st.integers(0, 8)) if "running" in on else 0
    wanted = draw(st.integers(1, most_pods))
    uids = draw(permuted("p", settled + wanted))
    facts += draw(running(world, uids[:settled], on))
    facts += draw(waiting(world, uids[settled:], on))
    return facts
