"""Whether a pod's workload lets it go: asked once its slot is held and nothing else is in the way, and before every eviction that is decided.

The hold stays meanwhile. What else may have changed is asked again when the word has come."""

from collections.abc import Iterator

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, PodUid
from restow.contracts.times import bounded
from restow.domain import hooks
from restow.domain.effects import AskConsent, Effect, TellWorkload, WithdrawRequest
from restow.domain.hooks import ANNOTATION, Hook, HookError
from restow.domain.migration.holds import Reason
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import NO_WORD, WORKLOAD_REFUSED

TELLS_FOR = 60_000
"""Milliseconds for which it is tried to tell a workload what has become of its move."""
MOVED, STAYS = "moved", "stays"


def hook_of(state: ClusterState, migration: Migration) -> Hook | None:
    """Whom to ask. None of a pod that is gone; who cannot be read keeps it (`movable.unmovable`)."""
    pod = state.fact_of(migration.move.pod)
    try:
        return None if pod is None else hooks.before(state, pod)
    except HookError:
        return None


def is_waited_for(state: ClusterState, migration: Migration) -> bool:
    """Whether its workload was asked, and its word has not come yet."""
    known = state.consents.get(migration.id)
    return known is not None and not known.given and migration.step is Step.HELD


def has_word(state: ClusterState, migration: Migration) -> bool:
    """Whether nobody is to be asked, or its workload has agreed."""
    known = state.consents.get(migration.id)
    return known.given > 0 if known is not None else hook_of(state, migration) is None


def asked(state: ClusterState, migration: Migration, now: Millis) -> e.ConsentAsked:
    hook = hook_of(state, migration)
    assert hook is not None, "asked only where there is a hook"
    return e.ConsentAsked(migration.id, bounded(now + hook.deadline), hook.way, hook.name, hook.evicts_on_silence)


def annotated(state: ClusterState, migration: Migration) -> hooks.Word | None:
    """Its answer by annotation, which counts whatever the way is."""
    pod = state.fact_of(migration.move.pod)
    return None if pod is None else hooks.word(pod, migration.id)


def refusal(message: str) -> Reason:
    return WORKLOAD_REFUSED, message or "it gave no reason"


def silence(state: ClusterState, migration: Migration, message: str) -> Reason:
    way = state.consents[migration.id].way
    return NO_WORD, f"its workload was to be asked ({way}), and no answer came in time" + (f": {message}" if message else "")


def refused(migration: Migration, message: str, again: Millis) -> e.ConsentRefused:
    return e.ConsentRefused(migration.id, message, again)


# -- afterwards ------------------------------------------------------------------------------------------------------------


def on_failure(state: ClusterState, migration: Migration, reason: str, now: Millis) -> tuple[e.Event, ...]:
    """Whoever was asked by HTTP, and whose pod stays, is told. (A request on the pod is taken off it.)"""
    known, pod = state.consents.get(migration.id), migration.move.pod
    if known is None or known.way == ANNOTATION or reason == WORKLOAD_REFUSED or migration.armed or pod not in state.pods:
        return ()
    return (e.WorkloadToTell(migration.id, STAYS, known.way, pod, bounded(now + TELLS_FOR), known.hook),)


def on_landing(state: ClusterState, migration: Migration, now: Millis) -> tuple[e.Event, ...]:
    pod = state.fact_of(migration.successor)
    try:
        hook = None if pod is None else hooks.after(state, pod)
    except HookError:
        # Nothing depends on it; why it cannot be read is said where it is planned to move again.
        hook = None
    if hook is None:
        return ()
    return (e.WorkloadToTell(migration.id, MOVED, hook.way, migration.successor, bounded(now + TELLS_FOR), hook.name),)


def reported(state: ClusterState, said: c.ReportTold) -> tuple[e.Event, ...]:
    return (e.WorkloadTold(said.migration, said.message),) if said.migration in state.tellings else ()


# -- what is owed ------------------------------------------------------------------------------------------------------------


def pending(state: ClusterState, migration: Migration) -> Iterator[Effect]:
    if is_waited_for(state, migration) and not is_requested(state, migration):
        yield AskConsent(migration.id)
    if migration.step in FINAL and requested(state, migration.move.pod) == migration.id:
        yield WithdrawRequest(migration.id)
    if migration.id in state.tellings:
        yield TellWorkload(migration.id)


def is_requested(state: ClusterState, migration: Migration) -> bool:
    """Whether the request is on the pod; an HTTP request is owed until it is answered. That nobody says anything is no word where nobody was asked:
    Restow may have been away, and of an HTTP request only who has sent it knows."""
    return state.consents[migration.id].way == ANNOTATION and requested(state, migration.move.pod) == migration.id


def requested(state: ClusterState, uid: PodUid) -> MigrationId:
    """For which migration its workload is asked on the pod; empty for none."""
    pod = state.fact_of(uid)
    return MigrationId("" if pod is None else pod.annotations.get(hooks.REQUESTED, ""))
