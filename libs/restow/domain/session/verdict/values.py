"""What a verdict says, as values."""

import msgspec

from restow.contracts.ids import Millis, NodeName, PodUid


class Relief(msgspec.Struct, frozen=True):
    """One change that would let it fit, alone, and on how many nodes; 0 where it is not about nodes."""

    change: str
    nodes: int = 0


class Block(msgspec.Struct, frozen=True):
    """What it waits for that is not a node: `reason` as the session says it, and a sentence."""

    reason: str
    message: str


class GangFit(msgspec.Struct, frozen=True):
    """How far a gang gets now: of `need` members `ready` have their slot, of the `waiting` ones `fit` fit at the same time.
    `first` (`namespace/name`) is the first that does not, and `reasons` counts the nodes that rules remove for it beside the
    others."""

    group: str
    need: int
    ready: int
    waiting: int
    fit: int
    complete: bool
    first: str = ""
    nodes: int = 0
    reasons: dict[str, int] = {}
    quota: str = ""


class SlotsFit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a Reservation gets now: of its slots `have` are held or used, where `need` must be for it to be Available; of
    the `waiting` ones `fit` fit at the same time, and all of them where it is `complete`. `first` is the first slot that does
    not, and `reasons` counts the nodes, of `nodes`, that rules remove for it beside the others; `quota` is what its queue
    says."""

    need: int
    have: int
    waiting: int
    fit: int
    complete: bool
    first: str = ""
    nodes: int = 0
    reasons: dict[str, int] = {}
    quota: str = ""
    blocks: tuple[Block, ...] = ()
    reliefs: tuple[Relief, ...] = ()


class Nominee(msgspec.Struct, frozen=True):
    """What is held for a pod on `node` until `deadline` (ms). `missing` is still to be freed, by resource in canonical units;
    `victims` (uids) go for it."""

    node: NodeName
    deadline: Millis
    missing: dict[str, int] = {}
    victims: tuple[PodUid, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """How a node compared, at the read of the commit that chose it: `score` of the chosen one, the best of the others, and
    how many nodes the pod fitted on. Scores are sums of weighted scorers, 10 000 · weight each at most."""

    node: NodeName
    score: int
    fits: int
    next: NodeName = NodeName("")
    next_score: int = 0


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """`status`: bound, placed, nominated, waiting, finished, terminating, gated or foreign (another scheduler's). `reasons`
    counts the nodes that each rule removes, of `nodes`; `fits` are left. `beyond_us`: no rule can say where it would fit (its request cannot be read). `reserved` says what a starving job's task waits
    for; `takes` names the hold that it may take."""

    pod: PodUid
    status: str
    node: NodeName | None = None
    hold: str = ""
    nodes: int = 0
    reasons: dict[str, int] = {}
    fits: int = 0
    reliefs: tuple[Relief, ...] = ()
    blocks: tuple[Block, ...] = ()
    gang: GangFit | None = None
    nominee: Nominee | None = None
    evicted_for: str = ""
    reserved: str = ""
    takes: str = ""
    beyond_us: bool = False
