"""What one session knows of groups that are to be near to each other: what is asked for them, and where their members are."""

from collections import defaultdict
from typing import NamedTuple

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.groups import Group, group_of, named
from restow.domain.network.reach import Reach, asked, reach, spokesman
from restow.domain.occupants import held_slot, stands_for
from restow.domain.records import FINAL, Migration
from restow.domain.slots import SlotKey
from restow.domain.state import OVER, ClusterState
from restow.domain.whole_gangs import moved_as_one


class _Moves(NamedTuple):
    """Moves that are under way, by the group of their pods."""

    of: dict[Group, list[Migration]]

    @staticmethod
    def under_way(state: ClusterState) -> "_Moves":
        found: dict[Group, list[Migration]] = defaultdict(list)
        for migration in state.migrations.values():
            if migration.group and migration.step not in FINAL:
                found[named(migration.group)].append(migration)
        return _Moves(found)


class Groups:
    """A member is where it runs, where its hold is, and where this session puts it. Rules may overlook a pod that is to leave, but this does not: while
    it runs, it says where its group is, and one that is moved stays near to it (RULES G-13). Of a group that is moved as one only the new places count."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._reach: dict[Group, Reach | None] = {}
        self._there: dict[Group, dict[PodUid | SlotKey, int]] = {}
        self._come: dict[Group, dict[PodUid, int]] = {}
        self._rows: dict[Group, list[int]] = {}
        self._moves: _Moves | None = None
        self._leaving: set[PodUid] = set()

    def of(self, pod: PodObserved) -> Group | None:
        """The group of a pod, or of the pod that a migration's hold is for, if anything is asked for it."""
        group = group_of(pod) if pod.annotations else self._of_hold(pod.pod) if self._state.migrations else None
        return group if group is not None and self._known(group, pod) is not None else None

    def reach(self, group: Group) -> Reach:
        """Of a group that `of` has named."""
        found = self._reach[group]
        assert found is not None, "something is asked for it"
        return found

    def _known(self, group: Group, pod: PodObserved) -> Reach | None:
        if group not in self._reach:
            topology = asked(self._state, group, spokesman(self._state, group) or pod)
            self._reach[group] = None if topology is None else reach(self._state, topology)
        return self._reach[group]

    def _of_hold(self, uid: PodUid) -> Group | None:
        record = self._state.reservations.get(uid.partition("/")[0])  # type: ignore[call-overload]
        migration = self._state.migrations.get(record.fact.migration) if record is not None and record.fact.migration else None
        # Who turns back goes to where it was, whoever has moved meanwhile.
        return named(migration.group) if migration is not None and migration.group and not migration.back else None

    # -- where its members are ---------------------------------------------------------------------------------------

    def rows(self, group: Group) -> list[int]:
        """Sorted, one for each member. Must not be changed."""
        known = self._rows.get(group)
        if known is None:
            there = self._there.get(group)
            if there is None:
                there = self._there[group] = self._of_state(group)
            known = self._rows[group] = sorted((there | self._come.get(group, {})).values())
        return known

    def others(self, group: Group, pod: PodUid, now: bool) -> list[int]:
        """The same without this one: where they are `now`, or as if whoever would move were where it goes alone. Sorted."""
        self.rows(group)
        found = dict(self._there[group])
        if not now:
            found.update({stands_for(twin): row for twin, row in self._come.get(group, {}).items()})
        return sorted(row for who, row in found.items() if who != pod)

    def _of_state(self, group: Group) -> dict[PodUid | SlotKey, int]:
        state, found = self._state, dict[PodUid | SlotKey, int]()
        if self._moves is None:
            self._moves = _Moves.under_way(state)
        moves, as_one = self._moves.of.get(group, ()), set[PodUid]()
        for migration in moves:
            if moved_as_one(state, migration):
                as_one.add(migration.move.pod)
            for name in state.slots.get(migration.reservation, ()):
                if (slot := held_slot(state, key := (migration.reservation, name))) is not None:
                    found[key] = state.table.rows[slot.node]
        for uid in state.groups.get(group, ()):
            charge, live = state.charges.get(uid), state.pods[uid].live
            if charge is not None and not live.deleting and live.phase not in OVER and uid not in as_one and uid not in self._leaving:
                found[uid] = state.table.rows[charge.node]
        return found

    def come(self, pod: PodObserved, row: int) -> None:
        group = self.of(pod)
        if group is not None:
            self._come.setdefault(group, {})[pod.pod] = row
            self._rows.pop(group, None)

    def go(self, pod: PodObserved) -> None:
        group = self.of(pod)
        if group is not None:
            self._come.get(group, {}).pop(pod.pod, None)
            self._rows.pop(group, None)

    def gave_up(self, key: SlotKey, sign: int) -> None:
        """A hold of a move does not count any more, or counts again."""
        for group, there in self._there.items():
            if sign < 0 and there.pop(key, None) is not None:
                self._rows.pop(group, None)
            elif sign > 0 and (slot := held_slot(self._state, key)) is not None and self._of_hold(PodUid("/".join(key))) == group:
                there[key] = self._state.table.rows[slot.node]
                self._rows.pop(group, None)

    def leave(self, pods: set[PodUid]) -> None:
        """These are to be moved as one: where they run does not count."""
        self._leaving |= pods
        self._there.clear()
        self._rows.clear()
