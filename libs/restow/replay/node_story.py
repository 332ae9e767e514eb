"""The story of a node or a queue: what is told of itself, and who came and went."""

from __future__ import annotations

from typing import Any

from restow.contracts import events as e
from restow.domain.accounts import DEFAULT_QUEUE
from restow.replay.source import Source
from restow.replay.state_at import Progress, decode_record
from restow.replay.story import Story, entry_of


def tell_around(source: Source, story: Story, progress: Progress) -> Story:
    """Fills a story of a node or queue; one pass, for everything that it is tied to is told before."""
    hear = _Node(story).hear if story.subject.kind == "node" else _Queue(story).hear
    for batch in source.batches():
        for record in batch:
            for index, decision in enumerate(decode_record(record, source.log_id)):
                heard: dict[type, list[Any]] = {}
                for event in decision.events:
                    if hear(event):
                        heard.setdefault(type(event), []).append(event)
                story.entries += [entry_of(story, record, index, decision, *alike) for alike in heard.values()]
        progress(batch[-1].seq, source.last)
    return story


class _Node:
    """Pods are tied to it while they are on it, or are to come."""

    def __init__(self, story: Story) -> None:
        self._story, self._name = story, story.subject.name

    def hear(self, event: Any) -> bool:
        story, name = self._story, self._name
        match event:
            case e.NodeObserved(name=other) | e.NodeGone(name=other):
                return other == name
            case e.PodObserved(pod=uid, namespace=namespace, node=node):
                story.names[uid] = f"{namespace}/{event.name}"
                return self._tie(uid, node)
            case e.PodChanged(pod=uid, node=node):
                return self._tie(uid, node)
            case e.ReservationObserved(reservation=uid, namespace=namespace):
                story.names[uid] = f"{namespace}/{event.name}".removeprefix("/")
                return False
            case e.PodGone(pod=uid) | e.PodReleased(pod=uid):
                return story.pods.pop(uid, None) is not None
            case e.Preempted(pod=uid):
                return uid in story.pods
            case e.PodPlaced(pod=uid, node=node) | e.HandedOver(pod=uid, node=node):
                return self._tie(uid, node)
            case e.Planned(moves=moves):
                mine = {str(move.migration): 0 for move in moves if name in (move.source, move.target)}
                story.migrations |= mine
                return bool(mine)
        return getattr(event, "node", None) == name

    def _tie(self, uid: str, node: str | None) -> bool:
        """Told where it comes, and where it is seen to have gone elsewhere; not each of its phases between."""
        pods = self._story.pods
        if node == self._name:
            new = uid not in pods
            pods[uid] = 0
            return new
        return node is not None and pods.pop(uid, None) is not None


class _Queue:
    """Its PodGroups are tied to it as long as they name it."""

    def __init__(self, story: Story) -> None:
        self._name, self._groups = story.subject.name, dict[str, None]()

    def hear(self, event: Any) -> bool:
        match event:
            case e.QueueObserved(name=name) | e.QueueGone(name=name):
                return name == self._name
            case e.PodGroupObserved(namespace=namespace, name=name, queue=queue):
                mine, group = (queue or DEFAULT_QUEUE) == self._name, f"{namespace}/{name}"
                was = group in self._groups
                if mine:
                    self._groups[group] = None
                else:
                    self._groups.pop(group, None)
                return mine or was
            case e.PodGroupGone(namespace=namespace, name=name):
                return self._groups.pop(f"{namespace}/{name}", 0) is None
            case e.Enqueued(namespace=namespace, group=name):
                return f"{namespace}/{name}" in self._groups
            case e.Withheld(group=group):
                return group in self._groups
        return False
