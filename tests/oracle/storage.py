"""Random storage: classes, claims in every state, volumes that reach some nodes only, limits of drivers."""

from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import Disk, Expression, NodeTerm

some = st.sampled_from

CSI = "csi.example.com"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
CLAIMS = ("bound", "zoned", "shared", "local1", "local2", "made1", "made2", "one", "odd", "missing")
DISKS = (
    Disk("gcePersistentDisk", "d", True),
    Disk("gcePersistentDisk", "d"),
    Disk("awsElasticBlockStore", "d", True),
    Disk("iscsi", "d"),
)


def on_hosts(*names: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Expression(HOST, "In", names),)),)


def claim(name: str, **more) -> e.ClaimObserved:
    more.setdefault("modes", ("ReadWriteOnce",))
    more.setdefault("request", 5)
    return e.ClaimObserved("default", name, f"uid-{name}", **more)


def bound(name: str, volume: str, **more) -> e.ClaimObserved:
    return claim(name, phase="Bound", volume=volume, bound=True, **more)


def volume(name: str, **more) -> e.VolumeObserved:
    more.setdefault("modes", ("ReadWriteOnce",))
    more.setdefault("capacity", 10)
    return e.VolumeObserved(name, f"uid-{name}", **more)


def taken(name: str, by: str, **more) -> e.VolumeObserved:
    return volume(name, phase="Bound", claim=f"default/{by}", claim_uid=f"uid-{by}", **more)


@st.composite
def stores(draw, names: list[str]) -> list[e.Event]:
    """All objects about storage. Claims are those of CLAIMS, in namespace `default`; `missing` is none of them."""
    topologies = draw(some([(), (NodeTerm((Expression(ZONE, "In", ("a",)),)),)]))
    facts: list[e.Event] = [
        e.StorageClassObserved("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        e.StorageClassObserved("made", CSI, "WaitForFirstConsumer", topologies),
        e.StorageClassObserved("now", CSI, "Immediate"),
    ]
    reach = st.lists(some(names), min_size=1, max_size=4, unique=True)
    facts += [taken("v-bound", "bound", affinity=draw(st.none() | reach.map(lambda r: on_hosts(*r))), driver=CSI, handle="h1")]
    facts += [taken("v-zoned", "zoned", zones={draw(some([ZONE, "failure-domain.beta.kubernetes.io/zone"])): draw(some(["a", "b", "a__b"]))})]
    facts += [taken("v-shared", "shared", driver=CSI, handle="h2"), taken("v-one", "one", modes=("ReadWriteOncePod",))]
    facts += [
        bound("bound", "v-bound"),
        bound("zoned", "v-zoned"),
        bound("shared", "v-shared"),
        bound("one", "v-one", modes=("ReadWriteOncePod",)),
        claim("local1", storage_class="local", request=draw(some([5, 20]))),
        claim("local2", storage_class="local", modes=draw(some([("ReadWriteOnce",), ("ReadWriteMany",)])), request=7),
        claim("made1", storage_class="made"),
        claim("made2", storage_class="made", request=6, selected_node=draw(some(["", "", *names]))),
        draw(odd_claim()),
    ]
    # At most one volume is reserved for a claim: of several, kube-scheduler takes whichever its cache lists first.
    reserved = draw(some([0, 1, 2, None, None, None]))
    for i in range(draw(st.integers(0, 3))):
        size, modes = draw(some([10, 10, 30])), draw(some([("ReadWriteOnce",), ("ReadWriteOnce", "ReadWriteMany")]))
        owner = "default/local1" if i == reserved else ""
        where = on_hosts(*draw(reach))
        facts.append(volume(f"v-local{i}", capacity=size, modes=modes, storage_class="local", claim=owner, affinity=where))
    for name in names:
        if draw(some([False, False, True])):
            facts.append(e.CsiNodeObserved(name, {CSI: draw(some([1, 2, 0]))}))
    return facts


@st.composite
def odd_claim(draw) -> e.ClaimObserved:
    """A claim that something is wrong with."""
    return draw(
        some(
            [
                claim("odd", storage_class="now"),
                claim("odd"),
                claim("odd", storage_class="unknown"),
                claim("odd", storage_class="made", volume="v-later"),
                claim("odd", storage_class="made", phase="Lost", volume="v-lost"),
                claim("odd", storage_class="made", deleting=1),
                bound("odd", "v-nowhere"),
            ]
        )
    )
