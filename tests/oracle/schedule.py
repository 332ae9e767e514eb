"""A session, slowly: one job after another, one pod after another, one node after another.

Jobs in order of priority, then of arrival; a pod without a PodGroup is a job of its own. A gang places its tasks in order
(priority, then arrival), each on the best node as things stand, until it is ready, and keeps them only then; the rest
comes one by one, whenever it is the job's turn again. Pods that ask for nothing (BestEffort) come after all others, as action `backfill` follows `allocate`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from oracle.filters import FILTERS, OF_NODES, Filter, pick_devices, reason_counts, why_not
from oracle.scores import Score, least_allocated
from oracle.volumes import choose_volumes
from oracle.world import FINISHED, World
from restow.contracts import events as e
from restow.contracts.values import ClaimChoice, DeviceShare

GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
TASK_KEY = "volcano.sh/task-spec"


@dataclass(frozen=True)
class Rules:
    """What a configuration decides. `backfill`: BestEffort pods wait for all others to be served. `order`: the job with
    the least is next; asked again at every turn. `together`: by pod, where a session has found nodes for gangs that no order gets complete; it is believed
    where each of them does fit there."""

    score: Score = least_allocated
    filters: tuple[Filter, ...] = FILTERS
    schedulers: tuple[str, ...] = ("restow",)
    default_queue: str = "default"
    backfill: bool = True
    order: Callable[[World, "Job"], tuple] = lambda world, job: (-job.priority, job.arrival)
    together: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Placement:
    node: str
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()


@dataclass
class Result:
    """`unfit[pod]`: nodes by reason at the moment when the pod was tried and nothing fitted. `withheld[pod]`: what else
    it waits for: `group` (unknown, too few, or discarded as a whole) or `queue`."""

    placed: dict[str, Placement] = field(default_factory=dict)
    unfit: dict[str, dict[str, int]] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """`group` is `namespace/name`, or "" for a pod of its own. `pods` are those that wait, in task order."""

    priority: int
    arrival: int
    pods: tuple[e.PodObserved, ...]
    group: str = ""


def group_of(pod: e.PodObserved) -> str:
    for key in GROUP_KEYS:
        if pod.annotations.get(key):
            return f"{pod.namespace}/{pod.annotations[key]}"
    return ""


def waits(world: World, pod: e.PodObserved, rules: Rules) -> bool:
    """Ours, without a node, and free to go."""
    ours = world.shape(pod).scheduler in rules.schedulers
    here = pod.pod in world.where or pod.node or pod.phase in FINISHED
    return ours and not here and not pod.gated and not pod.deleting


def best_effort(world: World, pod: e.PodObserved) -> bool:
    shape = world.shape(pod)
    return not shape.devices and not any(v for k, v in shape.requests.items() if k != "pods")


def jobs(world: World, rules: Rules) -> list[Job]:
    waiting = [pod for pod in world.pods.values() if waits(world, pod, rules)]
    by_group: dict[str, list[e.PodObserved]] = {}
    for pod in waiting:
        by_group.setdefault(group_of(pod) or f"pod {pod.pod}", []).append(pod)
    found = []
    for key, members in by_group.items():
        members.sort(key=lambda p: (-world.shape(p).priority, world.arrival[p.pod]))
        if key.startswith("pod "):
            found.append(Job(world.shape(members[0]).priority, world.arrival[members[0].pod], tuple(members)))
        else:
            arrival = world.arrival.get(key, world.arrival[members[0].pod])
            found.append(Job(group_priority(world, key, members), arrival, tuple(members), key))
    return found


def group_priority(world: World, group: str, members: list[e.PodObserved]) -> int:
    """The group's PriorityClass, where it is known; otherwise the highest of its pods."""
    known = world.groups.get(group)
    if known is not None and known.priority_class in world.priority_classes:
        return world.priority_classes[known.priority_class].value
    return max(world.shape(pod).priority for pod in members)


# -- one pod ---------------------------------------------------------------------------------------------------------


def best_node(world: World, pod: e.PodObserved, rules: Rules) -> str | None:
    """The highest score, the first name among equals."""
    able = [node for node in world.nodes.values() if not why_not(world, pod, node, rules.filters)]
    if not able:
        return None
    return min(able, key=lambda node: (-rules.score(world, pod, node), node.name)).name


