"""Effects beside another scheduler: occupy, nominate, swap. Each is safe to repeat and safe to be late; a lost answer is never taken for a failure.
Who waits for that behind a gate is the business of `gates.py`.

    occupy     makes a placeholder                           vacate     removes it
    guard      makes a virtual one, which is never bound
    land       nominates, has it heard, hands claims over, removes the placeholder, removes the gate: in this order no moment is unguarded
    land_free  the same for a pod that came without the gate: its scheduler looks at it meanwhile
    let_go     removes the gate                              touch      makes the scheduler read a nomination again
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from restow import machine
from restow.domain.beside import GATE as LANDING
from restow.domain.beside import SLOT
from restow.domain.other_schedulers import LOG, UNNAMED
from restow.kube import decode as d
from restow.kube import hold_classes, wire
from restow.kube.annotations import TOUCHED
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.effects import (
    POD,
    Bound,
    Done,
    Effects,
    Failed,
    Gone,
    PatchOutcome,
    PodRef,
    Refused,
    Taken,
    done,
)
from restow.kube.handover import Handover
from restow.kube.hearing import MOST, Hearing, Who, is_looked_at
from restow.kube.placeholder import IMAGE, Placeholder
from restow.kube.reservation_objects import Created, CreateOutcome, DeleteOutcome
from restow.kube.retry import Backoff, Sleep

SETTLED = 0.05
"""Seconds between a placeholder's end and the end of the gate. kube-scheduler hears of both by ways of its own: where it looked at the pod first, that did
not fit, and its nomination was gone (2 of about 220 on a busy machine without a pause, none of 100 with 20 ms)."""
LOOKS, QUIET = 200, 10
"""So many times at most, `SETTLED` apart, it is looked at a pod that its scheduler looks at, too. For so many in a row its nomination must have stayed: a look of
the scheduler's that began before would have taken it away by then (with one, 5 of 8 went to each other's nodes on a busy machine)."""
KEPT, SELDOM = 60.0, 0.5
"""Seconds for which the nomination of one of a gang is made again after the last gate of the gang, and between two looks at it at most. Where many of it land on one
node, one after the other, the first of them has waited for long by then."""
TOGETHER = 5.0
"""Seconds for which one of a gang keeps its gate for others of it that land, too."""
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
_UNGATED = {"schedulingGates": [{"$patch": "delete", "name": LANDING}]}
_OVER = ("Succeeded", "Failed")


class Unkept(msgspec.Struct, frozen=True):
    """It is let go, and nothing keeps a device for it: the API refuses that its placeholder's claim is handed over."""

    why: Refused


LandOutcome = Done | Unkept | Bound | Taken | Gone | Refused | Failed


