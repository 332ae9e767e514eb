"""What waits, kept across sessions by what it lacks: who could not be placed before costs a session nothing until there is
capacity for it, however many wait (RULES G-17).

Pods on their own that every rule treats alike are one *class*, in their order: where its first pod is refused, so are the
others, and nobody behind them waits for that to be found out again. Gangs are known by what they still need of each shape. A
class or a gang is hopeful where its shapes have capacity, each taken alone; whoever is hopeful is looked at closely. Everything
here can be made anew from the state (`state.memo`).
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.domain.config import SessionConfig
from restow.domain.groups import group_of, named
from restow.domain.session.fit_counts import Fits
from restow.domain.session.jobs import UNSCHEDULABLE, gang, has_groups
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState, Under

Class = tuple[Under, Hashable]
Name = Hashable
"""What makes one job: its group, or what pods on their own have in common that are one."""
WIDTH = 4
"""Gangs of so many shapes are compared in one step; of those with more each for itself."""


def alike(pod: PodObserved) -> Hashable:
    """All that any rule reads of a pod on its own. A StatefulSet's successor is known by its name, too."""
    owner = pod.owner
    return (
        pod.namespace,
        pod.shape,
        pod.pinned_node,
        "" if owner is None else owner.uid,
        pod.name if owner is not None and owner.kind == "StatefulSet" else "",
        tuple(sorted(pod.labels.items())),
        tuple(sorted(pod.annotations.items())),
        pod.claims,
    )


def _job_name(state: ClusterState, pod: PodObserved, under: Under, equivalence_class: Hashable) -> Name:
    """Pods of one controller that say the same are one job, as in Volcano they are one PodGroup."""
    if under[0] == "group":
        return under
    if pod.owner is None:
        return under, equivalence_class
    said = tuple(sorted(pod.annotations.items())) if pod.annotations else ()
    return pod.owner.uid, state.queue_of(pod), state.shapes[pod.shape].priority, said


def _start_together(config: SessionConfig) -> bool:
    """Whether a gang starts as a whole. It may have begun to wait when it did, and the configuration has changed since."""
    return any(plugin.name == "gang" and plugin.enabled.get("enableJobReady", True) for tier in config.tiers for plugin in tier)


class _Gangs:
    """`need` `(gangs,) int64`, and by position what is asked for: `slots` and `counts` `(gangs, WIDTH) int64`. Of a gang that is
    not known in this way `need` is zero: it is always hopeful."""

    def __init__(self) -> None:
        self.at: dict[Under, int] = {}
        self.shapes: dict[Under, dict[ShapeId, int]] = {}
        self._vacant: list[int] = []
        self.need = np.full(64, 1, np.int64)
        self.slots, self.counts = np.zeros((64, WIDTH), np.int64), np.zeros((64, WIDTH), np.int64)

    def set(self, under: Under, need: int, asked: list[tuple[int, int]]) -> None:
        at = self.at.get(under)
        if at is None:
            at = self.at[under] = self._vacant.pop() if self._vacant else len(self.at)
            if at >= len(self.need):
                self.need = np.concatenate([self.need, np.ones_like(self.need)])
                self.slots, self.counts = (np.concatenate([a, np.zeros_like(a)]) for a in (self.slots, self.counts))
        self.need[at] = need
        self.slots[at], self.counts[at] = 0, 0
        for i, (slot, count) in enumerate(asked):
            self.slots[at, i], self.counts[at, i] = slot, count

    def drop(self, under: Under) -> None:
        at = self.at.pop(under)
        self.need[at], self.counts[at] = 1, 0
        self._vacant.append(at)

    def hopeful(self, total: np.ndarray) -> list[Under]:
        fits = np.minimum(total[self.slots], self.counts).sum(axis=1) >= self.need
        return [under for under, at in self.at.items() if fits[at]] if fits.any() else []


