"""Why something is as it is: its story, the chain of causes that led there, and the verdict on it now.

Verdicts are not stored: they are decided again, at the `read` of the commit that told of them and at the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.defragmentation import PLANNED
from restow.domain.migration.deschedule import by_fault, explain_alone
from restow.domain.migration.deschedule import explain as explain_policy
from restow.domain.session.verdict import Choice, GangFit, Relief, SlotsFit, Verdict, choice, explain
from restow.domain.state import ClusterState
from restow.domain.too_old import too_old
from restow.replay.chains import Link, chain
from restow.replay.find import Subject, find
from restow.replay.source import Source
from restow.replay.state_at import Progress, ReplayError, check_whole, decode_record, fold_record, no_progress
from restow.replay.story import Entry, Story
from restow.replay.story_entries import tell
from restow.replay.verdicts import VERDICTS, verdict_lines


class Stays(msgspec.Struct, frozen=True):
    """What the last plan, committed at `seq`, thought of a pod. `removed` counts targets per rule."""

    seq: int
    plan: str
    verdict: str
    message: str
    removed: dict[str, int] = {}

    @property
    def moves(self) -> bool:
        return self.verdict == PLANNED


class Why(msgspec.Struct):
    """`chain` begins with the latest step and ends with what started it all. `verdict` is the state now, in sentences;
    `unfit` the full verdict on a waiting pod at sequence `decided_at`, `present` the one at the end of the log. `choice` is how
    the node was chosen of a pod that was placed; `gang` and `reliefs` are a PodGroup's, `slots` a Reservation's that waits."""

    subject: Subject
    seq: int
    verdict: list[str]
    chain: list[Link]
    story: list[Entry]
    unfit: Verdict | None = None
    decided_at: int = 0
    present: Verdict | None = None
    stays: Stays | None = None
    choice: Choice | None = None
    gang: GangFit | None = None
    reliefs: tuple[Relief, ...] = ()
    slots: SlotsFit | None = None


def why(source: Source, text: str, progress: Progress = no_progress) -> Why:
    """Raises NotFound, Ambiguous, ReplayError."""
    check_whole(source)
    subject = find(source, text)
    story = tell(source, subject, lambda done, total: progress(done, 2 * total))
    answer = Why(subject, source.last, [], chain(source, story), story.entries)
    state = _fold(source, _questions(source, story, answer), lambda done, total: progress(total + done, 2 * total))
    _judge(source, state, story, answer)
    return answer


def verdict_now(source: Source, text: str, progress: Progress = no_progress) -> tuple[Subject, ClusterState, list[str]]:
    """What somebody means, the state at the end of the log, and the verdict on it there, of kinds about which nothing is asked on the way (`_questions`). Raises as `why` does."""
    check_whole(source)
    subject = find(source, text)
    story = tell(source, subject, lambda done, total: progress(done, 2 * total))
    state = _fold(source, {}, lambda done, total: progress(total + done, 2 * total))
    answer = Why(subject, source.last, [], [], [])
    _judge(source, state, story, answer)
    return subject, state, answer.verdict


def _judge(source: Source, state: ClusterState, story: Story, answer: Why) -> None:
    """The verdict on the subject in this state; first what is wrong with the log as a whole."""
    VERDICTS[story.subject.kind](state, story, answer)
    answer.verdict[:0] = filter(None, (_broken(source, state), too_old(state)))


def _broken(source: Source, state: ClusterState) -> str:
    if not state.broken:
        return ""
    # The broker's client takes a tenth of a second.
    from restow.replay.snapshots import trouble

    return trouble(source, state)


def _questions(source: Source, story: Story, answer: Why) -> dict[int, list[Callable[[ClusterState], None]]]:
    """What to ask on the way to the end: the verdict on a pod where it was last told to wait, and at the last plan."""
    asked: dict[int, list[Callable[[ClusterState], None]]] = {}
    pod = PodUid(story.subject.id)
    if story.subject.kind != "pod":
        return asked
    if told := story.last(e.Unfit, e.Withheld):

        def wait(state: ClusterState) -> None:
            if pod in state.pods:
                answer.unfit, answer.decided_at = explain(state, pod), state.seq

        asked.setdefault(told.read, []).append(wait)
    if placed := story.last(e.PodPlaced, pod=pod):
        node = placed.detail.node

        def compare(state: ClusterState) -> None:
            answer.choice = choice(state, pod, node)

        asked.setdefault(placed.read, []).append(compare)
    if planned := _last_plan(source):
        seq, read, command = planned

        def stay(state: ClusterState) -> None:
            answer.stays = _why_it_stays(state, pod, seq, command)

        asked.setdefault(read, []).append(stay)
    return asked


def _last_plan(source: Source) -> tuple[int, int, c.Defragment | c.Deschedule] | None:
    """Sequence, read and command of the last plan, or whole policy, that looked at all nodes: not of those that free capacity for one
    job."""
    found = None
    for batch in source.batches():
        for record in batch:
            if record.family == "migration" and b'"migration.planned"' in record.body:
                for decision in decode_record(record, source.log_id):
                    command: c.Command = decision.command
                    if isinstance(command, c.Deschedule) or (isinstance(command, c.Defragment) and decision.events and not command.demand):
                        found = record.seq, record.envelope.read, command
    return found


def _why_it_stays(state: ClusterState, pod: PodUid, seq: int, command: c.Defragment | c.Deschedule) -> Stays | None:
    """What the plan of commit `seq` thought of a running pod, decided again in full; None where it was not there yet."""
    live, args = state.live_of(pod), state.migration_config.defragmentation
    if live is None:
        return None
    if isinstance(command, c.Deschedule):
        return _by_policy(state, pod, seq, command) if live.node is not None else None
    if args is None:
        return None
    if fault := command.failed.get(command.plan):
        return Stays(seq, command.plan, "NotLookedAt", by_fault(fault))
    # A plan counts who is placed, too, before the node is told.
    for candidate in explain_alone(state, command.time):
        if candidate.pod == pod:
            return Stays(seq, command.plan, candidate.verdict, candidate.message, candidate.removed)
    if live.node is None:
        return None
    return Stays(seq, command.plan, "NotOnSource", f"its node {live.node} was not a source")


def _by_policy(state: ClusterState, pod: PodUid, seq: int, command: c.Deschedule) -> Stays:
    """The plugin that moves it counts; of the others each is told that has looked at it."""
    found = explain_policy(state, command, pod)
    counts = [one for one in found if one.verdict == PLANNED] or found
    if not counts:
        return Stays(seq, command.plan, "NotLookedAt", "no plugin of the policy has anything against it where it is")
    said = "; ".join(f"{one.plugin} (profile {one.profile}): {one.text}" for one in counts)
    return Stays(seq, counts[-1].plan, counts[-1].verdict, said)


def _fold(
    source: Source, asked: dict[int, list[Callable[[ClusterState], None]]], progress: Progress
) -> ClusterState:
    state = ClusterState()
    for batch in source.batches():
        for record in batch:
            fold_record(state, record, source.log_id)
            for question in asked.get(record.seq, ()):
                question(state)
        progress(batch[-1].seq, source.last)
    return state


__all__ = ["Link", "ReplayError", "Why", "chain", "verdict_lines", "verdict_now", "why"]
