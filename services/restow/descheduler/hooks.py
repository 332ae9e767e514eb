"""The saga's effects for hooks: asks a workload whether its pod may go, takes the question back, tells it what came of it
(`restow.domain.migration.consents`). Each may be repeated: a workload tells questions apart by the migration."""

from collections.abc import Mapping
from typing import Any

from restow.contracts import commands as c
from restow.contracts.ids import MigrationId, Millis, PodUid
from restow.contracts.times import rfc3339
from restow.descheduler import hook_calls
from restow.descheduler.hook_calls import NO, NOT_YET, YES, Heard
from restow.domain import hooks
from restow.domain.config import HookConfig
from restow.domain.effects import AskConsent, TellWorkload, WithdrawRequest
from restow.domain.migration.consents import MOVED
from restow.domain.records import Consent, Migration
from restow.domain.state import ClusterState
from restow.kube import effects as k
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.hooks import Address, PodHooks
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Done, Report, Retry, Wait, later
from restow.runtime.service import Context

TELLS = 5
"""Times that it is tried to tell a workload what has become of its move."""
ANSWERS_IN = 10.0
"""Seconds for the answer to what needs none."""
LONGEST_PAUSE = 15.0
"""Seconds between two questions, where nobody says; the first pause is one second, then it doubles."""
SOON = 0.05


