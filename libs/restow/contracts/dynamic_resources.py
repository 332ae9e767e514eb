"""Values of dynamic resource allocation (`resource.k8s.io`): devices that drivers publish, and what claims ask for and have got.

Amounts are in thousandths, whatever is counted. Attributes are their text: `true`, `7`, `1.2.3`, a list as `[a, b]`; their names are as they are
published, a name without a domain being the driver's own.
"""

import msgspec

from restow.contracts.ids import Int, NodeName
from restow.contracts.values import NodeTerm, Toleration, Value


class CounterSet(Value):
    """Counters by name that devices of one pool share: what there is of each, or what one device uses of it."""

    name: str
    counters: dict[str, Int] = msgspec.field(default_factory=dict)


class DeviceTaint(Value):
    key: str
    effect: str
    value: str = ""


class PublishedDevice(Value):
    """A device of a ResourceSlice. `attributes` are those that not all devices of its slice have alike. `node` or `nodes` (terms, ORed) where each device says for
    itself where it is; `everywhere`: on all nodes. `shared`: several claims may have parts of it. `waits`: it is bound to a pod only when somebody else has made it ready."""

    name: str
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    capacity: dict[str, Int] = msgspec.field(default_factory=dict)
    consumes: tuple[CounterSet, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    node: NodeName = NodeName("")
    nodes: tuple[NodeTerm, ...] | None = None
    everywhere: bool = False
    shared: bool = False
    waits: bool = False


class SubRequest(Value):
    """Devices of a class. `selectors` are CEL, all of which a device must meet; `count` 0: all that do. `admin`: access for monitoring, which takes
    no device from anybody. `capacity` of shared devices. `tolerations` of taints of devices."""

    name: str = ""
    device_class: str = ""
    selectors: tuple[str, ...] = ()
    count: Int = 1
    admin: bool = False
    capacity: dict[str, Int] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class ClaimRequest(Value):
    """What a claim asks for: any one of these, the first the best. Mostly there is one, without a name."""

    name: str
    any_of: tuple[SubRequest, ...] = ()


class ClaimConstraint(Value):
    """An attribute that the devices of these requests (all, if none is named) have alike, or (`distinct`) each for itself."""

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False


class AllocatedDevice(Value):
    """A device that a claim has got, by driver, pool and name. `admin`: for monitoring. `share`: the id of its part, where it is shared."""

    request: str
    driver: str
    pool: str
    device: str
    admin: bool = False
    share: str = ""
