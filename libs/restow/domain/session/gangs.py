"""The job of a PodGroup as a session looks at it: all its pods that wait, in task order, but for those that capacity is being freed for; and how
pods that belong together are tried."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.groups import Group
from restow.domain.predicates import only, static_mask
from restow.domain.session.fitting import NOWHERE, EquivalenceClass, Fit
from restow.domain.session.framework import Within
from restow.domain.session.jobs import UNSCHEDULABLE, Job, gang, missing
from restow.domain.session.queues import share
from restow.domain.session.session import Session
from restow.domain.session.sums import totals
from restow.domain.state import is_sociable

T = TypeVar("T")
Counts = tuple[int, dict[str, int]]
"""How many nodes there are, and how many of them each rule removes."""


class Outcome(Enum):
    """What came of trying a pod: it has what it needs; it was passed over; it does not fit; it may fit once others have come (affinity, spread)."""

    FOUND = "found"
    PASSED = "passed"
    UNFIT = "unfit"
    AGAIN = "again"


def in_passes(
    pods: Iterable[T], attempt: Callable[[T], Outcome], done: Callable[[], bool] = lambda: False, suffice: Callable[[int], bool] = lambda left: True
) -> list[T]:
    """One after the other, until it is `done`, or those that are left would not `suffice` (so many are). Who may fit because others have come is tried
    again after a pass in which anybody has. Returns who is left to be tried, or to be tried again."""
    left, again, progress = deque(pods), list[T](), False
    while left and not done():
        pod = left.popleft()
        outcome = attempt(pod)
        if outcome is Outcome.FOUND:
            progress = True
        elif outcome is Outcome.AGAIN:
            again.append(pod)
        if (outcome is Outcome.UNFIT or outcome is Outcome.AGAIN) and not suffice(len(left) + len(again)):
            break
        if not left and progress:
            left, again, progress = deque(again), [], False
    return [*again, *left]


class Tried:
    """What came of pods that were tried together: who was placed; of those that fit nowhere the counts, but for who may come after others and did;
    those of the first one; by its word the first thing that is no node; whether a slot that a pod has left is on its way to somebody."""

    def __init__(self) -> None:
        self.placed: list[PodObserved] = []
        self.unfit: dict[PodUid, Counts] = {}
        self.first: PodObserved | None = None
        self.first_counts: Counts = 0, {}
        self.kept_back: dict[str, str] = {}
        self.follows = False


def place_together(
    session: Session,
    job: Job,
    pods: Iterable[PodObserved],
    find: Callable[[PodObserved], Fit | None],
    done: Callable[[], bool] = lambda: False,
    suffice: Callable[[int], bool] = lambda left: True,
    settle: Callable[[Job, PodObserved, Fit], None] | None = None,
) -> Tried:
    """Where they are found to fit beside each other, each counted for the job. Pods take the holds that they own (if the session hands any over);
    slots of Reservations are `settle`d otherwise. Whether that is kept is for the caller to say."""
    state, offers, tried = session.state, session.offers, Tried()
    hand_over = settle is None and session.handing_over and bool(offers)
    settle = settle or session.allocate

    def place(pod: PodObserved) -> Outcome:
        if not job.helps(pod):
            return Outcome.PASSED
        if not (hand_over and session.hand_over(job, pod)):
            if offers.awaited(pod):
                # Its slot is kept for it; wherever else it went, the slot would wait for nobody.
                tried.follows = True
                return Outcome.UNFIT
            if (why := session.gates.of_pod(job, pod)) is not None:
                tried.kept_back.setdefault(why.reason, why.message)
                return Outcome.UNFIT
            fit = find(pod)
            if fit is None:
                return unfit(pod)
            settle(job, pod, fit)
        session.count(job, pod)
        tried.placed.append(pod)
        return Outcome.FOUND

    def unfit(pod: PodObserved) -> Outcome:
        sociable = is_sociable(state.shapes[pod.shape])
        if sociable or tried.first is None:
            # Counted with the rest of the gang in place: that is what it does not fit beside.
            tried.unfit[pod.pod] = session.reasons(pod)
        if tried.first is None:
            tried.first, tried.first_counts = pod, tried.unfit[pod.pod]
        return Outcome.AGAIN if sociable else Outcome.UNFIT

    in_passes(pods, place, done, suffice)
    for pod in tried.placed:
        tried.unfit.pop(pod.pod, None)
    return tried


def is_complete(session: Session, job: Job) -> bool:
    """Whether the job may start with those that have their nodes; pods on their own always may."""
    return job.group is None or not session.extensions.refusal("jobReady", job)


def whole(session: Session, group: Group) -> Job:
    """The job of a group's pods, in task order, whether its PodGroup exists or not."""
    state = session.state
    if group not in state.pod_groups:
        return missing(state, group, session.now)
    job = gang(state, group)
    job.count(state, session.placements)
    job.tasks.sort(key=lambda uid: session.extensions.task_turn(state, uid))
    return job