class Beside(Effects):
    """Through one client. `image`: of the pods that prove what a scheduler has heard."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep, image: str = IMAGE) -> None:
        super().__init__(client, backoff, sleep)
        self._free: dict[str, asyncio.Lock] = {}
        """By scheduler: none waits for another's successors."""
        self._handover = Handover(client, backoff, sleep)
        self._hearing = Hearing(client, backoff, sleep, image)
        self._kept: dict[str, asyncio.Task[None]] = {}
        """By uid: pods of gangs whose nomination is made again."""
        self._since: dict[str, str] = {}
        """By uid: pods whose scheduler has not been heard of yet, with a version of the pod that had its nomination already."""
        self._ungated: dict[str, float] = {}
        """By gang: when (steady seconds) the last one of it lost its gate."""
        self._gangs: dict[str, list[int]] = {}
        """How many of a gang land now, and how many of them have only their gate left."""

    # -- placeholders ----------------------------------------------------------------------------------------------------

    async def occupy(self, manifest: Placeholder, priority: int, log: str) -> CreateOutcome:
        """A placeholder of that name for the same slot is success: the answer to an earlier attempt was lost. One that is on its way out is
        not, and `Failed`: another attempt may succeed. Its PriorityClass is made where there is none."""
        async def attempt() -> CreateOutcome:
            try:
                made = answered(POD, await hold_classes.create(self._client, manifest.metadata.namespace, manifest, priority, log))
                return Created(made.metadata.uid)
            except ApiStatus as status:
                if status.code == 409:
                    return await self._made_before(manifest)
                raise

        return await self._bounded(attempt)

    async def guard(self, manifest: Placeholder, priority: int, log: str, node: str, pod: PodRef) -> CreateOutcome:
        """Occupies with a virtual one: it holds the node, also one that is full now, from its nomination on, which is what the eviction waits for.

        Before that a gate is taken off `pod`, which is to be evicted, that it does not have. This changes nothing, but whoever may not do it to a pod like
        that could not let its successor go either, which would wait for ever."""
        outcome = await self.occupy(manifest, priority, log)
        if not isinstance(outcome, Created):
            return outcome
        allowed = await self.let_go(pod)
        if isinstance(allowed, Refused | Failed):
            return allowed
        guard = PodRef(manifest.metadata.namespace, manifest.metadata.name, outcome.uid)
        nominated = await self.patch_nominated_node(guard, node)
        if isinstance(nominated, Gone):
            return Failed(404, "Gone", f"{manifest.metadata.name} was deleted before it was nominated")
        return outcome if isinstance(nominated, Done) else nominated

    async def _made_before(self, manifest: Placeholder) -> CreateOutcome:
        meta = manifest.metadata
        there = answered(POD, await self._client.get(path_of(d.PODS, meta.namespace, meta.name)))
        labels, notes = there.metadata.labels or {}, there.metadata.annotations or {}
        if labels.get(LOG) != meta.labels[LOG] or notes.get(SLOT) != meta.annotations[SLOT]:
            return Refused(409, "AlreadyExists", f"{meta.name} exists, and is not the placeholder that is wanted")
        if there.metadata.deletion_timestamp is not None or (there.status and there.status.phase in _OVER):
            raise ApiStatus(0, "Ending", f"{meta.name} is still there, and ends")
        return Created(there.metadata.uid)

    async def vacate(self, placeholder: PodRef) -> DeleteOutcome:
        """At once, with the uid as precondition. One that is gone, or replaced by another, is done. One that a finalizer of somebody else keeps is `Failed`: its
        scheduler counts it until it has gone."""
        path = path_of(d.PODS, placeholder.namespace, placeholder.name)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": placeholder.uid}}

        async def attempt() -> DeleteOutcome:
            try:
                left = answered(_deleted, await self._client.delete(path, options)).metadata.finalizers
            except ApiStatus as status:
                if status.code not in (404, 409):
                    raise
                if status.code == 409 and await self._read(placeholder) is not None:
                    # Another conflict than the uid's: it is there still, and its node is not free.
                    raise ApiStatus(0, status.reason, status.message) from status
                return Done()
            if left:
                raise ApiStatus(0, "Ending", f"{placeholder.name} is still there: it has finalizer {left[0]}")
            return Done()

        return await self._bounded(attempt)

    # -- the pod ---------------------------------------------------------------------------------------------------------

    async def land(self, pod: PodRef, node: str, placeholder: PodRef | None, log: str, where: Callable[[], str] | None = None, claims: bool = False) -> LandOutcome:
        """Hands the node over: once the scheduler has heard of the nomination it counts the pod there, so that the placeholder may go. `Done`: nothing
        holds the pod back any more. `Gone` leaves the placeholder, and so does `Failed`, where the scheduler is not heard of, and `Refused`, where a claim may not be handed over (for a while: then
        `Unkept`).

        One at a time for a node, until the pod is bound: a nomination is charged beside the placeholder that it replaces, and meanwhile
        another successor would not fit on the node, and go elsewhere. `claims`: the placeholder has some for it. `where`: the node that is its own by now, empty where there is none: one of a gang may have
        changed places with another one since (`restow.domain.evolve.changed_places`)."""
        self._stop_keeping(pod)
        if claims and placeholder is not None:
            # It may take seconds. So it comes before the nomination, which somebody could take away between its proof and the hand-over.
            named = await self._handover.named(pod, placeholder)
            if not isinstance(named, Done):
                return named
        there = await (self._found(pod) if pod.uid in self._since else self._nominated(pod, node))
        if isinstance(there, wire.Pod) and not _node(there) and _nomination(there) != node:
            there = await self._nominated(pod, node)
        if isinstance(there, Gone | Refused | Failed):
            return there
        bound, gang = _node(there), _gang(there)
        unkept: Unkept | None = None
        with self._coming(gang) as arrived:
            if placeholder is not None:
                unheard = None if bound else await self._unheard(pod, there, log, node)
                if unheard is not None:
                    return unheard
                handed = await self._handover.hand(pod, placeholder) if claims and not bound else Done()
                if isinstance(handed, Refused) and self._handover.is_given_up(pod):
                    unkept = Unkept(handed)
                elif not isinstance(handed, Done):
                    return handed
                vacated = await self.vacate(placeholder)
                if not isinstance(vacated, Done):
                    return vacated
                if not bound:
                    await self._sleep(SETTLED)
            if bound:
                return Bound() if bound == node else Taken(bound)
            await arrived()
            freed = await self._let_go(pod)
            if isinstance(freed, wire.Pod) and not _node(freed) and _nomination(freed) != node:
                # Taken away since the touch. Its place may still be free.
                freed = await self._nominated(pod, node)
            went = done(freed)
            if gang is not None and isinstance(went, Done):
                self._ungated[gang] = machine.steady()
                self._kept[pod.uid] = asyncio.create_task(self._keep_nominated(pod, where or (lambda: node), gang))
            return unkept if unkept is not None and isinstance(went, Done) else went

    @contextlib.contextmanager
    def _coming(self, gang: str | None) -> Iterator[Callable[[], Awaitable[None]]]:
        """Pods of a gang that land at the same time lose their gates at the same time: each says when it is so far, and goes on when all of them are."""
        coming = self._gangs.setdefault(gang, [0, 0]) if gang is not None else [0, 0]
        coming[0] += 1
        so_far = False

        async def arrived() -> None:
            nonlocal so_far
            so_far = True
            coming[1] += 1
            end = machine.steady() + TOGETHER
            while coming[1] < coming[0] and machine.steady() < end:
                await self._sleep(SETTLED)

        try:
            yield arrived
        finally:
            coming[0] -= 1
            coming[1] -= so_far
            if gang is not None and not coming[0]:
                self._gangs.pop(gang, None)

    async def _keep_nominated(self, pod: PodRef, where: Callable[[], str], gang: str) -> None:
        """Of a gang: kube-scheduler looks at who has no gate any more while others of the gang have theirs, finds that too few are there, and takes the nomination
        away. It is made again until the pod is bound."""
        began, pause = machine.steady(), SETTLED
        try:
            while machine.steady() < self._ungated.get(gang, began) + KEPT:
                there = await self._found(pod)
                if isinstance(there, Gone) or (isinstance(there, wire.Pod) and _node(there)):
                    return
                if not (node := where()):
                    return
                if isinstance(there, wire.Pod) and _nomination(there) != node:
                    await self._nominated(pod, node)
                await self._sleep(pause)
                pause = min(1.1 * pause, SELDOM)
        finally:
            if self._kept.get(pod.uid) is asyncio.current_task():
                del self._kept[pod.uid]
            if not self._kept:
                self._ungated.clear()

    async def _unheard(self, pod: PodRef, there: wire.Pod, log: str, node: str) -> Gone | Refused | Failed | None:
        """None once its scheduler counts the nomination; also where the API takes no probe, for then nothing can be proven. `Failed` where the nomination has gone
        meanwhile: whoever preempts on this node, be it another pod than the placeholder, has all nominations of lower priority there taken away (kube-scheduler,
        prepareCandidate), also of pods that are gated."""
        heard = await self._heard(pod, there, log)
        if isinstance(heard, Failed):
            return heard
        # One that was listed with its nomination, gated, counts only once it changes.
        touched = await self._touched(pod, machine.token(8))
        if not isinstance(touched, wire.Pod):
            return touched
        if not _node(touched) and _nomination(touched) != node:
            return Failed(0, "Denominated", f"the nomination of {pod.name} for {node} was taken away")
        return None

    async def _heard(self, pod: PodRef, there: wire.Pod, log: str) -> Done | Refused | Failed:
        """Whether its scheduler has heard of the nomination that it has. Whoever else writes to the pod meanwhile has nobody asked anew: by a new probe each time, a
        slow scheduler would never be heard."""
        since = self._since.setdefault(pod.uid, there.metadata.resource_version or "")
        heard = await self._hearing.heard(_who(there, log), (pod.uid, since))
        if not isinstance(heard, Failed):
            self._since.pop(pod.uid, None)
        elif len(self._since) > MOST:
            # Nobody has asked for it again.
            del self._since[next(iter(self._since))]
        return heard

    async def land_free(self, pod: PodRef, node: str, placeholder: PodRef, log: str, scheduler: str) -> LandOutcome:
        """Of a pod that came without the gate, since an API server that has just started did not count the policy. Whenever its scheduler looks at it and it does
        not fit, as beside its placeholder, the nomination is taken away (kube-scheduler, handleSchedulingFailure). So the placeholder goes only when the
        pod was looked at and the nomination has stayed, and that is made again until the pod is bound. One after the other on all nodes, for what
        becomes free for one makes the scheduler look at all of them: of one scheduler, for another one may be slow, or away."""
        async with self._free.setdefault(scheduler, asyncio.Lock()):
            stayed, lost = 0, _Lost(node)
            for look in range(1, LOOKS + 1):
                there = await self._found(pod)
                stayed = stayed + 1 if isinstance(there, wire.Pod) and is_looked_at(there) and _nomination(there) == node else 0
                if isinstance(there, wire.Pod) and lost.is_to_be_made(there):
                    there = await self._nominated(pod, node)
                if not isinstance(there, wire.Pod):
                    return there
                if _node(there) or stayed > QUIET:
                    break
                if (stayed == QUIET or look == LOOKS) and isinstance(heard := await self._heard(pod, there, log), Failed):
                    return heard
                await self._sleep(SETTLED)
            vacated = await self.vacate(placeholder)
            if not isinstance(vacated, Done):
                return vacated
            lost = _Lost(node)
            for _ in range(LOOKS):
                there = await self._found(pod)
                if isinstance(there, wire.Pod) and lost.is_to_be_made(there):
                    there = await self._nominated(pod, node)
                if not isinstance(there, wire.Pod):
                    return there
                if where := _node(there):
                    return Bound() if where == node else Taken(where)
                await self._sleep(SETTLED)
        return Done()

    def is_landing_free(self, scheduler: str) -> bool:
        """Whether the next one has to wait."""
        return scheduler in self._free and self._free[scheduler].locked()

    async def _nominated(self, pod: PodRef, node: str) -> wire.Pod | Gone | Refused | Failed:
        self._since.pop(pod.uid, None)
        return await self._patched(pod, {"status": {"nominatedNodeName": node}}, "status")

    async def let_go(self, pod: PodRef) -> PatchOutcome:
        """Nothing of ours holds it back any more: it competes as any other. One that has no gate of ours is done."""
        return done(await self._let_go(pod))

    async def _let_go(self, pod: PodRef) -> wire.Pod | Gone | Refused | Failed:
        self._stop_keeping(pod)
        return await self._patched(pod, {"metadata": {"annotations": {LANDING: None, TOUCHED: None}}, "spec": _UNGATED})

    def _stop_keeping(self, pod: PodRef) -> None:
        """It is to go somewhere else now, or nowhere."""
        if (keeping := self._kept.pop(pod.uid, None)) is not None:
            keeping.cancel()

    async def touch(self, pod: PodRef, mark: str) -> PatchOutcome:
        """A scheduler that was restarted knows a gated pod's nomination once the pod changes."""
        return done(await self._touched(pod, mark))

    async def _touched(self, pod: PodRef, mark: str) -> wire.Pod | Gone | Refused | Failed:
        return await self._patched(pod, {"metadata": {"annotations": {TOUCHED: mark}}})

    async def scheduler(self) -> str | Refused:
        """Which kube-scheduler leads, by its Lease; empty where the API does not answer, or nobody elects one; `Refused` where it may not be read."""
        try:
            lease = answered(_lease, await self._client.get(LEASE))
        except ApiStatus as status:
            return Refused(status.code, status.reason, status.message) if status.code in (401, 403) else ""
        return lease.spec.holderIdentity if lease.spec is not None and lease.spec.holderIdentity else ""


