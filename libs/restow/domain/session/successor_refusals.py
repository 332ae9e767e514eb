"""Whether a session would look at the pod that follows a moved one at all. A hold is of no use to who waits for something that no
capacity helps against: a queue that takes no jobs, a PodGroup that is no more, a configuration that hands nothing over (RULES G-13).

Answered from the state alone, for it is asked after every fold; a session raises the same where it validates jobs. What a plugin
refuses at `jobValid` it says here, too, by a function `turns_away(state, args, pod)`. How much of a queue is in use does not count:
what is allocated of a migration's hold is within any quota (RULES G-12)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.beside import is_beside
from restow.domain.config import SessionConfig
from restow.domain.session import queues
from restow.domain.session.actions import reserve_handover
from restow.domain.session.framework import Refusal
from restow.domain.session.registry import acting, opened
from restow.domain.state import ClusterState


def turned_away(state: ClusterState, uid: PodUid) -> str:
    """Why a pod like this one would wait whatever is held for it; empty where it would not."""
    pod = state.pods[uid].fact
    if is_beside(state, pod.shape):
        return ""  # it has neither a queue nor actions
    if not state.ours(pod):
        return f"scheduler {state.shapes[pod.shape].scheduler} is not among schedulerNames, and restow.beside of the policy does not name it"
    rules = _rules(state)
    if not rules.hands_over:
        return "no action reserve before allocate hands over what is held"
    refusal = queues.refused(state, state.queue_of(pod))
    for turns_away, args in rules.plugins:
        refusal = refusal or turns_away(state, args, pod)
    return "" if refusal is None else f"{refusal.reason}: {refusal.message}"


class _Rules(NamedTuple):
    config: SessionConfig
    hands_over: bool
    plugins: list[tuple[Callable[[ClusterState, Any, PodObserved], Refusal | None], Any]]


def _rules(state: ClusterState) -> _Rules:
    """What of the configuration counts here: read once for a configuration."""
    kept = state.memo.find(_Rules)
    if kept is None or kept.config is not state.session_config:
        found = [(module.turns_away, args) for _, _, module, args in opened(state) if hasattr(module, "turns_away")]
        hands_over = any(module is reserve_handover for module, _ in acting(state))
        kept = state.memo.keep(_Rules(state.session_config, hands_over, found))
    return kept
