"""What `verify` found, as values that print themselves."""

from __future__ import annotations

from collections import Counter

import msgspec

KEPT = 20
"""Differences and problems that a report keeps in full; all are counted."""


class Difference(msgspec.Struct, frozen=True):
    """A decision that the log tells otherwise than its decider. `note` says so where there is more to it than events."""

    seq: int
    decision: int
    family: str
    command: str
    logged: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    note: str = ""


class Problem(msgspec.Struct, frozen=True):
    """A record that breaks a rule of the log."""

    seq: int
    family: str
    what: str


class FamilyReport(msgspec.Struct):
    """One family's share. Decisions = identical + different + skipped, for families that decide; facts have none."""

    family: str
    logic: str = ""
    commits: int = 0
    decisions: int = 0
    events: int = 0
    identical: int = 0
    different: int = 0
    skipped: int = 0
    seconds: float = 0.0


class Report(msgspec.Struct):
    """All of a log. `decisions` are those of deciding families; `skipped` counts decisions per reason."""

    source: str
    log_id: str
    cluster: str
    first: int = 1
    last: int = 0
    commits: int = 0
    events: int = 0
    decisions: int = 0
    identical: int = 0
    different: int = 0
    skipped: dict[str, int] = {}
    fact_commits: int = 0
    facts: int = 0
    problems: int = 0
    unknown: dict[str, int] = {}
    void: dict[str, int] = {}
    families: dict[str, FamilyReport] = {}
    differences: list[Difference] = []
    found: list[Problem] = []
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """No decision differs and no rule is broken. What was skipped is neither proven nor refuted."""
        return not self.different and not self.problems

    @property
    def sentence(self) -> str:
        """`812 of 812 decisions re-decided identically`, and what there is to add."""
        parts = [f"{self.identical:,} of {self.decisions:,} decisions re-decided identically".replace(",", " ")]
        if self.different:
            parts.append(f"{self.different} differ")
        if skipped := sum(self.skipped.values()):
            parts.append(f"{skipped} skipped")
        if self.problems:
            parts.append(f"{self.problems} {'rule' if self.problems == 1 else 'rules'} broken")
        return ", ".join(parts)

    def differs(self, difference: Difference) -> None:
        self.different += 1
        self.families[difference.family].different += 1
        if len(self.differences) < KEPT:
            self.differences.append(difference)

    def same(self, family: str, count: int = 1) -> None:
        self.identical += count
        self.families[family].identical += count

    def skips(self, family: str, why: str, count: int = 1) -> None:
        self.skipped[why] = self.skipped.get(why, 0) + count
        self.families[family].skipped += count

    def breaks(self, seq: int, family: str, what: str) -> None:
        self.problems += 1
        if len(self.found) < KEPT:
            self.found.append(Problem(seq, family, what))


def lines_of(difference: Difference, limit: int = 8) -> list[str]:
    """The events of a difference as a readable diff: `-` logged, `+` decided, at most `limit` lines."""
    logged, decided = Counter(difference.logged), Counter(difference.decided)
    lines = [f"- {text}" for text in difference.logged if not _take(decided, text)]
    lines += [f"+ {text}" for text in difference.decided if not _take(logged, text)]
    if not lines and difference.logged != difference.decided:
        lines = ["the same events in another order"]
    rest = len(lines) - limit
    return lines if rest <= 0 else [*lines[:limit], f"… and {rest} more"]


def _take(counter: Counter[str], text: str) -> bool:
    if counter[text] > 0:
        counter[text] -= 1
        return True
    return False
