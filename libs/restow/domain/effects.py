"""What is owed to the world: intents in the log that facts have not answered yet, as values.

Every effect is safe to repeat and safe to be late (DESIGN 5). `kube/effects` and the services carry them out.
"""

import msgspec

from restow.contracts.ids import MigrationId, Millis, NodeName, PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceShare


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of all effects. Equal effects are the same effect: at most one attempt of each is under way."""


class Bind(Effect):
    """With what the pod was given, for the kubelet and others to read: devices, and CPUs of its own."""

    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()


class CreatePlaceholder(Effect):
    """Create the pod that occupies a slot's capacity for the scheduler whose pods the slot is for."""

    reservation: ReservationUid
    slot: SlotName


class DeletePlaceholder(Effect):
    """Of a slot that is not on its node any more."""

    pod: PodUid


class Land(Effect):
    """Hand a slot over to a pod that another scheduler binds: nominate the pod for the node, delete the placeholder, remove our gate, in this order."""

    pod: PodUid
    node: NodeName


class NominateAgain(Effect):
    """Of a pod that was handed a slot, and has no gate any more: its scheduler has failed to bind it, and has taken the nomination away."""

    pod: PodUid
    node: NodeName


class LetGo(Effect):
    """Remove our gate from a pod for which nothing is held: its scheduler places it like any other."""

    pod: PodUid


class ListOwners(Effect):
    """Have the API gate pods that the Reservation's owners match, for as long as it holds anything (`landing_gate.LEASE`); `until` 0: no more."""

    reservation: ReservationUid
    until: Millis


class OpenLanding(Effect):
    """Have the API gate what the controller of a migration's pod makes, for as long as it is needed (`landing_gate.LEASE`)."""

    migration: MigrationId
    controller: str


class CloseLanding(Effect):
    migration: MigrationId


class MarkNode(Effect):
    """Have a node say what we want of it: `protect` it from autoscalers, keep it free for the `plan` that empties it (empty: do not)."""

    node: NodeName
    protect: bool
    plan: str = ""


class BindClaim(Effect):
    """For an unbound claim (`namespace/name`) of a pod that is placed on `node`: reserve this PersistentVolume for it, or
    where `volume` is "" have one provisioned there."""

    claim: str
    volume: str
    node: NodeName


class EvictVictim(Effect):
    """Evict a pod in favour of another (`ClusterState.victims_of`), through the Eviction API."""

    pod: PodUid


class TellNominated(Effect):
    """Write the pod's `status.nominatedNodeName`."""

    pod: PodUid
    node: NodeName


class TellUnschedulable(Effect):
    """Write the pod's PodScheduled condition and an Event: why it waits, in one sentence, and whether more nodes may help (`reasons.condition_reason`)."""

    pod: PodUid
    message: str


class WriteReservationStatus(Effect):
    """`version` is the log sequence as of which the status is written: a later one is another effect."""

    reservation: ReservationUid
    version: int


class WritePodGroupStatus(Effect):
    """Phase, counts and conditions of a PodGroup; `version` as above."""

    namespace: str
    group: str
    version: int


class WriteQueueStatus(Effect):
    """Counts and use of a Queue; `version` as above."""

    queue: str
    version: int


class CreateHold(Effect):
    """Create the Reservation `restow-<migration>`; `back`: `restow-<migration>-back`, which holds its capacity at the source again."""

    migration: MigrationId
    back: bool = False


class Evict(Effect):
    migration: MigrationId


class AbortEviction(Effect):
    """Mark the victim so that a late eviction fails."""

    migration: MigrationId


class AskConsent(Effect):
    """Ask the workload whether its pod may go (`ClusterState.consents`)."""

    migration: MigrationId


class WithdrawRequest(Effect):
    """Take off the pod what asked its workload: the migration is over, and the pod is still there."""

    migration: MigrationId


class TellWorkload(Effect):
    """Tell the workload what has become of its move (`ClusterState.tellings`)."""

    migration: MigrationId


class CreateDemandSlot(Effect):
    """Create the Reservation `name` (`namespace/name`, the key in `ClusterState.demand_slots`) for a pod that waits."""

    name: str


class TellGroupMoves(Effect):
    """Write a PodGroup's `migrationInfo` and `migrationState`; `version` counts what has changed of them."""

    namespace: str
    group: str
    version: int


class TellBounced(Effect):
    """Tell people of a finding: pods of this lineage come back to this node."""

    lineage: str
    node: NodeName


class DeleteReservation(Effect):
    reservation: ReservationUid


class DropPrefix(Effect):
    """Truncate the log."""

    upto: int
