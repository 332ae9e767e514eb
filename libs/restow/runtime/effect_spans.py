"""Where the span of an attempt at an effect belongs."""

from functools import cache, lru_cache

from restow.contracts.ids import PodUid
from restow.domain.effects import Bind, Effect, Land, LetGo, NominateAgain, TellNominated, TellUnschedulable
from restow.domain.state import ClusterState
from restow.runtime.tracer import Attempt, Tracer
from restow.tracing.spans import Values, span_id, trace_id

_OF_A_WAITING_POD = (Bind, Land, LetGo, NominateAgain, TellNominated, TellUnschedulable)
"""They belong to the pod's trace, which ends when it has a node."""
_SAID = ("node", "reservation", "slot", "claim", "volume", "namespace", "group", "queue", "name", "lineage", "plan", "back")
"""Attributes of effects that a span says as they are."""


def begun(tracer: Tracer, log_id: str, effect: Effect, state: ClusterState, number: int) -> Attempt | None:
    """The span of the `number`th attempt: in the trace that the log tells of the pod or the plan (`restow.replay.traces`), below the pod or the move; of what has none
    there, in one of its own, with a link to the pod's. None where nobody wants to know."""
    values: Values = {key: value for name, key in _said(type(effect)) if (value := getattr(effect, name))}
    values["restow.attempt"] = number
    place: tuple[str, str] = ("", "")
    links: tuple[str, ...] = ()
    id, pod = getattr(effect, "migration", None), _pod(effect)
    if pod:
        values["k8s.pod.uid"] = pod
    if id is not None:
        values["restow.migration"] = id
        if (known := state.migrations.get(id)) is not None:
            place = _place(log_id, "plan", known.plan, id)
    elif pod and isinstance(effect, _OF_A_WAITING_POD):
        place = _place(log_id, "pod", pod, "pod")
    elif pod:
        links = ("00-{}-{}-01".format(*_place(log_id, "pod", pod, "pod")),)
    return tracer.attempt(type(effect).__name__, values, *place, links)


@cache
def _said(kind: type[Effect]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"restow.{name}") for name in kind.__struct_fields__ if name in _SAID)


def _pod(effect: Effect) -> PodUid | None:
    return getattr(effect, "pod", None)


@lru_cache(4096)
def _place(log_id: str, kind: str, id: str, key: str) -> tuple[str, str]:
    """Ids of a trace and of a span there."""
    trace = trace_id(log_id, kind, id)
    return trace, span_id(trace, key)