def is_promised(session: Session, job: Job) -> bool:
    """Whether capacity is being freed for the gang, so that it starts in its nominations: other pods of it wait for that."""
    promised = {uid for uid in job.tasks if uid in session.state.nominations and uid not in session.ended}
    if not promised or not job.short():
        return False
    job.tasks = [uid for uid in job.tasks if uid not in promised]
    if job.tasks:
        session.withhold(job, UNSCHEDULABLE, f"capacity is being freed for {len(promised)} pods of the gang; the others follow them")
    return True


def orders(session: Session, job: Job, pods: Sequence[PodObserved], besides: int = 0) -> Iterator[Sequence[PodObserved]]:
    """In which orders a gang's pods, or a Reservation's slots, are tried until one of them makes it complete: as they are; then those first that the
    fewest nodes take, so that none of the others is on the only one of theirs; and where fewer than all would do, those that ask for least first, so that
    a large one keeps no others from their capacity which would be enough (RULES G-17). `besides`: so many have a node in prospect."""
    yield pods
    if job.group is None and job.hold is None:
        return
    state = session.state
    classes = {pod.pod: session.equivalence_class(pod, session.concerned(pod)) for pod in pods}
    if len(set(classes.values())) < 2:
        return
    whole = dict(enumerate(totals(state).allocatable))
    size = {pod.pod: share(dict(state.vectors[pod.shape].items), whole) for pod in pods}
    nodes = {equivalence_class: _nodes(session, pod) for equivalence_class, pod in {classes[pod.pod]: pod for pod in pods}.items()}
    scarcest = sorted(pods, key=lambda pod: (*nodes[classes[pod.pod]], -size[pod.pod]))
    if scarcest != [*pods]:
        yield scarcest
    if job.ready + besides + len(pods) > job.need:
        yield sorted(pods, key=lambda pod: size[pod.pod])


class Way(NamedTuple):
    """How a gang is tried: in this order, on these rows where one is meant for a pod, in this block."""

    pods: Sequence[PodObserved]
    rows: Mapping[PodUid, int]
    within: Within | None


def ways(session: Session, job: Job, pods: Sequence[PodObserved]) -> Iterator[Way]:
    """Block by block, where the gang is to be near to each other, else on all nodes."""
    chooser = session.extensions.blocks
    for within in chooser.choices(job, pods) if chooser is not None else (None,):
        yield from _ways(session, job, pods, within)


def _ways(session: Session, job: Job, pods: Sequence[PodObserved], within: Within | None) -> Iterator[Way]:
    """In which orders they are tried, each on its best node; and, where none of that does, on the rows where they fit beside each other: the best
    node for one may leave no node for another (RULES G-17)."""
    if within is None:
        tried: Iterable[Sequence[PodObserved]] = orders(session, job, pods)
    else:
        with session.attempt(within=within):
            tried = list(orders(session, job, pods))
    for order in tried:
        yield Way(order, NOWHERE, within)
    with session.attempt(within=within):
        # Never kept: who owns a hold takes it, and the others are searched nodes for.
        given = list(_take_holds(session, job, pods))
        have = {pod.pod for pod in given}
        rows = together(session, job, [pod for pod in pods if pod.pod not in have and not session.offers.awaited(pod)])
    if rows:
        yield Way([*given, *(pod for pod in pods if pod.pod in rows)], rows, within)


