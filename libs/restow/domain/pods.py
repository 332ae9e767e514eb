"""What is known of a pod, and how all pods stand in a snapshot."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from restow.contracts.events import PodChanged, PodObserved
from restow.contracts.ids import PodUid
from restow.domain.snapshot_columns import Columns
from restow.domain.state_attributes import Image


class Pod(msgspec.Struct, gc=False):
    """`fact` is its description, `live` its moving part (what the description says of that is older), `order` tells who came first.

    A run changes the moving part in place (`restow.domain.event_runs`), which is never in a draft; all others put another record here."""

    fact: PodObserved
    live: PodChanged
    order: int


_FACTS = Columns(PodObserved, ("pod", "name", "created", "started"), ("namespace", "shape", "owner", "node", "devices", "well"))
_LIVE = Columns(PodChanged, ("started",), ("node", "devices", "well"), known=("pod",))


def _dump(state: Any, pods: Mapping[PodUid, Pod]) -> tuple[Any, Any, list[int]]:
    known = list(pods.values())
    return _FACTS.dump([pod.fact for pod in known]), _LIVE.dump([pod.live for pod in known]), [pod.order for pod in known]


def _load(state: Any, said: tuple[Any, Any, list[int]]) -> dict[PodUid, Pod]:
    facts, live = _FACTS.load(said[0]), _LIVE.load(said[1])
    uids = [fact.pod for fact in facts]
    _LIVE.set(live, "pod", uids)
    return {uid: Pod(*known) for uid, *known in zip(uids, facts, live, said[2], strict=True)}


IMAGE = Image({"pods": _FACTS.type, "live": _LIVE.type, "order": list[int]}, _dump, _load)


def numbers(pods: Iterable[PodUid], chosen: Iterable[PodUid]) -> list[int]:
    """Of each that is chosen its place among the pods."""
    at = {pod: i for i, pod in enumerate(pods)}
    return [at[pod] for pod in chosen]
