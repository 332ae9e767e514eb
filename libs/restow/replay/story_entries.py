"""Every event that concerns one thing, in order, with what it is tied to: the hold of a migration, the migration of a pod."""

from __future__ import annotations

from typing import Any

from restow.contracts import events as e
from restow.domain.groups import group_of
from restow.eventlog.port import Record
from restow.replay.find import Subject
from restow.replay.node_story import tell_around
from restow.replay.source import Source
from restow.replay.state_at import Progress, decode_record, no_progress
from restow.replay.story import OF_MEMBERS, Story, entry_of

_PASSES = 4
"""A pod leads to its hold, that to its migration, that to its plan: more is never to be learnt."""


def tell(source: Source, subject: Subject, progress: Progress = no_progress) -> Story:
    """The whole story. Reads the log again whenever it has learnt of something that it is tied to."""
    story = Story(subject, names={subject.id: _label(subject)})
    if subject.kind in ("node", "queue"):
        return tell_around(source, story, progress)
    if subject.kind != "podgroup":
        getattr(story, subject.kind + "s")[subject.id] = 0
    for _ in range(_PASSES):
        ties = _ties(story)
        story.entries = []
        teller = _Teller(story, source.log_id)
        for batch in source.batches():
            for record in batch:
                teller.hear(record)
            progress(batch[-1].seq, source.last)
        if _ties(story) == ties:
            break
    return story


def _label(subject: Subject) -> str:
    return f"{subject.namespace}/{subject.name}".removeprefix("/") if subject.kind != "migration" else subject.name


def _ties(story: Story) -> tuple:
    return tuple(story.pods), tuple(story.reservations), tuple(story.migrations), tuple(story.nameless)