class Backlog:
    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.fits = Fits(state)
        self._of: dict[PodUid, tuple[Under, Hashable, int]] = {}
        self.classes: dict[Under, dict[Hashable, list[tuple[int, PodUid]]]] = {}
        """By what they wait under: the pods of each class, by order. Of gangs only that they are there."""
        self._unders: dict[ShapeId, dict[Under, None]] = {}
        self._reasons: dict[Under, None] = {}
        self._able: set[Name] = set()
        self._named = -1
        self.jobs: dict[Name, dict[Class, None]] = {}
        """The classes that are one job."""
        self.stirred: dict[Name, None] = {}
        """Jobs whose turn may be another one than when `standing_jobs.Standing` looked last."""
        self._names: dict[Under, dict[Hashable, Name]] = {}
        """The job of each class."""
        self._owned: dict[str, dict[Name, None]] = {}
        """By the uid of a controller, the jobs of its pods that wait."""
        self._gangs = _Gangs()
        self._start_together = _start_together(state.session_config)
        self._members: dict[PodUid, Under] = {}
        self._touched: dict[Under, None] = {}
        self._parked = self._moved = -1

    @staticmethod
    def of(state: ClusterState, snapshot: NodeSnapshot | None = None) -> "Backlog":
        """As it is now, with what a session has charged."""
        kept = state.memo.find(Backlog)
        if kept is None or kept._state is not state or kept._lost():
            kept = state.memo.keep(Backlog(state))
        kept._refresh(snapshot)
        return kept

    # -- questions ---------------------------------------------------------------------------------------------------

    def hopeful(self) -> list[Under]:
        """Those that may fit, sorted."""
        return sorted(self._fitting())

    def _fitting(self) -> list[Under]:
        found = [*self._gangs.hopeful(self.fits.total), *self._reasons]
        counted = not self.fits.behind
        for shape in self.fits.fitting():
            for under in self._unders.get(shape, ()):
                if (counted and under[1].endswith("/")) or self._has_capacity(self._state, under):
                    found.append(under)
        return found

    def still(self, pod: PodUid, snapshot: NodeSnapshot) -> bool:
        """Whether there is capacity yet for what this pod waits with; True for one that does not wait. Cheap: it is asked for each
        that is hopeful."""
        filed = self._of.get(pod)
        if filed is None:
            return True
        self.fits.look(snapshot)
        return self.is_hopeful(filed[0])

    def may_fit(self, name: Name, snapshot: NodeSnapshot) -> bool:
        """The same of a job that waits in one class. What all of them have capacity for is worked out at once, and again after every count."""
        fits = self.fits
        fits.look(snapshot)
        if fits.counted != self._named:
            self._named = fits.counted
            self._able = {name for under in self._fitting() for name in self._names[under].values()}
        return name in self._able and (not fits.behind or self.is_hopeful(next(iter(self.jobs[name]))[0]))

    @property
    def able(self) -> set[Name] | None:
        """Jobs that there was capacity for when `may_fit` counted last; None where something was charged since."""
        return None if self.fits.behind else self._able

    def name_of(self, pod: PodUid) -> Name | None:
        """What its job is known by; None for a pod that does not wait."""
        filed = self._of.get(pod)
        return None if filed is None else self._names[filed[0]][filed[1]]

    def was_told(self, name: Name, reason: str, message: str) -> bool:
        """Whether all of a job wait for this."""
        state, lines = self._state, [self.line(a_class) for a_class in self.jobs[name]]
        told = (state.waiting[state.parked[line[0][1]][0]] for line in lines)
        return all((said.reason, said.message) == (reason, message) for said in told)

    def line(self, a_class: Class) -> list[tuple[int, PodUid]]:
        """The pods of a class, by order."""
        return self.classes[a_class[0]][a_class[1]]

    def mates(self, pod: PodUid) -> list[PodUid]:
        """Who waits in one class with it, itself included, by order: what is said of one is true of all. Empty for a gang's, and for one
        that does not wait yet."""
        filed = self._of.get(pod)
        if filed is None or filed[0][0] == "group":
            return []
        under, equivalence_class, _ = filed
        return [uid for _, uid in self.classes.get(under, {}).get(equivalence_class, ())]

    def is_hopeful(self, under: Under) -> bool:
        if under[0] == "group":
            asked = self._gangs.shapes.get(under)
            if asked is None:
                return False
            return sum(min(self.fits.of(shape), count) for shape, count in asked.items()) >= self._gangs.need[self._gangs.at[under]]
        return under[0] == "reason" or self._has_capacity(self._state, under)

    def _has_capacity(self, state: ClusterState, under: Under) -> bool:
        shape, _, pin = under[1].partition("/")
        if not self.fits.of(ShapeId(shape)):
            return False
        if not pin:
            return True
        row = state.table.rows.get(NodeName(pin))
        return row is not None and state.table.fits_row(row, state.vectors[ShapeId(shape)])

    def lines(self, under: Under) -> Iterator[list[tuple[int, PodUid]]]:
        """The classes that wait under this, each by order; of a gang the one pod that it is known by."""
        yield from self.classes.get(under, {}).values()

    # -- following the state -----------------------------------------------------------------------------------------

    def _lost(self) -> bool:
        state = self._state
        if self._parked < 0:
            return False
        forgotten = state.parkings.since(self._parked) is None or state.moved.since(self._moved) is None
        return forgotten or self.fits.stale()

    def _refresh(self, snapshot: NodeSnapshot | None) -> None:
        state = self._state
        if self._parked < 0:
            parked, moved = list(state.parked), list[PodUid | SlotKey]()
        else:
            parked = list(dict.fromkeys(state.parkings.since(self._parked) or ()))
            moved = list(dict.fromkeys(state.moved.since(self._moved) or ()))
        self._parked, self._moved = state.parkings.position, state.moved.position
        for uid in parked:
            self._file(uid)
        for who in moved:
            if isinstance(who, tuple):
                continue
            self._touched.update(dict.fromkeys(self._gangs_of(who)))
            pod = state.fact_of(who)
            if pod is not None and pod.owner is not None and pod.owner.uid in self._owned:
                self.stirred.update(self._owned[pod.owner.uid])
        for under in self._touched:
            self._weigh(under)
            self.stirred[under] = None
        self._touched.clear()
        self.fits.refresh(snapshot)

    def _gangs_of(self, uid: PodUid) -> Iterator[Under]:
        """The gangs that wait of which the pod is a member, or was."""
        pod = self._state.fact_of(uid)
        group = group_of(pod) if pod is not None and pod.annotations else None
        now = None if group is None else ("group", "/".join(group))
        was = self._members.pop(uid, None)
        if was is not None and was != now and was in self.classes:
            yield was
        if now is not None and now in self.classes:
            self._members[uid] = now
            yield now

    def _file(self, uid: PodUid) -> None:
        state = self._state
        parked, pod = state.parked.get(uid), state.fact_of(uid)
        now = None
        if parked is not None and pod is not None:
            under = parked[1]
            now = under, "" if under[0] == "group" else alike(pod), state.pods[uid].order
        was = self._of.get(uid)
        for filed in (was, now):
            if filed is not None and filed[0][0] == "group":
                self._touched[filed[0]] = None
        if was == now:
            return
        if was is not None:
            self._take_out(uid, *was)
        if now is not None:
            self._put_in(uid, *now)

    def _put_in(self, uid: PodUid, under: Under, equivalence_class: Hashable, order: int) -> None:
        self._of[uid] = under, equivalence_class, order
        classes = self.classes.get(under)
        if classes is None:
            classes = self.classes[under] = {}
            if under[0] == "shape":
                shape = ShapeId(under[1].partition("/")[0])
                self.fits.need(shape)
                self._unders.setdefault(shape, {})[under] = None
            elif under[0] == "reason":
                self._reasons[under] = None
        line = classes.get(equivalence_class)
        if line is None:
            line = classes[equivalence_class] = []
            self._join(uid, under, equivalence_class)
        self.stirred[self._names[under][equivalence_class]] = None
        if not line or line[-1][0] < order:
            line.append((order, uid))
        else:
            insort(line, (order, uid))

    def _take_out(self, uid: PodUid, under: Under, equivalence_class: Hashable, order: int) -> None:
        del self._of[uid]
        classes = self.classes[under]
        line = classes[equivalence_class]
        del line[bisect_left(line, (order, uid))]
        self.stirred[self._names[under][equivalence_class]] = None
        if not line:
            del classes[equivalence_class]
            self._part(under, equivalence_class)
        if not classes:
            del self.classes[under]
            if under[0] == "shape":
                shape = ShapeId(under[1].partition("/")[0])
                self.fits.release(shape)
                del self._unders[shape][under]
                if not self._unders[shape]:
                    del self._unders[shape]
            elif under[0] == "reason":
                del self._reasons[under]

    def _join(self, uid: PodUid, under: Under, equivalence_class: Hashable) -> None:
        """A class that is new is of this job."""
        pod = self._state.pods[uid].fact
        name = self._names.setdefault(under, {})[equivalence_class] = _job_name(self._state, pod, under, equivalence_class)
        self.jobs.setdefault(name, {})[under, equivalence_class] = None
        if under[0] != "group" and pod.owner is not None:
            self._owned.setdefault(pod.owner.uid, {})[name] = None

    def _part(self, under: Under, equivalence_class: Hashable) -> None:
        name = self._names[under].pop(equivalence_class)
        if not self._names[under]:
            del self._names[under]
        del self.jobs[name][under, equivalence_class]
        if self.jobs[name]:
            return
        del self.jobs[name]
        if isinstance(name, tuple) and len(name) == 4:
            del self._owned[name[0]][name]
            if not self._owned[name[0]]:
                del self._owned[name[0]]

    # -- gangs -------------------------------------------------------------------------------------------------------

    def _weigh(self, under: Under) -> None:
        """What a gang needs now."""
        gangs, fits = self._gangs, self.fits
        asked = need = None
        if under in self.classes:
            need, asked = self._needs(under)
        before = gangs.shapes.pop(under, {})
        if asked is not None:
            slots = [(fits.need(shape), count) for shape, count in asked.items()]
            gangs.shapes[under] = asked
            gangs.set(under, need if need is not None else 0, slots)
        elif under in gangs.at:
            gangs.drop(under)
        for shape in before:
            fits.release(shape)

    def _needs(self, under: Under) -> tuple[int, dict[ShapeId, int]]:
        """How many more pods at least, and how many wait, by shape. Zero where capacity is not what it waits for."""
        state = self._state
        group = named(under[1])
        if group not in state.pod_groups:
            return int(has_groups(state, group)), {}
        if any(state.waiting[state.parked[uid][0]].reason != UNSCHEDULABLE for uid in state.parked_under[under]):
            return 0, {}
        # Of one that goes later nothing is left by which it could be known.
        self._members.update(dict.fromkeys(state.groups.get(group, ()), under))
        job = gang(state, group)
        shapes: dict[ShapeId, int] = {}
        for uid in job.tasks:
            shape = state.pods[uid].fact.shape
            shapes[shape] = shapes.get(shape, 0) + 1
        if len(shapes) > WIDTH:
            return 0, {}
        return max(job.need - job.ready, 1) if self._start_together else 1, shapes