def over_capability(world: World, pod: e.PodObserved, rules: Rules) -> bool:
    """Whether the pod's queue would then use more than its capability of a resource that it names."""
    queue = world.queues.get(queue_of(world, pod, rules))
    for resource, most in queue.capability.items() if queue else ():
        asked = world.shape(pod).requests.get(resource, 0)
        if asked > 0 and allocated(world, queue_of(world, pod, rules), resource, rules) + asked > most:
            return True
    return False


def queue_of(world: World, pod: e.PodObserved, rules: Rules) -> str:
    known = world.groups.get(group_of(pod))
    return known.queue if known is not None and known.queue else rules.default_queue


def allocated(world: World, queue: str, resource: str, rules: Rules) -> int:
    total = 0
    for uid in world.where:
        pod = world.pods[uid]
        if world.shape(pod).scheduler in rules.schedulers and queue_of(world, pod, rules) == queue:
            total += world.shape(pod).requests.get(resource, 0)
    return total


def place(world: World, pod: e.PodObserved, rules: Rules, result: Result) -> None:
    """Put one pod on its best node, or say why there is none."""
    if over_capability(world, pod, rules):
        result.withheld[pod.pod] = "queue"
        return
    name = best_node(world, pod, rules)
    if name is None:
        result.unfit[pod.pod] = reason_counts(world, pod, rules.filters)
        return
    put(world, pod, name, result)


def put(world: World, pod: e.PodObserved, name: str, result: Result) -> None:
    """One pod on this node."""
    ask = world.shape(pod).devices
    devices = pick_devices(world.device_free(name), ask) if ask else ()
    volumes = choose_volumes(world, pod, world.nodes[name])
    result.placed[pod.pod] = Placement(name, devices or (), volumes or ())
    world.place(pod.pod, name, devices or (), volumes or ())


# -- one job ---------------------------------------------------------------------------------------------------------


def members(world: World, group: str) -> list[e.PodObserved]:
    """Those of the group that have a node or have done their work."""
    done = [pod for pod in world.pods.values() if pod.pod in world.where or pod.phase == "Succeeded"]
    return [pod for pod in done if group_of(pod) == group]


def enough(group: e.PodGroupObserved, having: list[e.PodObserved]) -> bool:
    tasks = Counter(pod.annotations.get(TASK_KEY, "") for pod in having)
    return len(having) >= group.min_member and all(tasks[t] >= n for t, n in group.min_task_member.items())


def helps(group: e.PodGroupObserved, having: list[e.PodObserved], pod: e.PodObserved) -> bool:
    """Whether it brings a gang that is not complete nearer to that: not where all places that it needs yet are other tasks' (G-17)."""
    tasks = Counter(pod.annotations.get(TASK_KEY, "") for pod in having)
    lacking = {t: n - tasks[t] for t, n in group.min_task_member.items() if n > tasks[t]}
    if not lacking or pod.annotations.get(TASK_KEY, "") in lacking:
        return True
    return group.min_member - len(having) > sum(lacking.values())


def sociable(world: World, pod: e.PodObserved) -> bool:
    """Who may fit because somebody else has come."""
    shape = world.shape(pod)
    hard = any(s.when_unsatisfiable == "DoNotSchedule" for s in shape.spread)
    return hard or any(not term.weight for term in shape.pod_affinity)


