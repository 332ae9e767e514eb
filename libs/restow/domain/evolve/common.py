"""Leadership and configuration: the same two events in every family."""

import msgspec

from restow.contracts import events as e
from restow.domain import config
from restow.domain.evolve import schedulers_named
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
            held_for = schedulers_named.whose(state) if family == "session" else {}
            setattr(state, f"{family}_config", read)
        state.put(state.configured, family, event.digest)
        if family == "session":
            for pod in state.pods:
                state.settle(pod)
                state.requeue(pod)
            schedulers_named.changed(state, held_for)

    return rule


RULES: Rules = {cls: led(family) for family, cls in e.LED.items()} | {
    cls: configured(family) for family, cls in e.CONFIGURED.items()
}
