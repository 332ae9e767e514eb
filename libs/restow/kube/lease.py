"""Leadership by a Kubernetes Lease, to avoid wasted work. Safety does not depend on it: the log decides (DESIGN 2).

The protocol is client-go's: a lease that another holds may be taken when its record has not changed for its duration, by
our own monotonic clock (clocks of machines are never compared); every write carries the resourceVersion that was read
or that our last write was answered with: a leader that renews need not read first.

Two things are not client-go's, because here the log decides, and both let the duration be short. A leader whom the API does not answer goes on: whoever takes
the lease meanwhile says so in the log. And time in which the API did not answer counts for nobody: the leader could not renew, either.
A third one follows from that, too: who does not reach the log cannot lead, however well it renews, so it gives the lease to somebody who does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from restow import machine
from restow.kube.client import ApiStatus, Client, answered
from restow.kube.retry import Sleep

NOTE = "restow.dev/log-read"
"""Annotation of a Lease: how far its holder has read the log (`restow.domain.history.Mark`). Whoever takes the Lease over finds the same in the log, or
the log has lost records."""

_MICROS = "%Y-%m-%dT%H:%M:%S.%fZ"


async def noted(client: Client, namespace: str, name: str) -> str:
    """What the last holder of a Lease has noted there (`NOTE`); empty where there is no such Lease, or no right to look. Raises ApiStatus."""
    try:
        lease: _Lease = answered(_lease, await client.get(f"{_path(namespace)}/{name}"))
    except ApiStatus as status:
        if status.code in (403, 404, 405, 501) and not status.transient:
            return ""
        raise
    return str((lease.metadata.get("annotations") or {}).get(NOTE, ""))


def _path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class LeaseConfig(msgspec.Struct, frozen=True):
    """Seconds. Others may take the lease when it was not renewed for `duration`. The leader renews it every `renew`, and tries again after `retry` where that
    failed; so often those look who wait for it."""

    duration: int = 2
    retry: float = 0.25
    renew: float = 0.6

    @classmethod
    def of(cls, duration: int) -> "LeaseConfig":
        """With three renewals in the duration, and eight looks."""
        return cls(duration, retry=duration / 8, renew=0.3 * duration)


class _Spec(msgspec.Struct, omit_defaults=True):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: dict[str, Any]
    spec: _Spec = msgspec.field(default_factory=_Spec)
    apiVersion: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


_lease = msgspec.json.Decoder(_Lease)


class Elector:
    """Tries to hold one Lease. `note` is told what `NOTE` says there whenever it is written, and gives what it says then. `clock` is monotonic seconds; `now` is only written into the Lease, for people.
    `reaches`: whether this process reaches the log at present."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        config: LeaseConfig = LeaseConfig(),
        clock: Callable[[], float] = machine.steady,
        now: Callable[[], datetime] = machine.now,
        note: Callable[[str], str] = lambda said: said,
        reaches: Callable[[], bool] = lambda: True,
    ):
        self._client = client
        self._namespace, self._name, self.identity = namespace, name, identity
        self.config = config
        self._clock, self._now, self._note = clock, now, note
        self._reaches = reaches
        self._away: float | None = None
        """Since when this process does not reach the log."""
        self._back = float("-inf")
        """When it reached the log again."""
        self._had = False
        """Nobody has had the Lease since it was ours, as far as we know."""
        self._seen: _Spec | None = None
        self._seen_at = 0.0
        self._written: _Lease | None = None
        """Ours as the API answered our last write; None where it must be read first."""
        self._path = _path(namespace)

    async def acquire_or_renew(self) -> bool:
        """One attempt. False: another holds it, or was faster. Raises ApiStatus where the API does not answer."""
        ours, self._written = self._written, None
        if ours is not None:
            ours.spec = self._claim(ours.spec)
            if await self._write(ours, new=False):
                return True
        try:
            lease: _Lease = answered(_lease, await self._client.get(f"{self._path}/{self._name}"))
        except ApiStatus as status:
            if status.code != 404:
                self._seen = None
                raise
            return await self._write(_Lease({"name": self._name, "namespace": self._namespace}, self._claim(None)), new=True)
        if lease.spec != self._seen:
            self._seen, self._seen_at = lease.spec, self._clock()
        if lease.spec.holderIdentity not in (None, "", self.identity) and not self._expired(lease.spec):
            self._had = False
            return False
        lease.spec = self._claim(lease.spec)
        return await self._write(lease, new=False)

    def surely_holds(self) -> bool:
        """Whether nobody can have taken the Lease from us: our last write is younger than half of its duration."""
        return self._seen is not None and self._seen.holderIdentity == self.identity and self._clock() < self._seen_at + self.config.duration / 2

    def can_lead(self) -> bool:
        """Whether to hold the Lease: not where others may reach the log and this process has not for as long as the Lease lasts. When a broker is back, its
        leader of before goes on, so the others leave it half of that time."""
        now = self._clock()
        if not self._reaches():
            self._away = now if self._away is None else self._away
            return self._had and now < self._away + self.config.duration
        if self._away is not None:
            self._away, self._back = None, now
        return self._had or now >= self._back + self.config.duration / 2

    async def give_way(self) -> None:
        """To whoever can lead. Where the API does not take that, the Lease ends by itself."""
        if self._seen is not None and self._seen.holderIdentity == self.identity:
            await self.release()
            self._seen = self._written = None

    async def release(self) -> None:
        """Gives the Lease up, so that the next leader need not wait. Best effort."""
        try:
            lease: _Lease = answered(_lease, await self._client.get(f"{self._path}/{self._name}"))
            if lease.spec.holderIdentity != self.identity:
                return
            spec = self._claim(lease.spec)
            spec.holderIdentity, spec.leaseDurationSeconds = "", 1
            lease.spec = spec
            await self._write(lease, new=False)
            self._written = None
        except ApiStatus:
            pass

    def _expired(self, spec: _Spec) -> bool:
        return self._clock() >= self._seen_at + (spec.leaseDurationSeconds or self.config.duration)

    def _claim(self, before: _Spec | None) -> _Spec:
        now = self._now().strftime(_MICROS)
        if before is not None and before.holderIdentity == self.identity:
            acquired, transitions = before.acquireTime or now, before.leaseTransitions or 0
        else:
            acquired, transitions = now, 0 if before is None else (before.leaseTransitions or 0) + 1
        return _Spec(self.identity, self.config.duration, acquired, now, transitions)

    async def _write(self, lease: _Lease, new: bool) -> bool:
        said = lease.metadata.get("annotations") or {}
        if note := self._note(said.get(NOTE, "")):
            lease.metadata["annotations"] = said | {NOTE: note}
        # A process that is kept waiting hears of what it wrote when others may have waited for its Lease to end already.
        asked = self._clock()
        try:
            if new:
                answer = await self._client.create(self._path, lease)
            else:
                answer = await self._client.replace(f"{self._path}/{self._name}", lease)
        except ApiStatus as status:
            if status.code in (404, 409):
                return False
            raise
        self._written = answered(_lease, answer)
        self._seen, self._seen_at = lease.spec, asked
        self._had = self._had or lease.spec.holderIdentity == self.identity
        return True


