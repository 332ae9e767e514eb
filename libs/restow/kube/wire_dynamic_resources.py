"""The slim wire form of dynamic resource allocation (`resource.k8s.io`): v1, v1beta2 and, where its form is another, v1beta1 (see `wire`).

The parameters that claims and classes have for drivers are not read.
"""

import msgspec

from restow.contracts.ids import Int
from restow.kube.wire import Meta, NodeSelector, Quantity, Taint, Toleration, Wire


class Attribute(Wire):
    """One of these is set. What a later version adds is none of them."""

    number: Int | None = msgspec.field(name="int", default=None)
    truth: bool | None = msgspec.field(name="bool", default=None)
    text: str | None = msgspec.field(name="string", default=None)
    version: str | None = None
    numbers: list[Int] | None = msgspec.field(name="ints", default=None)
    truths: list[bool] | None = msgspec.field(name="bools", default=None)
    texts: list[str] | None = msgspec.field(name="strings", default=None)
    versions: list[str] | None = None


class Amount(Wire):
    value: Quantity = 0


class Counters(Wire):
    """What there is (`name`), or what a device uses of it (`counterSet`)."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, Amount] | None = None


class DeviceBody(Wire):
    """What v1beta1 has under `basic`."""

    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Amount] | None = None
    consumes_counters: list[Counters] | None = None
    taints: list[Taint] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: list[str] | None = None


class Device(DeviceBody):
    name: str = ""
    basic: DeviceBody | None = None


class Pool(Wire):
    name: str = ""
    generation: Int = 0
    resource_slice_count: Int = 1


class SliceSpec(Wire):
    driver: str = ""
    pool: Pool = msgspec.field(default_factory=Pool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    shared_counters: list[Counters] | None = None


class ResourceSlice(Wire):
    metadata: Meta
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


class Cel(Wire):
    expression: str = ""


class Selector(Wire):
    cel: Cel | None = None


class CapacityRequests(Wire):
    requests: dict[str, Quantity] | None = None


class Request(Wire):
    """v1 has all but the name under `exactly`, where it asks for devices of one kind; v1beta1 has it here."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[Selector] | None = None
    allocation_mode: str = ""
    count: Int = 0
    admin_access: bool | None = None
    capacity: CapacityRequests | None = None
    tolerations: list[Toleration] | None = None
    exactly: "Request | None" = None
    first_available: list["Request"] | None = None


class Constraint(Wire):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimDevices(Wire):
    requests: list[Request] | None = None
    constraints: list[Constraint] | None = None


class ClaimSpec(Wire):
    devices: ClaimDevices = msgspec.field(default_factory=ClaimDevices)


class Result(Wire):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)


class Results(Wire):
    results: list[Result] | None = None


class Allocation(Wire):
    devices: Results | None = None


class Consumer(Wire):
    api_group: str = ""
    resource: str = ""
    uid: str = ""


class ClaimStatus(Wire):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class ResourceClaim(Wire):
    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus | None = None


class ClassSpec(Wire):
    selectors: list[Selector] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Wire):
    metadata: Meta
    spec: ClassSpec = msgspec.field(default_factory=ClassSpec)