class _Teller:
    """One pass. Ties grow while it listens: what came before the tie was known is heard in the next pass."""

    def __init__(self, story: Story, log_id: str) -> None:
        self._story, self._subject, self._log_id = story, story.subject, log_id
        self._shape, self._waits = "", False
        self._group = (subject.namespace, subject.name) if (subject := story.subject).kind == "podgroup" else None
        """The group that is told of, or that the pod belongs to."""
        self._plans: dict[str, None] = {}
        """Plans about the subject that a person is asked about."""
        self._under = ""
        """What the pod was told to wait under: what is said of that later is said of it, too."""
        self._needles = self._all_needles()

    def _all_needles(self) -> list[bytes]:
        story = self._story
        ids = [*story.pods, *story.reservations, *story.migrations, *story.nameless, *self._plans, self._shape, self._group[1] if self._group else ""]
        return [id.encode() for id in ids if id]

    def hear(self, record: Record) -> None:
        body = record.body
        if not any(needle in body for needle in self._needles):
            return
        for index, decision in enumerate(decode_record(record, self._log_id)):
            heard: dict[type, list[Any]] = {}
            for event in decision.events:
                self._name(event)
                if self._concerns(event, record.seq):
                    self._learn(event, record.seq)
                    if self._subject.kind == "podgroup" and isinstance(event, OF_MEMBERS):
                        heard.setdefault(type(event), []).append(event)
                    else:
                        self._story.entries.append(entry_of(self._story, record, index, decision, event))
            self._story.entries += [entry_of(self._story, record, index, decision, *alike) for alike in heard.values()]
        self._needles = self._all_needles()

    def _name(self, event: Any) -> None:
        if isinstance(event, e.PodObserved) and event.pod in self._story.nameless:
            self._story.names[event.pod] = f"{event.namespace}/{event.name}"

    def _concerns(self, event: Any, seq: int) -> bool:
        story = self._story
        if self._subject.kind == "podgroup":
            return self._concerns_group(event)
        match event:
            case e.Withheld(group=group, pods=pods):
                mine = self._group is not None and group == "/".join(self._group)
                return any(pod in story.pods for pod in pods) or (mine and self._waits)
            case e.Enqueued(namespace=namespace, group=name):
                return self._group == (namespace, name)
            case e.Preempted(by=by) if self._is_me(by):
                return True
            case e.Unfit(shape=shape, key=key, pods=pods):
                return any(pod in story.pods for pod in pods) or (self._waits and (key or shape) == self._under)
            case e.Planned(moves=moves):
                return any(move.migration in story.migrations or self._is_me(move.pod) for move in moves)
            case e.PlanApproved(plan=plan) | e.PlanRejected(plan=plan):
                return plan in self._plans
            case e.LookedBack(moves=moves):
                return any(move.migration in story.migrations for move in moves)
            case e.ReservationObserved(reservation=uid, migration=migration):
                return uid in story.reservations or (bool(migration) and migration in story.migrations)
        pod = getattr(event, "pod", None)
        if pod is not None and (self._is_me(pod) or story.pods.get(pod, seq) < seq):
            return True
        return getattr(event, "reservation", None) in story.reservations or getattr(event, "migration", None) in story.migrations

    def _concerns_group(self, event: Any) -> bool:
        match event:
            case e.PodGroupObserved(namespace=namespace, name=name) | e.PodGroupGone(namespace=namespace, name=name):
                return self._group == (namespace, name)
            case e.Enqueued(namespace=namespace, group=name):
                return self._group == (namespace, name)
            case e.Withheld(group=group, pods=pods):
                return group == "/".join(self._group or ()) or any(pod in self._story.pods for pod in pods)
            case e.Unfit(pods=pods):
                return any(pod in self._story.pods for pod in pods)
            case e.PodObserved():
                return group_of(event) == self._group
        return isinstance(event, OF_MEMBERS) and event.pod in self._story.pods

    def _is_me(self, pod: str) -> bool:
        return self._subject.kind == "pod" and pod == self._subject.id

    def _learn(self, event: Any, seq: int) -> None:
        story, kind = self._story, self._subject.kind
        match event:
            case e.HandedOver(pod=pod) | e.HoldBorrowed(pod=pod) | e.Landed(pod=pod) if pod not in story.names:
                story.nameless[pod] = None
            case e.Preempted(pod=pod, by=by):
                story.nameless |= {uid: None for uid in (pod, by) if uid not in story.names}
            case e.Nominated(victims=victims):
                story.nameless |= {uid: None for uid in victims if uid not in story.names}
        match event:
            case e.PodObserved(pod=uid, shape=shape, node=node, namespace=namespace, name=name):
                story.names[uid] = f"{namespace}/{name}"
                if kind == "podgroup":
                    story.pods.setdefault(uid, seq)
                elif self._is_me(uid):
                    self._group = group_of(event)
                if self._is_me(uid):
                    self._shape, self._waits = shape, node is None
            case e.Unfit(shape=shape, key=key, pods=pods) if any(map(self._is_me, pods)):
                self._under = key or shape
            case e.Withheld(pods=pods) if any(map(self._is_me, pods)):
                self._under = ""
            case e.PodPlaced(pod=uid) | e.PodGone(pod=uid) if self._is_me(uid):
                self._waits = False
            case e.PodReleased(pod=uid) if self._is_me(uid):
                self._waits = True
            case e.PodChanged(pod=uid, node=node) if self._is_me(uid):
                self._waits = self._waits and node is None
            case e.HandedOver(pod=uid, reservation=reservation):
                self._waits = self._waits and not self._is_me(uid)
                if self._is_me(uid):
                    story.reservations.setdefault(reservation, seq)
                elif kind == "migration":
                    story.pods.setdefault(uid, 0)
            case e.ReservationObserved(reservation=uid, migration=migration, namespace=namespace, name=name):
                story.names[uid] = f"{namespace}/{name}".removeprefix("/")
                story.reservations.setdefault(uid, seq)
                if migration:
                    story.migrations.setdefault(migration, seq)
            case e.Planned(moves=moves, plan=plan, mode=mode):
                if mode == "propose":
                    self._plans[plan] = None
                for move in moves:
                    if self._is_me(move.pod):
                        story.migrations.setdefault(move.migration, seq)
                    elif kind == "migration" and move.migration in story.migrations:
                        story.names.setdefault(move.pod, f"{move.namespace}/{move.name}")
                        story.pods.setdefault(move.pod, seq)
