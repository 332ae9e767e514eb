"""What workloads were asked and have said, and what they are still to be told."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.domain.evolve.rules import Rules, void
from restow.domain.records import Consent, Step, Telling
from restow.domain.state import ClusterState


def consent_asked(state: ClusterState, event: e.ConsentAsked) -> None:
    record = state.migrations.get(event.migration)
    if record is None or record.step is not Step.HELD:
        void(state, event)
        return
    consent = Consent(event.way, event.deadline, event.hook, event.evicts_on_silence)
    state.put(state.consents, record.id, consent)
    state.touched.migrations[record.id] = None


def consent_given(state: ClusterState, event: e.ConsentGiven) -> None:
    """From then on it waits for its turn again."""
    record, known = state.migrations.get(event.migration), state.consents.get(event.migration)
    if record is None or known is None or record.step is not Step.HELD:
        void(state, event)
        return
    state.put(state.consents, record.id, replace(known, given=state.time))
    state.put(state.migrations, record.id, replace(record, since=state.time))
    state.touched.migrations[record.id] = None


def consent_refused(state: ClusterState, event: e.ConsentRefused) -> None:
    known = state.consents.get(event.migration)
    if known is None:
        void(state, event)
        return
    state.put(state.consents, event.migration, replace(known, again=event.again))


def workload_to_tell(state: ClusterState, event: e.WorkloadToTell) -> None:
    if event.migration not in state.migrations:
        void(state, event)
        return
    state.put(state.tellings, event.migration, Telling(event.what, event.way, event.pod, event.deadline, event.hook))
    state.touched.migrations[event.migration] = None


def workload_told(state: ClusterState, event: e.WorkloadTold) -> None:
    if state.drop(state.tellings, event.migration) is None:
        void(state, event)


RULES: Rules = {
    e.ConsentAsked: consent_asked,
    e.ConsentGiven: consent_given,
    e.ConsentRefused: consent_refused,
    e.WorkloadToTell: workload_to_tell,
    e.WorkloadTold: workload_told,
}
