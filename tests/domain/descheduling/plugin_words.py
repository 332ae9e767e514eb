"""Words for tests of one plugin: it runs over a state, and says who goes, who stays and why, or that its arguments are refused."""

from typing import Any

import pytest
from domain.build import NOW
from domain.descheduling_words import HOUR, evaluate, policy, profile

from restow.contracts.samples import Samples
from restow.domain.descheduling.interpreter import Outcome
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import PolicyError
from restow.domain.state import ClusterState


class Plugin:
    """`plugin(state, argument=...)` is the outcome an hour after everything was made."""

    def __init__(self, name: str):
        self.name = name

    def _policy(self, args: dict[str, Any], evictor: dict[str, Any] | None, limits: dict[str, int] | None) -> Any:
        return policy(profile(self.name, args, evictor, point=PLUGINS[self.name].POINTS[0]), **(limits or {}))

    def __call__(
        self,
        state: ClusterState,
        evictor: dict[str, Any] | None = None,
        limits: dict[str, int] | None = None,
        samples: Samples | None = None,
        now: int = NOW + HOUR,
        **args: Any,
    ) -> Outcome:
        return evaluate(state, self._policy(args, evictor, limits), now, samples)

    def gone(self, state: ClusterState, **said: Any) -> list[str]:
        """Names of those that are evicted, in order."""
        return [one.pod for one in self(state, **said).evictions]

    def told(self, state: ClusterState, **said: Any) -> list[str]:
        return [one.text for one in self(state, **said).warnings]

    def refused(self, **args: Any) -> str:
        """Why these arguments are: from the path within them."""
        with pytest.raises(PolicyError) as raised:
            self._policy(args, None, None)
        (reason,) = raised.value.reasons
        return str(reason.partition(".args")[2].lstrip(".: ").partition(" (profile ")[0])


def reasons(outcome: Outcome) -> dict[str, str]:
    return {one.pod: one.reason for one in outcome.evictions}


def kept(outcome: Outcome) -> dict[str, str]:
    return {one.pod: one.why for one in outcome.verdicts}
