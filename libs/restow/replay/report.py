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
    elsewhere: dict[str, dict[str, int]] = {}
    """Of decisions by other logic: logic → the release that decided (empty where the commits do not say) → how many."""
    fact_commits: int = 0
    facts: int = 0
    problems: int = 0
    unknown: dict[str, int] = {}
    void: dict[str, int] = {}
    foreign: int = 0
    families: dict[str, FamilyReport] = {}
    differences: list[Difference] = []
    found: list[Problem] = []
    strangers: list[Problem] = []
    """Records that are not ours (RULES G-16). They are void and break nothing; who wrote them should be found out."""
    too_old: str = ""
    """Why this release cannot say how the log goes on from some record; empty where it can."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """No decision differs, no rule is broken, and the log is understood. What was skipped is neither proven nor refuted."""
        return not self.different and not self.problems and not self.too_old

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
        if self.foreign:
            parts.append(f"{self.foreign} {'record is' if self.foreign == 1 else 'records are'} not ours, and void")
        return ", ".join(parts) + (f"; {self.too_old}" if self.too_old else "")

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

    @property
    def advice(self) -> list[str]:
        """For each other logic, what to run to decide it again."""
        return [
            f"{count} by {logic}: {how_to_run(logic, release)}"
            for logic, releases in sorted(self.elsewhere.items())
            for release, count in sorted(releases.items())
        ]

    def strange(self, seq: int, family: str, kind: str, why: str) -> None:
        self.foreign += 1
        if len(self.strangers) < KEPT:
            self.strangers.append(Problem(seq, family, f"{kind}: {why}"))

    def breaks(self, seq: int, family: str, what: str) -> None:
        self.problems += 1
        if len(self.found) < KEPT:
            self.found.append(Problem(seq, family, what))


def how_to_run(logic: str, release: str) -> str:
    """What to do to have the decisions of another release decided again."""
    if not release:
        return f"the commits name no release (they are of before 2026-11); run `verify` of one whose `restow version` names {logic}"
    wheel, _, image = release.partition(" ")
    number, _, code = wheel.partition("+")
    check = f"`restow version` must say {wheel}" if code else f"`restow version` must name {logic}"
    if image:
        return f"docker run --rm -v \"$PWD:/log:ro\" {image} restow verify /log/FILE ({check})"
    return f"pip install restow=={number} in an environment of its own, then restow verify FILE ({check})"


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