def _take_holds(session: Session, job: Job, pods: Sequence[PodObserved]) -> Iterator[PodObserved]:
    if job.hold is not None or not session.handing_over or not session.offers:
        return
    for pod in pods:
        if job.helps(pod) and session.hand_over(job, pod):
            session.count(job, pod)
            yield pod


STEPS, ALL_STEPS = 8_000, 20_000
"""How many nodes a search looks at for one gang, and all searches of a session. Half of what is left is for the next one, but never less than one
descent: gangs that cannot be packed leave something for those behind them, in every session."""
PODS, NODES = 128, 64
"""Of how many pods at most, and on how many nodes: of those that take each class the ones with most capacity left."""


def together(session: Session, job: Job, pods: Sequence[PodObserved]) -> dict[PodUid, int]:
    """Rows on which so many of these fit together as the job needs, by amounts, as far as a search finds them. Where all are alike each may go
    anywhere."""
    if job.need_by_task:
        pods = _least(session, job, pods)
    spare = job.ready + len(pods) - job.need
    if spare < 0 or len(pods) > PODS:
        return {}
    classes: dict[EquivalenceClass, list[PodObserved]] = {}
    for pod in pods:
        classes.setdefault(session.equivalence_class(pod, session.concerned(pod)), []).append(pod)
    if len(classes) < 2:
        return {}
    state = session.state
    whole = dict(enumerate(totals(state).allocatable))
    vectors = {equivalence_class: state.vectors[alike[0].shape] for equivalence_class, alike in classes.items()}
    largest = sorted(classes, key=lambda equivalence_class: -share(dict(vectors[equivalence_class].items), whole))
    many, fits = [len(classes[equivalence_class]) for equivalence_class in largest], [session.fitting(classes[equivalence_class][0]) for equivalence_class in largest]
    columns = sorted({column for v in vectors.values() for column, _ in v.items})
    rows = np.flatnonzero(np.logical_or.reduce(fits))
    free = np.maximum(state.table.free[rows][:, columns], 0)
    asked = [[dict(vectors[equivalence_class].items).get(column, 0) for column in columns] for equivalence_class in largest]
    able = [mask[rows] for mask in fits]
    if not _may_fit(free, asked, able, many, spare):
        return {}
    if len(rows) > NODES:
        part = np.array([max(whole[column] // PARTS, 1) for column in columns], np.int64)
        best = _some_of_each(np.lexsort((state.table.rank[rows], -(free // part).sum(axis=1))), able)
        rows, free, able = rows[best], free[best], [mask[best] for mask in able]
    most = min(STEPS, max((ALL_STEPS - session.searched) // 2, len(pods) * len(rows)))
    search = Bins(free.tolist(), asked, [mask.tolist() for mask in able], many, most)
    found = search.found if search.fits(spare) else []
    session.searched += search.steps
    return {classes[largest[equivalence_class]][i].pod: int(rows[at]) for equivalence_class, ats in enumerate(found) for i, at in enumerate(ats)}


def _least(session: Session, job: Job, pods: Sequence[PodObserved]) -> Sequence[PodObserved]:
    """Of a gang that needs so many of each task: as many as make it complete, those that ask for least."""
    vectors, whole = session.state.vectors, dict(enumerate(totals(session.state).allocatable))
    taken = list[PodObserved]()
    for pod in sorted(pods, key=lambda pod: share(dict(vectors[pod.shape].items), whole)):
        if job.short() and job.helps(pod):
            job.tell(pod)
            taken.append(pod)
    for pod in taken:
        job.tell(pod, -1)
    return taken


def _some_of_each(order: np.ndarray, able: list[np.ndarray]) -> np.ndarray:
    """`NODES` of these: the first of each class in turn, so that nodes which one class is bound to are not left out for others."""
    turn = np.full(len(order), len(order))
    for mask in able:
        turn = np.where(mask[order], np.minimum(turn, np.cumsum(mask[order])), turn)
    return order[np.sort(np.argsort(turn, kind="stable")[:NODES])]


def _may_fit(free: np.ndarray, asked: list[list[int]], able: list[np.ndarray], many: list[int], spare: int) -> bool:
    """Whether enough of each class would fit if there were no others, and all of them by the sums."""
    wanted = np.zeros(free.shape[1], np.int64)
    for amounts, mask, number in zip(asked, able, many, strict=True):
        column = [at for at, amount in enumerate(amounts) if amount]
        amount = np.array([amounts[at] for at in column], np.int64)
        if column and np.minimum((free[mask][:, column] // amount).min(axis=1), number).sum() < number - spare:
            return False
        wanted[column] += amount * number
    return bool(spare or (wanted <= free.sum(axis=0)).all())


class Bins:
    """How things of several classes fit into bins: `free` by bin and column, `asked` by class and column, `able` by class and bin, so `many` of each class.
    Depth first, each where it leaves least; of bins that are alike only one is tried. Pure arithmetic."""

    def __init__(self, free: list[list[int]], asked: list[list[int]], able: list[list[bool]], many: list[int], most: int) -> None:
        self._free, self._asked, self._many, self._most = free, asked, many, most
        self._items = [[(column, amount) for column, amount in enumerate(amounts) if amount] for amounts in asked]
        self._able = [[at for at, is_able in enumerate(bins) if is_able] for bins in able]
        self._alike = list(zip(*able, strict=True))
        self.found: list[list[int]] = [[] for _ in asked]
        """By class, the bins."""
        self.steps = 0

    def fits(self, spare: int) -> bool:
        """Whether all but at most so many fit, as far as the steps go."""
        return self._from(0, spare)

    def _from(self, equivalence_class: int, spare: int) -> bool:
        while equivalence_class < len(self._many) and len(self.found[equivalence_class]) == self._many[equivalence_class]:
            equivalence_class += 1
        if equivalence_class == len(self._many):
            return True
        asked, tried = self._asked[equivalence_class], set[Hashable]()
        for at in self._bins(equivalence_class):
            alike = (*self._free[at], self._alike[at])
            if alike in tried:
                continue
            tried.add(alike)
            self._free[at] = [free - amount for free, amount in zip(self._free[at], asked, strict=True)]
            self.found[equivalence_class].append(at)
            if self._from(equivalence_class, spare):
                return True
            self.found[equivalence_class].pop()
            self._free[at] = [free + amount for free, amount in zip(self._free[at], asked, strict=True)]
            if self.steps >= self._most:
                return False
        missing = self._many[equivalence_class] - len(self.found[equivalence_class])
        if missing > spare:
            return False
        many, self._many[equivalence_class] = self._many[equivalence_class], len(self.found[equivalence_class])
        found = self._from(equivalence_class + 1, spare - missing)
        self._many[equivalence_class] = many
        return found

    def _bins(self, equivalence_class: int) -> list[int]:
        asked, left = self._items[equivalence_class], list[tuple[int, int]]()
        self.steps += len(self._able[equivalence_class])
        for at in self._able[equivalence_class]:
            rest = 0
            free = self._free[at]
            for column, amount in asked:
                if free[column] < amount:
                    break
                rest += (free[column] - amount) * PARTS // amount
            else:
                left.append((rest, at))
        left.sort()
        return [at for _, at in left]


PARTS = 1_000
"""What is left of a resource is counted in parts of what is asked for."""


def _nodes(session: Session, pod: PodObserved) -> tuple[int, int]:
    """How many nodes it fits on now, and how many take it as far as they themselves go: that counts where capacity is to be made."""
    able = static_mask(session.state, pod.shape) & session.state.table.alive
    if pod.pinned_node:
        able = able & only(session.state, pod.pinned_node)
    return int(session.fitting(pod).sum()), int(able.sum())
