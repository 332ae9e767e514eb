"""Leadership and configuration: the same two events in every family."""

import msgspec

from restow.contracts import events as e
from restow.domain import config
from restow.domain.evolve.reservation_slots import note_review
from restow.domain.evolve.rules import Rules
from restow.domain.records import Leader
from restow.domain.state import ClusterState


def led(family: str):
    def rule(state: ClusterState, event) -> None:
        if event.epoch <= state.leaders[family].epoch:
            state.void[f"{family}.led"] += 1
            return
        state.put(state.leaders, family, Leader(event.epoch, event.holder))

    return rule


def configured(family: str):
    def rule(state: ClusterState, event) -> None:
        kind = config.CONFIGS.get(family)
        if kind is not None:
            try:
                read = config.read(kind, event.text)
            except (msgspec.MsgspecError, ValueError, LookupError, RecursionError):
                # No leader of ours logs what it cannot read; whoever did must not stop everybody who folds it (RULES G-16).
                state.void[f"{family}.configured"] += 1
                return
            setattr(state, f"{family}_config", read)
        state.put(state.configured, family, event.digest)
        if family == "session":
            for pod in state.pods:
                state.settle(pod)
                state.requeue(pod)
            for uid in state.reservations:
                # Whether it is ours may be another answer now.
                note_review(state, uid)
                state.reviewed.append(uid)
            state.capacity_epoch += 1

    return rule


RULES: Rules = {cls: led(family) for family, cls in e.LED.items()} | {
    cls: configured(family) for family, cls in e.CONFIGURED.items()
}
