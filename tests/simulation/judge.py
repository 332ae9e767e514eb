"""The judge of a simulated run: it knows the seeds' and RULES.md's rules and none of our code.

It is told of every commit, every write of the API and every eviction as they happen, and judges each then; at rest it judges
what must have come about. `judging/` has its parts; `promises.py` there what is promised. What needs our code (fold = refold,
verify) is judged by `replayed.py`.
"""

import json
import traceback
from dataclasses import dataclass, field

from simulation.broken import Broken
from simulation.judging.cluster import ClusterJudge
from simulation.judging.log import LogJudge
from simulation.judging.rest import RestJudge

MOST = 200


@dataclass(frozen=True)
class Limits:
    """Stated times, in simulated seconds."""

    lag: float = 60.0
    """How late an effect may be that was decided rightly: a leader that stood still, a request on its way."""
    runs: float = 60.0
    """After calm, who fits runs within this."""
    cleanup: float = 90.0
    """What a migration has made is gone, after its end."""
    expiry: float = 60.0
    """A Reservation whose time is over says so."""
    said: float = 30.0
    """After calm, what is over in the log is over in the API within this."""
    away: int | str = "10%"
    """Of one workload at once, where the policy does not say; 0 for no bound."""
    epoch: float = 1_767_225_600.0
    """The wall clock at the beginning."""


@dataclass
class Judge:
    cluster: str = "sim"
    limits: Limits = field(default_factory=Limits)
    broken: list[Broken] = field(default_factory=list)

    def __post_init__(self):
        self._now, self._calm = 0.0, None
        self._said = {}
        self.log = LogJudge(self._tell, self.limits)
        self.api = ClusterJudge(self._tell, self.log, self.limits)

    def _tell(self, promise, sentence):
        if (promise, sentence) not in self._said and len(self.broken) < MOST:
            self._said[promise, sentence] = None
            self.broken.append(Broken(self._now, self.log.last_seq, promise, sentence))

    def _guarded(self, at, what, *args):
        """A judge that cannot read what it sees says so; it never stops the run."""
        self._now = at
        try:
            what(*args)
        except Exception:
            last = traceback.format_exc().strip().splitlines()
            self._tell("judge", f"{last[-1]} in {last[-2].strip() if len(last) > 1 else ''} ({last[-3].strip() if len(last) > 2 else ''})")

    # -- what it is told -------------------------------------------------------------------------------------------------

    def commit(self, at, seq, family, headers, body):
        self._guarded(at, self.log.stored, at, seq, family, headers, json.loads(body) if isinstance(body, bytes | str) else body)

    def acknowledged(self, at, seq, id):
        self._now = at
        self.log.acknowledged[seq] = id

    def kept(self, at, first, ids):
        self._guarded(at, self.log.judge_kept, first, ids)

    def wrote(self, at, verb, resource, old, new, by):
        self._guarded(at, self.api.wrote, at, verb, resource, old, new, by)

    def evicted(self, at, pod, by):
        self._guarded(at, self.api.evicted, at, pod, by)

    def calm(self, at):
        self._now = self._calm = self.api.calm_at = at

    def rest(self, at):
        """Liveness is judged only where there was time for it after calm."""
        if self._calm is None or at - self._calm < max(self.limits.runs, self.limits.cleanup):
            return
        rest = RestJudge(self._tell, self.log, self.api, self.limits, at, self.limits.epoch + at)
        self._guarded(at, rest.judge)
