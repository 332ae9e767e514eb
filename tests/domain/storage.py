"""Words for tests about volumes: claims, volumes and classes with defaults."""

from domain.build import GIB

from restow.contracts import events as e
from restow.contracts.values import Expression, NodeTerm

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
LOCAL, WAITING, AT_ONCE = "local", "waiting", "at-once"
DRIVER = "csi.example.com"


def term(key: str, *values: str) -> NodeTerm:
    return NodeTerm(labels=(Expression(key, "In", values),))


def on(*nodes: str) -> tuple[NodeTerm, ...]:
    """The node affinity of a local volume."""
    return (term(HOST, *nodes),)


def storage_class(name: str, binding: str = "WaitForFirstConsumer", provisioner: str = DRIVER, **more) -> e.StorageClassObserved:
    return e.StorageClassObserved(name, provisioner, binding, **more)


CLASSES = (
    storage_class(LOCAL, provisioner="kubernetes.io/no-provisioner"),
    storage_class(WAITING),
    storage_class(AT_ONCE, "Immediate"),
)
"""Of volumes that are there, of volumes that are made where the pod goes, and of volumes that are made at once."""


def claim(name: str, storage: str = LOCAL, request: int = GIB, **more) -> e.ClaimObserved:
    """`volume` makes it a bound one."""
    if more.get("volume"):
        more.setdefault("bound", True)
        more.setdefault("phase", "Bound")
    more.setdefault("modes", ("ReadWriteOnce",))
    return e.ClaimObserved("default", name, more.pop("uid", f"uid-{name}"), storage_class=storage, request=request, **more)


def volume(name: str, storage: str = LOCAL, capacity: int = GIB, **more) -> e.VolumeObserved:
    """`claim` (a name) makes it that claim's."""
    if owner := more.pop("claim", ""):
        more |= {"claim": f"default/{owner}", "claim_uid": more.pop("claim_uid", f"uid-{owner}")}
        more.setdefault("phase", "Bound")
    more.setdefault("modes", ("ReadWriteOnce",))
    return e.VolumeObserved(name, f"uid-{name}", capacity=capacity, storage_class=storage, **more)
