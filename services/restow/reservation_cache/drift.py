"""Somebody else may write a status, or put an old one back: what differs from the fold is owed once more.

Facts say nothing about statuses, so this service looks at them itself: one watch for each API. What it writes comes
back to it, too, and is equal by then.
"""

import asyncio
from typing import Any

import msgspec

from restow.contracts.ids import ReservationUid
from restow.domain.effects import WriteReservationStatus
from restow.domain.reservation import decider
from restow.domain.reservation.decider import told_by_us
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import status
from restow.kube.decode import Collection, decoded
from restow.kube.reflector import Config, Reflector, Restart, Upsert
from restow.kube.reservation_objects import STATUSES, Written, merge_difference
from restow.kube.watch import half_jitter, watch
from restow.runtime import logs
from restow.runtime.service import Context

SETTLE = 1.0
"""Seconds from a change until it is compared: by then what we were writing ourselves has come back."""
_status = msgspec.json.Decoder()
SLICE = 64
"""Statuses compared before everything else in the process gets its turn."""


class Drift:
    """Compares the statuses that there are with those that should be."""

    def __init__(self, context: Context, settle: float = SETTLE) -> None:
        self._context, self._settle = context, settle
        self._seen: dict[ReservationUid, bytes] = {}
        """The latest status of each that was written since the last look."""
        self._some = asyncio.Event()
        self._log = logs.get(family="reservation")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for collection in STATUSES.values():
                group.create_task(self._watch(collection))
            group.create_task(self._compare())

    async def _watch(self, collection: Collection[Written]) -> None:
        reflector: Reflector[Written] = Reflector(collection, config=Config(max_backoff=30_000), jitter=half_jitter)
        async for changes in watch(self._context.client, reflector):
            for change in changes:
                match change:
                    case Upsert(object=Written() as one):
                        self._seen[ReservationUid(one.metadata.uid)] = bytes(one.status)
                        self._some.set()
                    case Restart(reason=reason, message=message, wait=wait):
                        self._log.debug("watch starts again", kind=collection.name, reason=reason, message=message, wait_ms=wait)

    async def _compare(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(self._settle)
            self._some.clear()
            seen, self._seen = self._seen, {}
            if not self._context.leadership.leading:
                continue  # whoever begins to lead writes all of them
            differing = []
            for number, (uid, text) in enumerate(seen.items(), 1):
                if differs(self._context.state, uid, text):
                    differing.append(uid)
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            if differing:
                self._owe(differing)

    def _owe(self, uids: list[ReservationUid]) -> None:
        """The effector writes them: one writer a status, so that no older one comes after a newer."""
        self._log.info("statuses are not what they should be: written again", count=len(uids), first=uids[0])
        follower = self._context.follower
        follower.state.touched.reservations.update(dict.fromkeys(uids))
        for tell in follower.listeners:
            tell()


def differs(state: ClusterState, uid: ReservationUid, text: bytes) -> bool:
    """Whether this status is not what it should be; False for what has none to be written."""
    if not told_by_us(state, uid) or not decider.owed(state, WriteReservationStatus(uid, state.seq)):
        return False
    there: Any = decoded(_status, text) if text else None
    return merge_difference(there or {}, status(state, uid)) is not None
