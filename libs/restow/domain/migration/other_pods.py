"""Whether a successor could still use the slot that is held for it, by rules about who else runs. Who is near it when the slot is held may be gone, or
be moved itself, before the pod is evicted; and a pod that another scheduler has placed knows of no hold: it may have taken its host port, or be one that neither
may run beside. Of a hold that nobody may take the pod would have nothing.

Asked last before an eviction is decided, for whichever of those who are on the way out have gone by then: what is held for them counts. Those are asked about,
too, whose pods have left and who have not come yet, where they need others (required pod affinity, spread): nobody is taken from them. Capacity and nodes' own rules are
no question here: a hold keeps its capacity, and `holds.lost` asks its node.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Self

from restow.contracts.ids import Millis, PodUid
from restow.domain.migration import holds
from restow.domain.migration.holds import Reason
from restow.domain.occupants import as_pod
from restow.domain.records import Migration, Step
from restow.domain.session.holds import overlooking
from restow.domain.session.registry import open_session
from restow.domain.session.session import Session
from restow.domain.state import ClusterState, is_sociable

COMPANY = "Company"


class OtherPods:
    """What one decision asks of a session, which is opened when that is first asked and serves all of its migrations."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state, self._now = state, now
        self._session: Session | None = None
        self._overlooked: dict[PodUid, ExitStack] = {}
        """Mostly the same ones for one migration and the next."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._overlook(self._session, ())
            self._session.close()

    def refuse(self, migration: Migration, going: Iterable[Migration] = ()) -> Reason | None:
        """Why the pod must not be evicted now: rules about other pods would keep a successor from its slot, its own or another one's.
        `going`: whose eviction is decided together with this."""
        state = self._state
        leaving = [migration, *_leaving(state), *going]
        asked = [migration, *_asked(state, leaving[1:])] if holds.placed(state, migration) else _asked(state, leaving)
        found = next((one for one in asked for gone in _worst(state, one, leaving) if not self._admits(one, gone)), None)
        if found is None:
            return None
        whose = "its successor" if found is migration else f"the successor in migration {found.id}"
        return COMPANY, f"rules about other pods would keep {whose} from the slot that is held on {found.move.target}"

    def keep_out(self, migration: Migration) -> bool:
        """Whether rules about other pods keep its successor from the slot that is held now."""
        return holds.placed(self._state, migration) and not self._admits(migration, [migration])

    def _admits(self, migration: Migration, gone: Iterable[Migration]) -> bool:
        state, uid = self._state, migration.reservation
        session = self._session = self._session or open_session(state, self._now, 1)
        self._overlook(session, [one.move.pod for one in gone])
        row, record = state.table.rows[migration.move.target], state.reservations[uid]
        slots = [(name, slot, as_pod(record, name, slot, slot.shape)) for name, slot in holds.slots_of(state, migration)]
        return any(session.admits(who, row, (uid, name), slot, False) is not None for name, slot, who in slots)

    def _overlook(self, session: Session, pods: Iterable[PodUid]) -> None:
        """These, and nobody else."""
        wanted = dict.fromkeys(pods)
        for pod in [pod for pod in self._overlooked if pod not in wanted]:
            self._overlooked.pop(pod).close()
        for pod in wanted:
            if pod not in self._overlooked:
                stack = self._overlooked[pod] = ExitStack()
                stack.enter_context(overlooking(session, pod))


def until(state: ClusterState, migration: Migration) -> Millis:
    """How long it may wait with its slot held: mostly for our own to land, each of which takes that long at most."""
    if migration.step is not Step.HELD or not _asked(state, [migration, *_leaving(state)]):
        return migration.deadline
    return max(migration.deadline, Millis(migration.since + state.migration_config.land_deadline))


def _leaving(state: ClusterState) -> list[Migration]:
    return [one for id in state.active if (one := state.migrations[id]).step in (Step.EVICTING, Step.EVICTED)]


def _asked(state: ClusterState, leaving: Iterable[Migration]) -> list[Migration]:
    """Those whose successors are still to come, and need others."""
    return [one for one in leaving if not one.successor and _depends(state, one)]


def _depends(state: ClusterState, migration: Migration) -> bool:
    """Whether it matters to its successor who else runs, beyond what a hold keeps away."""
    shape = state.shapes.get(migration.shape)
    if shape is None or not holds.placed(state, migration):
        return False
    return is_sociable(shape)


def _worst(state: ClusterState, migration: Migration, leaving: list[Migration]) -> Iterator[list[Migration]]:
    """Who may be gone when its successor comes: all of them, or, worse where pods are spread, those who leave other domains than its own."""
    yield leaving
    keys, nodes = [one.topology_key for one in state.shapes[migration.shape].spread if one.is_hard], state.nodes
    there = nodes[migration.move.target].labels
    near = [one for one in leaving if one is not migration and any(_labels(state, one).get(key) == there.get(key) for key in keys)]
    if near:
        yield [one for one in leaving if one not in near]


def _labels(state: ClusterState, migration: Migration) -> dict[str, str]:
    node = state.nodes.get(migration.move.source)
    return node.labels if node is not None else {}
