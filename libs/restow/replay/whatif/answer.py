"""The question and its answer: what happened, the same by the model, and what would have happened."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.config import digest_of
from restow.domain.state import ClusterState
from restow.replay.source import Source
from restow.replay.state_at import Progress, ReplayError, no_progress
from restow.replay.whatif.meter import Measured
from restow.replay.whatif.model import Model, Ran, fresh
from restow.replay.whatif.reading import Stretch, read
from restow.replay.whatif.recorded import Arrive, Item, Leave, Lose, Recorded, Step

UNKNOWN = (
    "how long services, API and kubelets take under another load: decisions take no time, and everything else as long as it was recorded of the pod, or the median",
    "what other schedulers would have done: their pods come, stay and go as recorded",
    "controllers: a pod that was deleted is deleted at the same time, whenever it started; one that ended by itself runs as long as it was seen to run, and begins anew if it is evicted",
    "pods that had not ended at the log's end, and those that never got a node: they do not end",
    "disruption budgets and quotas: as recorded, and no eviction is refused by the API",
    "users: whoever would have acted otherwise; a workload that is asked whether its pod may go agrees at once; marks on nodes, cordons of emptied nodes and metrics are not made again",
)
"""What the model does not know."""


PASSING = (
    "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/",
    "startup-taint.cluster-autoscaler.kubernetes.io/", "ignore-taint.cluster-autoscaler.kubernetes.io/",
)  # fmt: skip
"""How keys of taints begin that say what a node is like just now, or that it is to go."""
STARTING = "/agent-not-ready"
"""How those end that a network or storage driver takes off once it runs there."""


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """What is to be different. `policy`, `scheduler`: canonical JSON of a MigrationConfig, a SessionConfig; empty for as recorded. `nodes`: (how many more, class); fewer where negative.
    `without`: workloads, as `namespace/name` or `namespace/Kind/name`."""

    policy: str = ""
    scheduler: str = ""
    nodes: tuple[tuple[int, str], ...] = ()
    without: tuple[str, ...] = ()


class Error(msgspec.Struct, frozen=True, rename="camel"):
    """How far the model under the recorded configuration is from the record: of all `placements` (moves included) so many are the `same`. `others` decisions were made by
    other versions of the deciders."""

    placements: int
    same: int
    others: int

    @property
    def percent(self) -> float | None:
        """Rounded down to a tenth, so that 100 means all. None where nothing was placed: then nothing is known of the error."""
        return self.same * 1000 // self.placements / 10 if self.placements else None

    @property
    def told(self) -> str:
        """For people."""
        if self.percent is None:
            return "Nothing was placed here: how far the model is from the record is not known"
        return f"The model decides {self.same} of {self.placements} placements as recorded ({self.percent:g} %)"


class Answer(msgspec.Struct, rename="camel"):
    """`changed` is None where nothing is to be different. `seq`: the commits that had led to what was there at the begin; 0 where it begins with the log."""

    name: str
    first: Millis
    last: Millis
    error: Error
    recorded: Measured
    model: Measured
    changed: Measured | None
    refused: list[str]
    unanswered: dict[str, int]
    unknown: tuple[str, ...]
    seq: int = 0


class Begin(msgspec.Struct, frozen=True):
    """What part of a log is looked at. `state`: where the log's beginning is not there any more, that of a snapshot."""

    stretch: Stretch = Stretch()
    state: ClusterState | None = None


def answer(source: Source, change: Change = Change(), progress: Progress = no_progress, begin: Begin = Begin()) -> Answer:
    """Read the log (`reading.read`), run the model as recorded, and once more with the change. Raises ReplayError."""
    recorded = read(source, begin.stretch, begin.state)
    changed_world(recorded, change)  # Refuses what cannot be asked before the model runs.
    parts = 1 if change == Change() else 2
    same = run(recorded, Change(), lambda done, total: progress(done, total * parts))
    other = None if change == Change() else run(recorded, change, lambda done, total: progress(total + done, total * parts))
    said = same if other is None else other
    return Answer(
        recorded.name, recorded.first, recorded.last, error_of(recorded, same), recorded.happened, same.measured, None if other is None else other.measured,
        said.refused, said.unanswered, UNKNOWN, recorded.seq,
    )  # fmt: skip


def run(recorded: Recorded, change: Change, progress: Progress = no_progress) -> Ran:
    """The model with the change. Raises ReplayError."""
    return Model(changed_world(recorded, change), lambda workload: _is_one_of(workload, change.without)).run(progress)


def error_of(recorded: Recorded, ran: Ran) -> Error:
    """Placement by placement of each pod and what came in its place; not those from before the stretch."""
    pairs = [(life.nodes[life.bound :], nodes[life.bound :]) for life, nodes in zip(recorded.lives, ran.nodes, strict=True)]
    same = sum(sum(a == b for a, b in zip(one, other, strict=False)) for one, other in pairs)
    return Error(sum(max(len(one), len(other)) for one, other in pairs), same, recorded.others)


