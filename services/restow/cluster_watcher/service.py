"""cluster_watcher: list and watch become facts. It decides nothing and has no effects.

Pods come last: what the first list of every other collection holds is in the log before the first pod is, so that no pod is
judged by a queue, a claim or a Reservation that is merely not there yet.
"""

import asyncio
from typing import Any

from restow import machine
from restow.cluster_watcher.metrics import expose
from restow.cluster_watcher.observer import Observer
from restow.kube import decode as d
from restow.kube.client import ApiStatus
from restow.kube.discovery import serving
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import HISTORY_RESET, Config, Reflector, Replace, Restart
from restow.kube.watch import half_jitter, watch
from restow.runtime import logs
from restow.runtime.leadership import Phase
from restow.runtime.service import Context, Parts, Service, Shaping
from restow.runtime.signals import Bell

NOT_SERVED = "Status404"
FIRST, LONGEST = 3.0, 60.0
"""Seconds between two questions to discovery about a collection that nobody serves: at first, doubled each time, and at most."""
SHOWN = 3
"""Collections that are named where more have only not been listed yet."""
QUIET_REASONS = ("Expired", NOT_SERVED)
"""History is finite, and a CRD may not be installed (yet): nothing to worry about."""


def service() -> Service:
    observer = Observer()
    return Service(
        name="cluster_watcher",
        family="cluster",
        decider=observer,
        assemble=lambda context: assemble(context, observer),
        shape=lambda context: Shaping(propose=observer.propose, book=observer, shrink=observer.smaller),
    )


def assemble(context: Context, observer: Observer) -> Parts:
    watches = Watches(context, observer)
    expose(context.metrics, observer, watches.synced, lambda: context.state)
    return Parts(tasks=[watches.run()], checks=[watches.problem])


class Gate:
    """Open once every collection but the pods was listed to its end, or is of a CRD that is not installed."""

    def __init__(self) -> None:
        self.missing = {collection.name for collection in d.COLLECTIONS if collection is not d.PODS}
        self._open = asyncio.Event()

    def passed(self, name: str) -> None:
        self.missing.discard(name)
        if not self.missing:
            self._open.set()

    async def wait(self) -> None:
        await self._open.wait()


class Patience:
    """Until when discovery is not asked again, where it has said that nothing more is to be had: where nobody serves a collection, that is for ever. The collection itself
    is looked for all the while."""

    def __init__(self) -> None:
        self._pause, self._until = FIRST, 0.0

    def rests(self) -> bool:
        return machine.steady() < self._until

    def answered(self) -> None:
        self._until = machine.steady() + self._pause
        self._pause = min(2 * self._pause, LONGEST)


