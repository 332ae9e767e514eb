"""What `restow why` and `restow report` say, at an instant, and what a plan's moves are worth to it: the log is read for it once more, up to there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from restow.contracts.ids import Millis, PlanId
from restow.domain.eviction_budgets import accounts
from restow.domain.state import ClusterState
from restow.eventlog.port import Truncated
from restow.replay.batch import queues
from restow.replay.plan_values import plan_values
from restow.replay.queues import reserved, waiting
from restow.replay.replanned import Replanned, replan
from restow.replay.settled import settle
from restow.replay.source import LiveSource, Source, Until
from restow.replay.state_at import check_whole, state_at
from restow.replay.why import why
from restow.runtime.policy_text import policy_text

T = TypeVar("T")

KEPT = 64
"""Answers that are kept: going back to what was open costs nothing."""


def reading(source: Source, make: Callable[[], T]) -> T:
    """What `make` reads of the log; where that has let its beginning go since it was opened, once more of what is left. Raises what `make` raises."""
    try:
        return make()
    except Truncated as gone:
        if isinstance(source, LiveSource) and source.first < gone.first_seq:
            source.first = gone.first_seq
            return make()
        raise


class Stories:
    """One is told at a time: each takes as long as the fold of the log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, int], Any] = OrderedDict()

    def why(self, what: str, at: int) -> Any:
        """`restow why WHAT -o json` on the log up to `at`. Raises NotFound, Ambiguous, ReplayError."""
        return self._once(("why", what, at), lambda: self._told(what, at))

    def _told(self, what: str, at: int) -> dict[str, Any]:
        answer = why(Until(self.source, at), what)
        return {**msgspec.to_builtins(answer), "label": answer.subject.label, "path": answer.subject.path}

    def report(self, at: int) -> Any:
        """The plans of `restow report -o json`, and what eviction budgets have left, on the log up to `at`. Raises ReplayError."""
        return self._once(("report", "", at), lambda: self._report(at))

    def _report(self, at: int) -> dict[str, Any]:
        state = ClusterState()

        def watch(now: ClusterState, *_: object) -> None:
            nonlocal state
            state = now

        plans = settle(Until(self.source, at), watch=watch)
        return {"plans": msgspec.to_builtins(plans), "budgets": msgspec.to_builtins(accounts(state, Millis(state.time)))}

    def queues(self, at: int) -> Any:
        """Queues, who waits in them, and what is reserved, on the log up to `at`. Raises ReplayError."""
        return self._once(("queues", "", at), lambda: self._queues(at))

    def _queues(self, at: int) -> dict[str, Any]:
        check_whole(self.source)
        state = state_at(self.source, seq=at)
        held, held_in_all = reserved(state)
        return {
            "time": state.time,
            "queues": queues(state),
            **msgspec.to_builtins(waiting(state)),
            "reservations": msgspec.to_builtins(held),
            "reservationsInAll": held_in_all,
        }

    def values(self, plan: str, seq: int) -> Any:
        """What each move is worth to the plan that was made by the commit `seq`. Raises ReplayError."""
        return self._once(("values", plan, seq), lambda: msgspec.to_builtins(plan_values(self.source, seq, PlanId(plan))))

    def policy(self, at: int) -> Any:
        """The policy that was in force. Raises ReplayError."""
        return self._once(("policy", "", at), lambda: self._policy(at))

    def _policy(self, at: int) -> dict[str, Any]:
        config = state_at(self.source, seq=at).migration_config
        text = policy_text(config)
        return {"policy": text, "unknown": "" if text else "it cannot be written as a DeschedulerPolicy of this release"}

    def replanned(self, at: int, policy: str) -> Replanned:
        """What would be planned there, with this policy (canonical text of a MigrationConfig) or with that in force. Not kept. Raises ReplayError."""
        return reading(self.source, lambda: replan(self.source, at, policy))

    def _once(self, key: tuple[str, str, int], make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = reading(self.source, make)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]