def changed_world(recorded: Recorded, change: Change) -> Recorded:
    """The same record with other configurations and nodes. Raises ReplayError where a node class or a workload is not in it."""
    for name in change.without:
        if not any(_is_one_of(life.workload, (name,)) for life in recorded.lives):
            known = sorted({life.workload for life in recorded.lives})
            raise ReplayError(f"no pod of {name} came in this log; allowed: namespace/name of one of its {len(known)} workloads, such as {', '.join(known[:3])}")
    steps = _configured(recorded, recorded.steps, e.MigrationConfigured, change.policy)
    steps = _configured(recorded, steps, e.SessionConfigured, change.scheduler)
    names, gone = set(recorded.nodes), set[NodeName]()
    # The first of a class may itself be taken away: where its copies come is looked up before that.
    for more, kind in sorted(change.nodes, key=lambda one: one[0] < 0):
        steps = _with_nodes(recorded, steps, more, kind, names, gone)
    return msgspec.structs.replace(recorded, steps=steps)


def _configured(recorded: Recorded, steps: list[Step], kind: type[e.Configured], text: str) -> list[Step]:
    """With this instead of every such configuration in the log; from the first of them on, or from the start where there was one before."""
    if not text:
        return steps
    event, done, found = kind(text, digest_of(text)), bool(recorded.begin), []
    for step in steps:
        items: list[Item] = []
        for item in step.items:
            if not isinstance(item, kind):
                items.append(item)
            elif not done:
                items.append(event)
                done = True
        found.append(Step(step.time, items))
    return found if done and not recorded.begin else [Step(recorded.first, [event]), *found]


def _with_nodes(recorded: Recorded, steps: list[Step], more: int, kind: str, names: set[NodeName], gone: set[NodeName]) -> list[Step]:
    """`names` that are taken and nodes that are `gone` by now; both grow, so that what is asked for twice is added up."""
    alike = sorted(name for name, node in recorded.nodes.items() if name == kind or kind in node.labels.values())
    if not alike:
        raise ReplayError(f"no node is {kind}; allowed: the name of a node of this log, or the value of one of its labels, such as {', '.join(sorted(recorded.nodes)[:3])}")
    if more < 0:
        left = [name for name in alike if name not in gone]
        if -more > len(left):
            raise ReplayError(f"{-more} nodes of {kind} are to be taken away, and there are {len(left)}{' others' if len(left) < len(alike) else ''}")
        less = set(left[more:])
        gone |= less
        lost: list[Item] = [Lose(name) for name in sorted(less & recorded.there)]
        return [*([Step(recorded.first, lost)] if lost else []), *(Step(step.time, [item for item in step.items if not _is_on(item, less, recorded)]) for step in steps)]
    model = recorded.nodes[NodeName(alike[0])]
    free = (name for number in itertools.count(1) if (name := NodeName(f"whatif-{kind}-{number}")) not in names)
    made = list(itertools.islice(free, more))
    names |= set(made)
    details = recorded.details.get(model.name, {}).values()
    new: list[Item] = [one for name in made for one in (_copy(model, name), *(msgspec.structs.replace(detail, node=name) for detail in details))]
    own = [Step(since, [_own(pod, name) for name in made]) for since, pod in recorded.of_nodes.get(model.name, ())]
    if model.name in recorded.there:
        return _merged([Step(recorded.first, new), *steps], own)
    at = next(number for number, step in enumerate(steps) if any(isinstance(item, e.NodeObserved) and item.name == model.name for item in step.items))
    return _merged([*steps[: at + 1], Step(steps[at].time, new), *steps[at + 1 :]], own)


def _merged(steps: list[Step], others: list[Step]) -> list[Step]:
    """By time; at one instant the `others` come last."""
    return sorted([*steps, *others], key=lambda step: step.time)


def _copy(node: e.NodeObserved, name: NodeName) -> e.NodeObserved:
    """Another one of its kind, ready and empty."""
    labels = {key: name if text == node.name else text for key, text in node.labels.items()}
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(PASSING) and not taint.key.endswith(STARTING))
    return msgspec.structs.replace(node, name=name, uid=f"uid-{name}", labels=labels, ready=True, unschedulable=False, unreadable="", do_not_disrupt=False, marks={}, taints=taints)


def _own(pod: e.PodObserved, node: NodeName) -> e.PodObserved:
    """Another one of a DaemonSet, or of what a kubelet runs by itself, on its node."""
    pinned = node if pod.pinned_node else NodeName("")
    return msgspec.structs.replace(fresh(pod), pod=PodUid(f"{pod.pod}-{node}"), name=f"{pod.name}-{node}", pinned_node=pinned, node=node, phase="Running", ready=True)


def _is_on(item: Item, gone: set[NodeName], recorded: Recorded) -> bool:
    """Whether it is of one of these nodes, or of a pod that was there from the start or by somebody else's hand, or that is of this node alone."""
    match item:
        case e.NodeObserved(name=name) | Leave(node=name):
            return name in gone
        case Arrive(life=life):
            item = recorded.lives[life].facts[0]
    if isinstance(item, e.PodObserved) and item.pinned_node in gone:
        return True
    return getattr(item, "node", None) in gone


def _is_one_of(workload: str, names: Iterable[str]) -> bool:
    namespace, _, name = workload.split("/", 2)
    return any(said in (workload, f"{namespace}/{name}") for said in names)

