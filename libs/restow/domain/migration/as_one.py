"""Whether a gang can be moved as one now, and to which nodes: asked by `MoveGang` and by plugins of a policy, hold first.

Who made the gang must start it again when all of it is gone; nobody knows that but who says so (`movable.starts_again`). All places are free beside
those that the gang has now.
"""

from collections.abc import Sequence

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.beside import is_beside
from restow.domain.disruption import Spare, not_admitted
from restow.domain.groups import Group, group_of
from restow.domain.migration.targets import Landings, stays
from restow.domain.movable import starts_again
from restow.domain.pod_controllers import GANG, MOVABLE
from restow.domain.session.jobs import Job
from restow.domain.state import ClusterState
from restow.domain.verdicts import NO_TARGET, stay
from restow.domain.whole_gangs import members as members_of
from restow.domain.whole_gangs import over_budget


def why_not(state: ClusterState, members: Sequence[PodUid]) -> str:
    """Why all of them stay, as a sentence: the first of them that may not go, or a budget; empty where they may go."""
    for uid in members:
        if why := _stays(state, uid):
            return f"pod {state.pods[uid].fact.name}: {why}"
    return over_budget(state, members)


def choose(landings: Landings, state: ClusterState, now: Millis, group: Group, members: Sequence[PodUid], to: Sequence[NodeName] | None = None) -> str:
    """A slot for each (`landings.spots`), on nodes `to` if they are said; or why there is none for one of them, and nobody has any."""
    whole = Job("/".join(group), "", 0, 0, now)
    whole.group, whole.need = group, len(members)
    refused = landings.choose_all(whole, members, _targets(state, members, to))
    if refused is None:
        return ""
    uid, why = refused
    return f"pod {state.pods[uid].fact.name}: {stay(why).sentence}"


def _targets(state: ClusterState, members: Sequence[PodUid], to: Sequence[NodeName] | None) -> Sequence[NodeName] | None:
    """None for all. What another scheduler places goes to no node that one of them leaves: a guard keeps that (`beside.meets_guard`)."""
    if not any(is_beside(state, state.pods[uid].fact.shape) for uid in members):
        return to
    left = {state.charges[uid].node for uid in members}
    return [name for name in (state.nodes if to is None else to) if name not in left]


def _stays(state: ClusterState, uid: PodUid) -> str:
    """Why the pod stays, and all others with it."""
    pod = state.pods[uid].fact
    if pod.owner is None:
        return "no controller would create it again"
    if why := stays(state, uid, as_gang=True) or not_admitted(state, uid):
        return stay(why).sentence
    if not starts_again(state, pod):
        return f'nobody says that its gang starts again when all of it is evicted; allowed: {MOVABLE}: "{GANG}" on the PodGroup, or on each of its pods'
    return ""


class Gangs:
    """Of one plugin's run, which moves pods hold first: gangs whose pods cannot go alone, and that start again."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state, self._now = state, now
        self._known: dict[Group, tuple[list[PodUid], str]] = {}
        self._nowhere: dict[tuple[Group, Sequence[NodeName] | None], str] = {}
        self._moved: dict[PodUid, Group] = {}

    def has(self, pod: PodUid) -> bool:
        """Whether it is of one that may go as one."""
        known = self._of(pod)
        return known is not None and not known[1]

    def why_not(self, pod: PodUid, alone: str) -> str:
        """Why it stays, though it might go with its gang; empty where it may. `alone`: why it cannot go alone, `Word: sentence`."""
        known = self._of(pod)
        if known is None:
            return alone
        return f"{alone}; and its gang cannot be moved as one: {known[1]}" if known[1] else ""

    def company(self, pod: PodUid) -> Sequence[PodUid]:
        return known[0] if (known := self._of(pod)) is not None and not known[1] else (pod,)

    def promise(self, landings: Landings, pod: PodUid, to: Sequence[NodeName] | None) -> str:
        """A slot for each; or why there is none, which is the answer to all of them."""
        group = group_of(self._state.pods[pod].fact)
        assert group is not None, "who is of none is not asked about"
        members, key = self.company(pod), (group, None if to is None else tuple(to))
        if key not in self._nowhere:
            why = choose(landings, self._state, self._now, group, members, to)
            if not why:
                self._moved.update(dict.fromkeys(members, group))
                return ""
            self._nowhere[key] = f"{NO_TARGET}: its gang is moved as one or not at all, and {why}"
        return self._nowhere[key]

    def moved(self, pod: PodUid) -> str:
        """The PodGroup with which it was promised a slot; empty where that was alone."""
        group = self._moved.get(pod)
        return "" if group is None else "/".join(group)

    def _of(self, pod: PodUid) -> tuple[list[PodUid], str] | None:
        """The members of its gang, and why they stay; None where it is of none that starts again."""
        state, fact = self._state, self._state.pods[pod].fact
        group = group_of(fact)
        if group is None or not starts_again(state, fact):
            return None
        if group not in self._known:
            pods, why = members_of(state, group)
            self._known[group] = pods, why or why_not(state, pods) or self._refused(pods)
        return self._known[group]

    def _refused(self, pods: Sequence[PodUid]) -> str:
        """Whether the last moves of one of them were refused, so that it has to wait."""
        spare = Spare.planning(self._state)
        return next((f"pod {self._state.pods[uid].fact.name}: {stay(why).sentence}" for uid in pods if (why := spare.remembered(uid))), "")