def size(world: World, pod: e.PodObserved) -> int:
    """The largest part of all nodes together that it asks for, of any resource, in billionths."""
    shape, whole = world.shape(pod), Counter[str]()
    for node in world.nodes.values():
        whole.update(node.allocatable)
        whole["devices"] += 1000 * node.devices
    asks = {**shape.requests, "devices": shape.devices.count * shape.devices.milli if shape.devices else 0}
    return max((n * 10**9 // whole[r] if whole[r] > 0 else 10**9 for r, n in asks.items() if n > 0), default=0)


def other_orders(world: World, job: Job, rules: Rules) -> Iterator[list[e.PodObserved]]:
    """Those first that the fewest nodes take now (then: at all), the larger of them first; and where fewer than all would do, the smallest first."""
    group = world.groups[job.group]
    able = {pod.pod: sum(not why_not(world, pod, node, rules.filters) for node in world.nodes.values()) for pod in job.pods}
    ever = {pod.pod: sum(not any(rule(world, pod, node) for rule in OF_NODES) for node in world.nodes.values()) for pod in job.pods}
    yield sorted(job.pods, key=lambda pod: (able[pod.pod], ever[pod.pod], -size(world, pod)))
    if len(members(world, job.group)) + len(job.pods) > group.min_member:
        yield sorted(job.pods, key=lambda pod: size(world, pod))


def try_gang(world: World, job: Job, order: list[e.PodObserved], rules: Rules) -> Result:
    """The gang in this order; nothing is placed where it is not complete then. Who may fit beside others is tried again when others have come."""
    group, trial, left, again, before = world.groups[job.group], Result(), order, [], 0
    first: dict[str, dict[str, int]] = {}
    while not enough(group, members(world, job.group)):
        if not left:
            if not again or len(trial.placed) == before:
                return Result({}, first, {pod.pod: "group" for pod in job.pods if pod.pod not in first} | trial.withheld)
            left, again, before = again, [], len(trial.placed)
        pod, *left = left
        if not helps(group, members(world, job.group), pod):
            continue
        place(world, pod, rules, trial)
        if pod.pod in trial.unfit:
            first.setdefault(pod.pod, trial.unfit.pop(pod.pod))
            if sociable(world, pod):
                again.append(pod)
    return Result(trial.placed)


def place_gang(world: World, job: Job, rules: Rules, result: Result) -> Job | None:
    """As many tasks as make the gang ready, or nothing; one task where it is ready already. Where they are not enough in task order, others
    are tried (G-17). What is left of the job is returned, to wait for its turn."""
    group = world.groups.get(job.group)
    if group is None or group.invalid or group.deleting or not enough(group, [*members(world, job.group), *job.pods]):
        result.withheld.update((pod.pod, "group") for pod in job.pods)
        return None
    mark, left = world.mark(), list(job.pods)
    if enough(group, members(world, job.group)):
        trial = Result()
        while left and not trial.placed:
            place(world, left.pop(0), rules, trial)
    else:
        trial = try_gang(world, job, left, rules)
        if not trial.placed:
            world.back_to(mark)
            # All of them now: which nodes take a pod is asked while none of the gang is anywhere.
            for order in list(other_orders(world, job, rules)):
                second = try_gang(world, job, order, rules)
                if second.placed:
                    trial = second
                    break
                world.back_to(mark)
            else:
                trial = as_found(world, job, rules) or trial
        left = [pod for pod in left if pod.pod not in trial.placed] if trial.placed else []
    for kept, found in zip(astuple(result), astuple(trial), strict=True):
        kept.update(found)
    return Job(job.priority, job.arrival, tuple(left), job.group) if left else None


def as_found(world: World, job: Job, rules: Rules) -> Result | None:
    """The gang on the nodes that the session has found for it (G-17: the best node for one may leave no node for another), if they take it."""
    mark, found = world.mark(), Result()
    for pod in job.pods:
        name = rules.together.get(pod.pod)
        if name is None or enough(world.groups[job.group], members(world, job.group)):
            continue
        if over_capability(world, pod, rules) or why_not(world, pod, world.nodes[name], rules.filters):
            break
        put(world, pod, name, found)
    if enough(world.groups[job.group], members(world, job.group)):
        return found
    world.back_to(mark)
    return None


def astuple(result: Result) -> tuple[dict, dict, dict]:
    return result.placed, result.unfit, result.withheld


def unready_first(world: World, job: Job) -> tuple:
    """Plugin gang: among equal priorities, what is not complete (a lone pod that waits is a gang of one) comes before more
    pods of gangs that are."""
    group = world.groups.get(job.group)
    unready = group is None or not enough(group, members(world, job.group))
    return -job.priority, not unready, job.arrival


def run(world: World, rules: Rules) -> Result:
    """The whole session. The world is afterwards as the session leaves it."""
    result = Result()
    todo = jobs(world, rules)
    late = [job for job in todo if rules.backfill and not job.group and best_effort(world, job.pods[0])]
    for turn in ([job for job in todo if job not in late], late):
        while turn:
            job = min(turn, key=lambda job: rules.order(world, job))
            turn.remove(job)
            if not job.group:
                place(world, job.pods[0], rules, result)
            elif left := place_gang(world, job, rules, result):
                turn.append(left)
    return result
