"""Traces as a view of the log: one for each pod until it has a node, one for each plan with its moves. Pure: the same log gives the same spans, with the
same ids, wherever and whenever it is read, so nothing is measured, and nothing is paid, while decisions are made.

A pod's trace: seen → decided → bound. A plan's: each move from its planning on, its hold, its eviction, until its successor has landed; it links to the traces of
both pods. What was decided links to the commit that decided it, by that commit's own traceparent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, PlanId, PodUid
from restow.contracts.sampling import sampled
from restow.contracts.values import Move
from restow.domain.migration.modes import OBSERVE
from restow.domain.record_trust import Examined
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import OVER, ClusterState
from restow.eventlog.port import Record
from restow.tracing.spans import Happened, Link, Span, Values, span_id, trace_id

SESSION, DESCHEDULER = "restow-scheduler-session", "restow-descheduler"
"""Who decides about pods, and about moves: the service of a span."""

_NEXT: dict[type, str] = {
    e.ConsentAsked: "ask", e.Holding: "hold", e.Held: "held", e.Evicting: "evict", e.Evicted: "land", e.TurningBack: "turn back", e.Aborting: "abort",
}  # fmt: skip
"""What a move does from an event on."""
_DOES = {
    Step.PLANNED: "wait for its turn", Step.HOLDING: "hold", Step.HELD: "held", Step.EVICTING: "evict", Step.EVICTED: "land", Step.ABORTING: "abort",
}  # fmt: skip
"""And in a step."""
LEFT_OUT = "its pod was gone when the plan began"
_ENDS = (e.Landed, e.Removed, e.MigrationFailed, e.NotRecreated)


class _Story:
    """A root, and the part of it that goes on."""

    def __init__(self, trace: str, key: str, parent: str, service: str, name: str, begin: Millis, first: str, values: Values) -> None:
        self.root = Span(trace, span_id(trace, key), parent, service, name, begin, values=values, events=[], links=[])
        self._key = key
        self._told: set[str] = set()
        self.part = self._begin(first, begin)

    def _begin(self, name: str, time: Millis) -> Span:
        """Its id follows from what it is and, of a move, since when: who begins to read in the midst of it knows that, too. (Of a pod nobody knows later when it was seen first.)"""
        number, what = 0, f"{name}/{time}" if self.root.parent else name
        while (key := what + f"/{number}" * bool(number)) in self._told:
            number += 1
        self._told.add(key)
        id = span_id(self.root.trace, f"{self._key}/{key}")
        return Span(self.root.trace, id, self.root.id, self.root.service, name, time, values={}, events=[], links=[])

    def go_on(self, name: str, time: Millis) -> None:
        """It was at this part of it when it was first heard of."""
        if name != self.part.name:
            self.part = self._begin(name, max(time, self.root.begin))

    def turn(self, name: str, time: Millis, error: str = "") -> Span:
        """The part ends, and another one begins. The part that has ended."""
        ended, self.part = self.part, self._begin(name, time)
        ended.end, ended.error = time, error
        return ended

    def finish(self, time: Millis, error: str = "", open: bool = False) -> tuple[Span, Span]:
        """Both end."""
        for one in (self.part, self.root):
            one.end, one.error, one.open = time, error, open
        return self.part, self.root


class _Plan:
    """A plan whose moves have not all ended."""

    def __init__(self, root: Span, moves: Iterable[MigrationId]) -> None:
        self.root, self.left, self.failed = root, set(moves), 0


class Traces:
    """Hears of every record once it is folded, and says which spans have ended with it. `share`: of all traces this part is told, whole ones only."""

    def __init__(self, log_id: str, share: float = 1.0) -> None:
        self._log_id, self._share = log_id, share
        self._pods: dict[PodUid, _Story] = {}
        self._bound: set[PodUid] = set()
        """Those that there are whose traces have ended: one is not told twice, whatever is seen of it later."""
        self._moves: dict[MigrationId, tuple[_Story, _Plan]] = {}
        self._plans: dict[PlanId, _Plan] = {}
        self._proposed: dict[PlanId, tuple[e.Planned, Span]] = {}
        self._time = Millis(0)

    def begin(self, state: ClusterState) -> None:
        """Where the log is not read from its beginning: who waits at this point is told from when it was made, and a move from the step on that it is at."""
        self._time = Millis(state.time)
        for uid, pod in state.pods.items():
            if state.node_of(uid) is None and pod.live.phase not in OVER:
                # The API's clock may be ahead of the log's.
                self._seen(pod.fact, Millis(min(pod.fact.created, self._time)))
        for id, plan in state.plans.items():
            root = self._root(plan.planned, plan.at)
            left = [known for move in plan.planned.moves if (known := state.migrations.get(move.migration)) is not None and known.plan == id]
            if root is None or (id not in state.proposals and all(known.step in FINAL for known in left)):
                continue
            if id in state.proposals:
                self._proposed[id] = plan.planned, root
                continue
            self._carry_out(root, id, [known.move for known in left if known.step not in FINAL], plan.answered or plan.at)
            self._plans[id].failed = sum(known.step in (Step.FAILED, Step.NOT_RECREATED) for known in left)
            for known in left:
                if known.step not in FINAL:
                    self._moves[known.id][0].go_on(*_at(state, known))

    def hear(self, state: ClusterState, record: Record, found: Examined) -> list[Span]:
        now = self._time = Millis(max(self._time, state.time))
        spans: list[Span] = []
        for decision in found.decisions:
            for event in decision.events:
                spans += self._of_pod(event, now, record)
                if record.family == "migration":
                    spans += self._of_move(state, event, now, record)
        return spans

    def rest(self) -> Iterator[Span]:
        """What has not ended at the log's end. Once only."""
        for story in [*self._pods.values(), *(story for story, _ in self._moves.values())]:
            yield from story.finish(self._time, open=True)
        for root in [*(plan.root for plan in self._plans.values()), *(root for _, root in self._proposed.values())]:
            root.end, root.open = self._time, True
            yield root

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _of_pod(self, event: object, now: Millis, record: Record) -> Iterator[Span]:
        match event:
            case e.PodObserved(pod=pod, node=node):
                if pod in self._pods and node:
                    yield from self._ends(pod, node, now)
                elif pod not in self._pods and not node and pod not in self._bound:
                    self._seen(event, now)
            case (e.PodPlaced(pod=pod, node=node) | e.HandedOver(pod=pod, node=node)) if pod in self._pods:
                story = self._pods[pod]
                decided = story.turn("bind", now)
                decided.values["restow.node"] = node
                decided.links += _decided_by(record)
                yield decided
            case e.PodReleased(pod=pod, reason=reason) if pod in self._pods:
                yield self._pods[pod].turn("wait", now, reason)
            case e.Nominated(pod=pod, node=node) if pod in self._pods:
                self._pods[pod].root.events.append(Happened(now, "nominated", {"restow.node": node}))
            case e.PodChanged(pod=pod, node=node) if node and pod in self._pods:
                yield from self._ends(pod, node, now)
            case e.PodGone(pod=pod):
                self._bound.discard(pod)
                if pod in self._pods:
                    yield from self._pods.pop(pod).finish(now, "it was deleted before it had a node")

    def _seen(self, fact: e.PodObserved, now: Millis) -> None:
        trace = trace_id(self._log_id, "pod", fact.pod)
        if sampled(trace, self._share):
            values: Values = {"k8s.namespace.name": fact.namespace, "k8s.pod.name": fact.name, "k8s.pod.uid": fact.pod}
            self._pods[fact.pod] = _Story(trace, "pod", "", SESSION, f"pod {fact.namespace}/{fact.name}", now, "wait", values)

    def _ends(self, pod: PodUid, node: str, now: Millis) -> tuple[Span, Span]:
        story = self._pods.pop(pod)
        self._bound.add(pod)
        story.root.values["k8s.node.name"] = node
        return story.finish(now)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def _of_move(self, state: ClusterState, event: object, now: Millis, record: Record) -> Iterator[Span]:
        match event:
            case e.Planned():
                yield from self._planned(event, now, record)
                yield from self._left_out(state, event.plan, now)
            case (e.PlanApproved(plan=id) | e.PlanRejected(plan=id) | e.PlanCancelled(plan=id)) if id in self._proposed:
                yield from self._answered(event, now)
                yield from self._left_out(state, id, now)
            case e.PlanCancelled(plan=id, reason=reason):
                for plan in [self._plans[id]] if id in self._plans else list(self._plans.values()) if not id else []:
                    plan.root.events.append(Happened(now, "cancelled", {"restow.reason": reason}))
                    # What had not begun is over with it, and says nothing of its own.
                    for move in sorted(plan.left):
                        known = state.migrations.get(move)
                        if known is None or known.step in FINAL:
                            yield from self._ended(move, now, reason)
        about: MigrationId | None = getattr(event, "migration", None)
        if about is None or about not in self._moves:
            return
        story, _ = self._moves[about]
        if isinstance(event, _ENDS):
            if isinstance(event, e.Landed):
                story.root.links.append(_pod_link(self._log_id, event.pod, "successor"))
            yield from self._ended(about, now, _error(event))
        elif (name := _NEXT.get(type(event))) is not None:
            turned = story.turn(name, now, getattr(event, "reason", "") if isinstance(event, e.TurningBack | e.Aborting) else "")
            turned.links += _decided_by(record)
            # A move that goes on in the commit in which it was held did not wait for that.
            if turned.end > turned.begin or turned.error:
                yield turned
        elif isinstance(event, e.Event):
            kind = str(event.__struct_config__.tag)
            told = getattr(event, "message", "")
            story.root.events.append(Happened(now, kind, {"restow.message": told} if told else {}))

    def _planned(self, event: e.Planned, now: Millis, record: Record) -> Iterator[Span]:
        root = self._root(event, now)
        if root is None:
            return
        root.links = _decided_by(record)
        if not event.moves or event.mode == OBSERVE:
            yield root
        elif event.mode:
            self._proposed[event.plan] = event, root
        else:
            self._carry_out(root, event.plan, event.moves, now)

    def _root(self, event: e.Planned, at: Millis) -> Span | None:
        """None where the plan's trace is not told."""
        trace = trace_id(self._log_id, "plan", event.plan)
        if not sampled(trace, self._share):
            return None
        values: Values = {"restow.plan": event.plan, "restow.plugin": event.plugin, "restow.trigger": event.trigger, "restow.moves": len(event.moves)}
        return Span(trace, span_id(trace, "plan"), "", DESCHEDULER, f"plan {event.plugin}", at, at, values, [], [])

    def _answered(self, event: e.PlanApproved | e.PlanRejected | e.PlanCancelled, now: Millis) -> Iterator[Span]:
        """Somebody says what becomes of a plan that was proposed."""
        planned, root = self._proposed.pop(event.plan)
        waited = Span(root.trace, span_id(root.trace, "approval"), root.id, DESCHEDULER, "wait for approval", root.begin, now, {}, [], [])
        if isinstance(event, e.PlanApproved):
            waited.values = {"restow.by": event.by}
            self._carry_out(root, event.plan, [move for move in planned.moves if not event.moves or move.migration in event.moves], now)
        else:
            by = f"{event.by}: " if isinstance(event, e.PlanRejected) else ""
            root.end, root.error = now, f"{by}{event.reason}"
            yield root
        yield waited

    def _left_out(self, state: ClusterState, id: PlanId, now: Millis) -> Iterator[Span]:
        """Of a plan that begins the moves whose pods are gone, say while it waited for a person: nothing is ever said of these again, and they are no failures."""
        for move in sorted(self._plans[id].left) if id in self._plans else ():
            if move not in state.migrations:
                yield from self._ended(move, now, LEFT_OUT)

    def _carry_out(self, root: Span, id: PlanId, moves: Sequence[Move], now: Millis) -> None:
        plan = self._plans[id] = _Plan(root, (move.migration for move in moves))
        for move in moves:
            story = _Story(root.trace, move.migration, root.id, DESCHEDULER, f"move {move.namespace}/{move.name}", now, "wait for its turn", _of(move))
            story.root.links.append(_pod_link(self._log_id, move.pod, "moved pod"))
            self._moves[move.migration] = story, plan

    def _ended(self, id: MigrationId, now: Millis, error: str) -> Iterator[Span]:
        story, plan = self._moves.pop(id)
        yield from story.finish(now, error)
        plan.left.discard(id)
        plan.failed += bool(error) and error != LEFT_OUT
        if not plan.left:
            plan.root.end = now
            plan.root.error = f"{plan.failed} move{'s' * (plan.failed != 1)} failed" if plan.failed else ""
            self._plans.pop(PlanId(str(plan.root.values["restow.plan"])), None)
            yield plan.root