class Leadership:
    """Held until `lost` is set."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()


@asynccontextmanager
async def leading(
    elector: Elector,
    on_lost: Callable[[], Any] = lambda: None,
    on_wait: Callable[[ApiStatus | None], Any] = lambda error: None,
    sleep: Sleep = asyncio.sleep,
    share: Callable[[], float] = machine.share,
) -> AsyncIterator[Leadership]:
    """Waits until the Lease is ours, renews it in the background, releases it at the end. `on_lost` is called once, when
    the Lease went to another; `on_wait` at each failed attempt, with the
    error where the API did not answer, with None where another holds the Lease."""
    await _acquire(elector, on_wait, sleep, share)
    leadership = Leadership()

    def lost() -> None:
        leadership.lost.set()
        on_lost()

    renewing = asyncio.create_task(_renew(elector, lost, sleep, share), name=f"lease {elector.identity}")
    try:
        yield leadership
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        if not leadership.lost.is_set():
            await elector.release()


async def _acquire(
    elector: Elector, on_wait: Callable[[ApiStatus | None], Any], sleep: Sleep, share: Callable[[], float]
) -> None:
    while True:
        try:
            if elector.can_lead() and await elector.acquire_or_renew():
                return
            on_wait(None)
        except ApiStatus as status:
            on_wait(status)
        await sleep(elector.config.retry * (1 + 0.2 * share()))


async def _renew(
    elector: Elector, lost: Callable[[], None], sleep: Sleep, share: Callable[[], float]
) -> None:
    """Until another has it. A failure of this task counts as a loss, too: a leader that no more tries to renew must not go on."""
    try:
        mine: bool | None = True
        config = elector.config
        while mine is not False:
            await sleep((config.renew if mine else config.retry) * (1 - 0.2 * share()))
            try:
                async with asyncio.timeout(config.duration):
                    if not elector.can_lead():
                        mine = None
                        await elector.give_way()
                        continue
                    # A conflict can be our own late write: look once more before giving up.
                    mine = await elector.acquire_or_renew() or await elector.acquire_or_renew()
            except (ApiStatus, TimeoutError):
                mine = None
    except asyncio.CancelledError:
        raise
    except Exception:
        lost()
        raise
    lost()