class Hooks:
    """What is not in the log is how often somebody was asked and what was heard last: another process begins anew."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = PodHooks(context.client, Backoff(attempts=1))
        self._tries: dict[tuple[str, MigrationId], int] = {}
        self._heard: dict[MigrationId, str] = {}
        self._reported: dict[tuple[str, MigrationId], tuple[Any, ...]] = {}
        """What was answered, until the log has it: nobody is asked, or told, once more meanwhile."""

    # -- before ----------------------------------------------------------------------------------------------------------

    async def ask(self, effect: AskConsent, state: ClusterState) -> Answer:
        id = effect.migration
        migration, consent = state.migrations[id], state.consents[id]
        if (known := self._reported.get(("ask", id))) is not None:
            return Report(c.ReportConsent(self._now(), id, *known))
        tries = self._count("ask", id)
        if tries == 1:
            self._say_asked(migration, consent)
        pod = _ref(state, migration.move.pod)
        if pod is None:
            return Done()
        if consent.way == hooks.ANNOTATION:
            outcome = await self._pods.request(pod, id, consent.deadline)
            return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()
        if self._left(consent.deadline) <= 0:
            # Another process may have asked; of this one nobody knows that it was silent.
            return self._silent(id) if id in self._heard else Done()
        content = _content("before-move", migration, pod, tries) | {"deadline": rfc3339(consent.deadline)}
        heard = await self._call(state, consent.way, consent.hook, pod, content, self._left(consent.deadline))
        return self._answer(id, consent, heard, tries)

    def _answer(self, id: MigrationId, consent: Consent, heard: Heard, tries: int) -> Answer:
        if heard.word == YES:
            return self._report(id, "agreed", heard.message)
        if heard.word == NO:
            return self._report(id, "refused", heard.message, Millis(self._now() + heard.after) if heard.after else Millis(0))
        left = self._left(consent.deadline)
        self._heard[id] = heard.message
        if left <= 0:
            return self._silent(id)
        if heard.word == NOT_YET:
            return Wait(min(heard.after / 1000, left))
        pause = heard.after / 1000 or min(2.0 ** min(tries - 1, 10), LONGEST_PAUSE)
        return Retry(heard.message, max(min(pause, left), SOON))

    def _silent(self, id: MigrationId) -> Answer:
        return self._report(id, "silent", self._heard.get(id, ""))

    def _report(self, id: MigrationId, word: str, message: str, again: Millis = Millis(0)) -> Report:
        self._remember("ask", id, word, message, again)
        return Report(c.ReportConsent(self._now(), id, word, message, again))

    def _say_asked(self, migration: Migration, consent: Consent) -> None:
        move = migration.move
        note = f"is to move to {move.target}; its workload is asked ({consent.way}) and has until {rfc3339(consent.deadline)} (migration {migration.id})"
        self._context.recorder.record(Notice(Regarding("v1", "Pod", move.namespace, move.name, move.pod), "MoveAsked", "Ask", note))

    async def withdraw(self, effect: WithdrawRequest, state: ClusterState) -> Answer:
        pod = _ref(state, state.migrations[effect.migration].move.pod)
        outcome = k.Gone() if pod is None else await self._pods.withdraw(pod, effect.migration)
        return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()

    # -- afterwards ------------------------------------------------------------------------------------------------------

    async def tell(self, effect: TellWorkload, state: ClusterState) -> Answer:
        """Nothing depends on it: so many times, and not for long."""
        id = effect.migration
        migration, telling = state.migrations[id], state.tellings[id]
        if (known := self._reported.get(("tell", id))) is not None:
            return Report(c.ReportTold(self._now(), id, *known))
        pod, left = _ref(state, telling.pod), self._left(telling.deadline)
        if pod is None:
            return self._told(id, "its pod is gone")
        if left <= 0:
            return self._told(id, self._heard.get(id, "") or "nobody was there to tell it in time")
        tries = self._count("tell", id)
        why = await self._tell(state, migration, pod, tries, min(left, ANSWERS_IN))
        if not why:
            return self._told(id, "")
        self._heard[id] = why
        if tries >= TELLS:
            return self._told(id, why)
        return Retry(why, max(min(2.0 ** (tries - 1), left), SOON))

    async def _tell(self, state: ClusterState, migration: Migration, pod: k.PodRef, tries: int, seconds: float) -> str:
        """Why it was not told; empty where it was."""
        telling, moved = state.tellings[migration.id], state.tellings[migration.id].what == MOVED
        if telling.way == hooks.ANNOTATION:
            outcome = await self._pods.tell_moved(pod, migration.move.source, migration.id)
            return f"{outcome.code} {outcome.reason} {outcome.message}".strip() if isinstance(outcome, k.Failed | k.Refused) else ""
        content = _content("after-move" if moved else "move-cancelled", migration, pod, tries) | {"reason": migration.reason}
        heard = await self._call(state, telling.way, telling.hook, pod, content, seconds)
        # Whatever it makes of it, it was told.
        return "" if heard.word != hook_calls.NOTHING else heard.message

    def _told(self, id: MigrationId, message: str) -> Report:
        self._remember("tell", id, message)
        return Report(c.ReportTold(self._now(), id, message))

    # -- within ----------------------------------------------------------------------------------------------------------

    async def _call(self, state: ClusterState, way: str, name: str, pod: k.PodRef, content: Mapping[str, Any], seconds: float) -> Heard:
        hook = _entry(state, name)
        if name and hook is None:
            return Heard(hook_calls.NOTHING, f"the policy has no hook {name} any more")
        url = way
        if hooks.is_own(way):
            scheme, port, path = hooks.own_way(hooks.BEFORE, way)
            match await self._pods.address(pod):
                case Address(ip=ip):
                    url = f"{scheme}://{f'[{ip}]' if ':' in ip else ip}:{port}{path}"
                case k.Gone():
                    return Heard(hook_calls.NOTHING, "its pod is gone")
                case k.Refused(message=message) | k.Failed(message=message):
                    return Heard(hook_calls.NOTHING, message)
        return await hook_calls.call(url, content, hook, seconds)

    def _count(self, what: str, id: MigrationId) -> int:
        """How often this process has tried, this time included."""
        self._tries[what, id] = tries = self._tries.get((what, id), 0) + 1
        self._forget()
        return tries

    def _remember(self, what: str, id: MigrationId, *answer: Any) -> None:
        self._tries.pop((what, id), None)
        self._heard.pop(id, None)
        self._reported[what, id] = answer

    def _forget(self) -> None:
        if len(self._tries) + len(self._reported) <= MOST_KNOWN:
            return
        state = self._context.state
        for known in (self._tries, self._reported):
            for key in [key for key in known if key[1] not in state.consents and key[1] not in state.tellings]:
                del known[key]
        self._heard = {id: text for id, text in self._heard.items() if id in state.consents or id in state.tellings}

    def _left(self, deadline: int) -> float:
        """Seconds."""
        return (deadline - self._now()) / 1000

    def _now(self) -> Millis:
        return self._context.clock.now()


MOST_KNOWN = 1_000
"""Migrations that are remembered before those that are over are forgotten."""


def _ref(state: ClusterState, uid: PodUid) -> k.PodRef | None:
    pod = state.fact_of(uid)
    return None if pod is None else k.PodRef(pod.namespace, pod.name, uid)


def _entry(state: ClusterState, name: str) -> HookConfig | None:
    return next((one for one in state.migration_config.hooks if one.name == name), None) if name else None


def _content(event: str, migration: Migration, pod: k.PodRef, attempt: int) -> dict[str, Any]:
    move = migration.move
    return {
        "event": event, "migration": migration.id, "plan": migration.plan, "attempt": attempt, "namespace": pod.namespace, "pod": pod.name,
        "uid": pod.uid, "node": move.source, "target": move.target,
    }  # fmt: skip