def _at(state: ClusterState, known: Migration) -> tuple[str, Millis]:
    """What a move does, and since when."""
    if known.back:
        return "turn back", known.back
    consent = state.consents.get(known.id)
    if known.step is Step.HELD and consent is not None and not consent.given:
        return "ask", known.since
    return _DOES[known.step], known.since


def _of(move: Move) -> Values:
    return {
        "restow.migration": move.migration, "restow.source": move.source, "restow.target": move.target, "k8s.namespace.name": move.namespace,
        "k8s.pod.name": move.name, "k8s.pod.uid": move.pod,
    }  # fmt: skip


def _error(event: object) -> str:
    match event:
        case e.MigrationFailed(reason=reason, message=message):
            return f"{reason}: {message}".strip(": ")
        case e.NotRecreated():
            return "NotRecreated: nobody has made its successor"
    return ""


def _decided_by(record: Record) -> list[Link]:
    """To the span of the commit, which its service has exported where it exports any."""
    parts = record.envelope.traceparent.split("-")
    return [Link(parts[1], parts[2], f"commit {record.seq}")] if len(parts) == 4 else []


def _pod_link(log_id: str, pod: PodUid, what: str) -> Link:
    trace = trace_id(log_id, "pod", pod)
    return Link(trace, span_id(trace, "pod"), what)
