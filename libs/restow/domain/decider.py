"""What every service is made of: a decider. `state = fold(log)`, `decide(state, command) → events`, effects from the fold.

A decider has no state of its own, no clock and no I/O. It is tested by *given events, when command, then events*, and
`restow verify` runs it again over the whole log.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.ids import Family, Millis
from restow.domain import config
from restow.domain.effects import Effect
from restow.domain.fold import apply
from restow.domain.state import ClusterState, Touched

_LONGEST = 200
"""Characters of what an error says."""


class Rejected(ValueError):
    """A command that makes no sense in this state. Says what is allowed; nothing is logged."""


class Faulty(Exception):
    """A fault of ours has ended one part of a decision, which can be made without it. `part`: its name; `why`: what was raised, and where."""

    def __init__(self, part: str, error: Exception) -> None:
        self.part, self.why = part, said(error)
        super().__init__(f"{part}: {self.why}")


@contextmanager
def part(name: str) -> Iterator[None]:
    """Of a decision. Raises Rejected as it is; Faulty for whatever else is raised within."""
    try:
        yield
    except Rejected:
        raise
    except Exception as error:
        raise Faulty(name, error) from error


def said(error: BaseException) -> str:
    """In one line, with the place where it was raised."""
    text = (str(error).strip() or "no message").splitlines()[0][:_LONGEST]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"


class Decider(Protocol):
    """One family's decisions. `logic` is `<family>@<version>`; it changes when the same state and command can lead to
    other events, and `restow verify` compares commits of its own version only."""

    family: Family
    logic: str

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        """The events that this command leads to; none where there is nothing to do. Must not change the state except
        inside `state.draft()`. Raises Rejected."""

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        """The command that the state itself asks for, if any. Called after every fold: must be cheap. A command whose
        decision is empty is not tried again before the state has changed or the deadline has come."""

    def deadline(self, state: ClusterState) -> Millis | None:
        """When `due` should be asked again although nothing happens; None for never."""

    def pending(self, state: ClusterState, touched: Touched | None) -> Iterable[Effect]:
        """Every effect still owed to the world, or only those about what was `touched`. A restart asks for all of them:
        that is the whole crash recovery (DESIGN 4)."""

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        """Whether this effect is still owed; asked before every attempt and every retry."""


def decide(state: ClusterState, decider: Decider, command: c.Command) -> Sequence[e.Event]:
    """`decider.decide`, with what all families have in common: leadership and configuration."""
    match command:
        case c.Lead(holder=holder):
            return (e.LED[decider.family](state.leaders[decider.family].epoch + 1, holder),)
        case c.Configure(text=text):
            digest = config.digest_of(text)
            if state.configured.get(decider.family) == digest:
                return ()
            return (e.CONFIGURED[decider.family](text, digest),)
        case _:
            return decider.decide(state, command)


def decide_all(
    state: ClusterState,
    decider: Decider,
    commands: Iterable[c.Command],
    *,
    cause: str = "",
    correlate: Callable[[c.Command], str] = lambda command: getattr(command, "migration", "") or getattr(command, "plan", ""),
) -> list[Decision]:
    """Decide several commands, each on the state that includes the earlier ones; the state itself stays as it is. A
    command without events makes no decision. This is what one commit carries."""
    todo = list(commands)
    decisions: list[Decision] = []
    with state.draft():
        for i, command in enumerate(todo):
            events = tuple(decide(state, decider, command))
            if not events:
                continue
            decisions.append(Decision(command, events, cause, correlate(command)))
            if i < len(todo) - 1:
                apply(state, events)
    return decisions