class _Lost:
    """A nomination that its scheduler takes away is made again, later each time. Whenever it goes the scheduler looks once more at all pods of this priority or less, and at this one
    (kube-scheduler 1.36, hasNominatedNodeNameChanged): made again before it is through with them, or where somebody else has the place, it is taken away again, and so on."""

    def __init__(self, node: str) -> None:
        self._node, self._without, self._rest = node, 0, 0

    def is_to_be_made(self, pod: wire.Pod) -> bool:
        """Asked at each look at the pod."""
        self._without = self._without + 1 if _nomination(pod) != self._node else 0
        if self._without <= self._rest or _node(pod):
            return False
        self._rest = 2 * self._rest + 1
        return True


class _Deleted(msgspec.Struct):
    """A pod as the API answers that it deletes it, or a Status."""

    metadata: "_DeletedMeta"


class _DeletedMeta(msgspec.Struct):
    finalizers: list[str] | None = None


class _Lease(msgspec.Struct):
    """Its holder is all that is read."""

    spec: "_LeaseSpec | None" = None


class _LeaseSpec(msgspec.Struct):
    holderIdentity: str | None = None


_deleted = msgspec.json.Decoder(_Deleted)
_lease = msgspec.json.Decoder(_Lease)


def _node(pod: wire.Pod) -> str:
    return (pod.spec.node_name if pod.spec else None) or ""


def _nomination(pod: wire.Pod) -> str:
    return pod.status.nominated_node_name if pod.status else ""


def _gang(pod: wire.Pod) -> str | None:
    """The PodGroup of `scheduling.k8s.io` that its scheduler starts as one."""
    group = pod.spec.scheduling_group if pod.spec else None
    return f"{pod.metadata.namespace}/{group.pod_group_name}" if group is not None else None


def _who(pod: wire.Pod, log: str) -> Who:
    """Who looks at this pod, and when."""
    spec = pod.spec
    return Who((spec.scheduler_name if spec else None) or UNNAMED, (spec.priority if spec else None) or 0, log)
