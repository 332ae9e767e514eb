"""A pause of all moves: by hand, or by itself where too many evicted pods miss their slots, or a pod waits for too long that would fit (policy `autoPause`). It lasts until somebody
resumes, whoever restarts meanwhile.

What was evicted before still lands: nobody is better off if its slot is given up. What was not evicted yet stays where it is, and no plan is made."""

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId, PodUid
from restow.contracts.times import rfc3339
from restow.domain.config import LONGEST, MigrationConfig
from restow.domain.decider import Rejected
from restow.domain.duration import format_milliseconds
from restow.domain.records import OBSERVE
from restow.domain.state import ClusterState

MOST = 1_000
QUERIES, LONGEST_QUERY = 20, 2_000
"""PromQL expressions, and characters of each, at most."""


def check(config: MigrationConfig) -> None:
    """Raises ValueError with path, value and what is allowed."""
    auto = config.auto_pause
    if not 0 <= auto.missed <= MOST:
        raise ValueError(f"autoPause.missed: {auto.missed}; allowed: 0 (for never) to {MOST}")
    for name, least in (("within", 1), ("pending", 0), ("every", 1_000)):
        if not least <= getattr(auto, name) <= LONGEST:
            raise ValueError(f"autoPause.{name}: {getattr(auto, name)}; allowed: {least}{' (for never)' * (not least)} to {LONGEST} (milliseconds; {format_milliseconds(LONGEST)})")
    if len(auto.queries) > QUERIES or not all(0 < len(query) <= LONGEST_QUERY for query in auto.queries):
        raise ValueError(f"autoPause.queries: allowed: up to {QUERIES} PromQL expressions of up to {LONGEST_QUERY} characters")


def due(state: ClusterState, now: Millis) -> c.Pause | None:
    """Where the policy's limit of misses is reached. Those of a time that is still to come were noted before the clock was put back: they count."""
    auto = state.migration_config.auto_pause
    if state.pause.since or not auto.missed or len(state.missed) < auto.missed:
        return None
    recent = sum(at > now - auto.within for at in state.missed.values())
    if recent < auto.missed:
        return None
    return c.Pause(now, reason=f"{recent} evicted pods missed their slots within {format_milliseconds(auto.within)} (autoPause.missed: {auto.missed})")


def stuck(state: ClusterState, now: Millis, oldest: tuple[PodUid, Millis] | None) -> c.Pause | None:
    """Where the pod that has waited for the longest time although nothing keeps it from running (`Undecided.look`) has waited for as long as the policy allows."""
    limit = state.migration_config.auto_pause.pending
    if oldest is None or state.pause.since or state.mode.name == OBSERVE or not limit or now - oldest[1] < limit:
        return None
    pod = state.pods[oldest[0]].fact
    waited = format_milliseconds((now - oldest[1]) // 1_000 * 1_000)
    return c.Pause(now, reason=f"nobody has decided on pod {pod.namespace}/{pod.name} for {waited}, and nothing keeps it from running (autoPause.pending: {format_milliseconds(limit)})")


def pause(state: ClusterState, command: c.Pause, under_way: list[PlanId]) -> list[e.Event]:
    """`under_way`: plans of which something is still to be done. Raises Rejected."""
    if state.pause.since:
        raise Rejected(f"pause: {said(state)}")
    return [e.MovesPaused(command.by, command.reason), *(e.PlanCancelled(plan, "Paused: " + (command.reason or "no reason was given")) for plan in under_way)]


def resume(state: ClusterState, command: c.Resume) -> list[e.Event]:
    """Raises Rejected."""
    if not state.pause.since:
        raise Rejected("resume: moves are not paused")
    return [e.MovesResumed(command.by, command.reason)]


def said(state: ClusterState) -> str:
    """That moves are paused, since when, by whom and why; empty while they are not."""
    known = state.pause
    if not known.since:
        return ""
    return f"moves are paused since {rfc3339(known.since)} by {known.by or 'Restow itself'}" + (f": {known.reason}" if known.reason else "")


def said_with_its_end(state: ClusterState) -> str:
    """And what to do."""
    return f"{told}; `restow resume` ends that" if (told := said(state)) else ""


def heed(state: ClusterState) -> None:
    """Raises Rejected while moves are paused."""
    if said(state):
        raise Rejected(f"{said(state)}; allowed: after `restow resume`, or a dry run")