class Watches:
    """All collections, watched while this process leads, and listed again after somebody else wrote facts."""

    def __init__(self, context: Context, observer: Observer) -> None:
        self._context, self._observer = context, observer
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._why: dict[str, str] = {}
        self._gate = Gate()
        self._led = Bell()
        self._repairs = context.state.repairs
        self._reset = False
        """The API's history was found to be another one: everything is listed anew, whatever versions the log knows."""
        self._log = logs.get(service="cluster_watcher")
        self._context.leadership.changed.append(self._led.ring)
        self._context.follower.listeners.append(self._report_undecodable)
        self._context.follower.listeners.append(self._look_for_repairs)
        self._context.health.notes.append(lambda: observer.note() if context.leadership.leading else "")

    def problem(self) -> str:
        """Why facts are not complete yet. A standby watches nothing and is ready."""
        missing = [name for name, whole in self.synced().items() if not whole]
        said = [f"{name} ({self._why[name]})" for name in missing if name in self._why]
        if rest := [name for name in missing if name not in self._why]:
            more = f" and {len(rest) - SHOWN} more" if len(rest) > SHOWN else ""
            said.append(f"{', '.join(rest[:SHOWN])}{more} (not listed yet)")
        return f"waiting for {', '.join(said)}" if said else ""

    def synced(self) -> dict[str, bool]:
        """By collection, whether it was listed to its end and is watched, or nobody serves it; of a standby nothing. Who is about to lead is none."""
        if self._context.leadership.phase not in (Phase.CLAIMING, Phase.LEADING):
            return {}
        return {c.name: not (c.name in self._gate.missing or self._is_behind(c)) for c in d.COLLECTIONS}

    def _is_behind(self, collection: d.Collection[Any]) -> bool:
        """Listed to its end, or served by nobody: everything else waits."""
        reflector = self._reflectors.get(collection.name)
        if reflector is not None and reflector.synced:
            return False
        return not (collection.optional and self._why.get(collection.name, "").startswith(NOT_SERVED))

    async def run(self) -> None:
        while True:
            while not self._context.leadership.leading:
                await self._led.wait()
            self._observer.relist.clear()
            self._gate = Gate()
            anew, self._reset = self._reset, False
            tasks = [asyncio.create_task(self._watch(c, anew), name=f"watch {c.name}") for c in d.COLLECTIONS]
            again = asyncio.create_task(self._observer.relist.wait())
            try:
                done, _ = await asyncio.wait({again, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                why = "the API's history is another one" if self._reset else "another process wrote facts, or the log was repaired"
                self._log.info("listing again", reason=why)
            finally:
                for task in (again, *tasks):
                    task.cancel()
                await asyncio.gather(again, *tasks, return_exceptions=True)
                self._observer.forget()

    async def _watch(self, collection: d.Collection[Any], anew: bool = False) -> None:
        """`anew`: the versions that the log knows are of another history, and whatever is there is what there is."""
        context, observer, gate = self._context, self._observer, self._gate
        reflector = Reflector(
            collection, "" if anew else context.state.synced.get(collection.name, ""),
            Config(max_backoff=3_000 if collection.optional else 10_000), half_jitter,
        )
        self._reflectors[collection.name] = reflector
        patience = Patience()
        async for changes in watch(context.client, reflector):
            restarts = [change for change in changes if isinstance(change, Restart)]
            for restart in restarts:
                self._restarted(collection, restart)
                if collection.optional and restart.reason == NOT_SERVED and await self._not_served(reflector, collection, anew, patience):
                    gate.passed(collection.name)
            if restarts:
                changes = [change for change in changes if not isinstance(change, Restart)]
            if changes:
                patience = Patience()
            if changes and not self._reset:
                if collection is d.PODS:
                    await gate.wait()
                observer.add(collection, changes, reflector.version if reflector.synced else "", reset=anew)
                anew = anew and not reflector.synced
                context.commander.wake()
                if reflector.synced:
                    gate.passed(collection.name)
                await observer.space()

    async def _not_served(self, reflector: Reflector[Any], collection: d.Collection[Any], anew: bool, patience: Patience) -> bool:
        """Whether nothing more is to be waited for: with a CRD go its objects, and nobody says so to who did not watch just then. What the log
        knows of them is gone when the API says that it serves no version of them; until it does say something, it may still be there. A
        `discovered` collection is looked for at the version that the API names first."""
        context = self._context
        if not collection.discovered and not list(StateKnown(context.state).keys(collection.name)):
            return True
        if patience.rests():
            return True
        try:
            versions = await serving(context.client, collection)
        except ApiStatus as error:
            self._why[collection.name] = f"not served, and discovery says {error}"
            return False
        if versions and collection.discovered:
            reflector.collection = collection.at(versions[0])
            return False
        patience.answered()
        if versions:
            self._log.warning("objects that the log knows are served in other versions only", kind=collection.name, versions=versions)
        elif not self._reset and list(StateKnown(context.state).keys(collection.name)):
            self._log.warning("not served any more: all of its objects are gone", kind=collection.name)
            self._observer.add(collection, [Replace(frozenset(), "")], "", reset=anew)
            context.commander.wake()
        return True

    def _restarted(self, collection: d.Collection[Any], restart: Restart) -> None:
        if not (collection.optional and restart.reason == NOT_SERVED):
            # What nobody serves has not begun, and is looked for every few seconds for ever.
            self._context.metrics.restarts.labels("cluster", collection.name, restart.reason).inc()
        self._why[collection.name] = f"{restart.reason} {restart.message}".strip()
        say = self._log.debug if restart.reason in QUIET_REASONS else self._log.info
        if restart.reason == HISTORY_RESET:
            say, self._reset = self._log.warning, True
            self._observer.relist.set()
        say("watch starts again", kind=collection.name, reason=restart.reason, message=restart.message, wait_ms=restart.wait)

    def _look_for_repairs(self) -> None:
        """A log that was repaired has lost facts: everything is told again that it does not know any more."""
        if self._context.state.repairs != self._repairs:
            self._repairs = self._context.state.repairs
            self._observer.relist.set()

    def _report_undecodable(self) -> None:
        if not self._observer.undecodable:
            return
        found, self._observer.undecodable = self._observer.undecodable, []
        for one in found:
            self._context.metrics.undecodable.labels("cluster", one.kind).inc()
            self._log.warning(
                "object left out", kind=one.kind, namespace=one.namespace, name=one.name, uid=one.uid, reason=one.message,
                **({"traceback": one.trace} if one.trace else {}),
            )
