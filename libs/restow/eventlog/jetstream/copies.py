"""Which of the brokers that keep the log's copies are there, as the one says that is asked.

A leader that has lost the others goes on for 20 s as one (nats-server 2.15), and is asked in vain for nothing but commits: who has nothing to append would not notice. Without
a leader any broker answers what it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from restow.eventlog.port import SILENT_BROKER

SILENT = 5.0
"""Seconds after which a broker is silent that a leader has not heard of. One that is there says something each second."""
LASTS = 5.0
"""Seconds for which too few are to be there before anybody is told that no commit is taken: to elect another leader takes about three."""


class Copies:
    """Of one stream."""

    def __init__(self) -> None:
        self._silent: list[str] = []
        self._unheard: dict[str, float] = {}
        """Since when the leader says of whom that it has never heard of it."""
        self._brokers = 0
        self._leads = True
        self._since: float | None = None
        self._now = 0.0

    def hear(self, cluster: Mapping[str, Any], now: float) -> None:
        """cluster: of what STREAM.INFO says; now: seconds of a clock that never steps."""
        others = cluster.get("replicas") or []
        self._now, self._leads = now, bool(cluster.get("leader")) or not others
        # Without a leader everybody is listed, and who is asked among them.
        self._brokers = len(others) + self._leads
        # A new leader does not know since when one is silent that it has never heard of, as of the leader before it.
        never = {str(one.get("name", "")) for one in others if not one.get("active") and not one.get("current")}
        self._unheard = {name: self._unheard.get(name, now) for name in never} if self._leads else {}
        silent = {str(one.get("name", "")) for one in others if one.get("offline") or one.get("active", 0) >= SILENT * 1e9} if self._leads else set()
        self._silent = sorted(silent | {name for name, since in self._unheard.items() if now - since >= SILENT})
        if self._leads and self._brokers - len(self._silent) >= self._majority:
            self._since = None
        elif self._since is None:
            self._since = now

    @property
    def _majority(self) -> int:
        return self._brokers // 2 + 1

    def too_few(self) -> str:
        """That no commit is taken, and why; empty where one is."""
        if self._since is None or self._now - self._since < LASTS:
            return ""
        who = f"{', '.join(self._silent)} {'are' if len(self._silent) > 1 else 'is'} silent" if self._leads else "none leads it"
        return f"no commit is taken: of the {self._brokers} brokers that keep the log {who}, and {self._majority} must be there: start them again"

    def some_silent(self) -> str:
        """Who is missing, where commits are taken all the same."""
        if self._since is not None or not self._silent:
            return ""
        last = "; if one more goes, no commit is taken" if self._brokers - len(self._silent) == self._majority else ""
        return f"{SILENT_BROKER}: {', '.join(self._silent)}, of {self._brokers}{last}"
