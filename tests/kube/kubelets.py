"""Statuses of a pod as kubelets write them, and any others; and what a plugin would read in them itself."""

from typing import Any

from hypothesis import strategies as st

START = 1_767_225_600_000
TIMES = {f"2026-01-01T00:00:{second:02d}Z": START + second * 1000 for second in range(60)}

Json = dict[str, Any]


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}Z"


def condition(type: str, status: str = "True", reason: str = "", since: str = at(0)) -> Json:
    return {"type": type, "status": status, "lastTransitionTime": since} | ({"reason": reason} if reason else {})


def container(name: str, restarts: int = 0, **state: Json) -> Json:
    return {"name": name, "restartCount": restarts, "state": state}


def waits(name: str, reason: str) -> Json:
    return container(name, waiting={"reason": reason})


def ended(name: str, code: int = 0, reason: str = "Completed") -> Json:
    return container(name, terminated={"exitCode": code, "reason": reason})


def runs(name: str) -> Json:
    return container(name, running={"startedAt": at(0)})


def status(phase: str, *said: Json, main: Json | tuple[Json, ...] = (), init: Json | tuple[Json, ...] = (), started: int = 1) -> Json:
    """`said`: what differs from conditions that are all True."""
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = {type: condition(type) for type in types} | {c["type"]: c for c in said}
    return {
        "phase": phase,
        "startTime": at(started),
        "conditions": list(conditions.values()),
        "containerStatuses": list(main) if isinstance(main, tuple) else [main],
        "initContainerStatuses": list(init) if isinstance(init, tuple) else [init],
    }


def unready(since: int, reason: str = "ContainersNotReady") -> tuple[Json, Json]:
    return condition("Ready", "False", reason, at(since)), condition("ContainersReady", "False", reason, at(since))


NO_SANDBOX = condition("PodReadyToStartContainers", "False", "", at(1))
NOT_INITIALIZED = condition("Initialized", "False", "ContainersNotInitialized", at(1))

PLAIN_LIFE = {
    "a pod": [
        status("Pending", NO_SANDBOX, *unready(1), main=waits("a", "ContainerCreating")),
        status("Running", *unready(1), main=runs("a")),
        status("Running", main=runs("a")),
    ],
    "one that is not ready for a while": [
        status("Running", main=runs("a")),
        status("Running", *unready(7), main=runs("a")),
        status("Running", main=runs("a")),
    ],
    "one of two containers": [
        status("Pending", NO_SANDBOX, *unready(1), main=(waits("a", "ContainerCreating"), waits("b", "ContainerCreating"))),
        status("Pending", *unready(1), main=(runs("a"), waits("b", "ContainerCreating"))),
        status("Running", main=(runs("a"), runs("b"))),
    ],
    "one with an init container": [
        status("Pending", NO_SANDBOX, NOT_INITIALIZED, *unready(1), main=waits("a", "PodInitializing"), init=waits("i", "PodInitializing")),
        status("Pending", NOT_INITIALIZED, *unready(1), main=waits("a", "PodInitializing"), init=runs("i")),
        status("Pending", *unready(1), main=waits("a", "PodInitializing"), init=ended("i")),
        status("Running", main=runs("a"), init=ended("i")),
    ],
    "one of a Job": [
        status("Pending", *unready(1), main=waits("a", "ContainerCreating")),
        status("Running", main=runs("a")),
        status(
            "Succeeded", NO_SANDBOX, condition("Initialized", "True", "PodCompleted", at(2)), *unready(9, "PodCompleted"), main=ended("a")
        ),
    ],
}

NEARLY_PLAIN = {
    "ready has another time": status("Running", unready(1)[0], unready(2)[1], main=runs("a")),
    "only Ready is false": status("Running", condition("Ready", "False", "ContainersNotReady", at(3)), main=runs("a")),
    "only containers are unready": status("Running", condition("ContainersReady", "False", "ContainersNotReady", at(3)), main=runs("a")),
    "a gate": status("Running", condition("Ready", "False", "ReadinessGatesNotReady", at(3)), main=runs("a")),
    "unknown": status("Running", condition("Ready", "Unknown", "NodeStatusUnknown", at(3)), main=runs("a")),
    "no time": status("Pending", {"type": "Initialized", "status": "False", "reason": "ContainersNotInitialized"}, main=waits("a", "PodInitializing")),
    "no sandbox, and why": status("Running", condition("PodReadyToStartContainers", "False", "Why", at(3)), main=runs("a")),
    "another condition": status("Running", condition("DisruptionTarget", "True", "EvictionByEvictionAPI", at(3)), main=runs("a")),
    "a condition twice": status("Running", main=runs("a"))
    | {"conditions": [condition("Ready", "False", "ContainersNotReady", at(n)) for n in (1, 2)] + [unready(2)[1]]},
    "two reasons": status("Pending", *unready(1), main=(waits("a", "ContainerCreating"), waits("b", "PodInitializing"))),
    "another reason": status("Pending", *unready(1), main=waits("a", "ImagePullBackOff")),
    "only an init container waits": status("Pending", *unready(1), main=runs("a"), init=waits("i", "PodInitializing")),
    "an init container has failed": status("Pending", *unready(1), main=waits("a", "PodInitializing"), init=ended("i", 1, "Error")),
    "a container starts again": status("Running", *unready(1), main=waits("a", "ContainerCreating") | {"restartCount": 1}),
    "an init container starts again": status("Running", main=runs("a"), init=runs("i") | {"restartCount": 1}),
    "an ephemeral container": status("Running", main=runs("a")) | {"ephemeralContainerStatuses": [waits("e", "ContainerCreating")]},
    "one of two has ended": status("Running", *unready(1), main=(runs("a"), ended("b"))),
    "succeeded, ended otherwise": status("Succeeded", *unready(1, "PodCompleted"), main=ended("a", 0, "")),
    "succeeded, one ended with an error": status("Succeeded", *unready(1, "PodCompleted"), main=(ended("a"), ended("b", 3, "Error"))),
    "succeeded, and no conditions": status("Succeeded", main=ended("a")),
    "succeeded, and no containers": status("Succeeded", *unready(1, "PodCompleted")),
    "succeeded after a restart": status("Succeeded", *unready(1, "PodCompleted"), main=ended("a") | {"restartCount": 1}),
    "succeeded, and not ready as others are": status("Succeeded", *unready(1), main=ended("a")),
    "succeeded, and waits": status("Succeeded", *unready(1, "PodCompleted"), main=waits("a", "ContainerCreating")),
    "completed, and runs": status("Running", *unready(1, "PodCompleted"), main=runs("a")),
    "failed": status("Failed", *unready(1), main=ended("a")),
    "failed before it began": status("Failed", *unready(1), main=waits("a", "ContainerCreating")),
    "of an unknown phase": status("Unknown", *unready(1), main=runs("a")),
}

# -- anything --------------------------------------------------------------------------------------------------------------

_second = st.sampled_from([1, 1, 1, 2])
_state = st.one_of(
    st.just({}),
    st.just({"running": {}}),
    st.sampled_from(["ContainerCreating", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"]).map(lambda r: {"waiting": {"reason": r}}),
    st.sampled_from([(0, "Completed"), (0, "Completed"), (0, ""), (0, "Odd"), (3, "Error")]).map(
        lambda end: {"terminated": {"exitCode": end[0], "reason": end[1]}}
    ),
)


def _containers(most: int) -> Any:
    one = st.builds(lambda restarts, state: container("c", restarts, **state), st.sampled_from([0] * 9 + [2]), _state)
    return st.lists(one, max_size=most)


@st.composite
def _conditions(draw: Any) -> list[Json]:
    found = []
    reason = draw(st.sampled_from(["ContainersNotReady", "ContainersNotReady", "PodCompleted", "PodCompleted", "", "Other"]))
    since = draw(_second)
    if draw(st.booleans()):
        found += unready(since, reason)
    else:
        found += [condition("Ready", draw(st.sampled_from(["True", "False", "Unknown"])), "", at(since)), condition("ContainersReady")]
    for type, usual in (("Initialized", ["", "ContainersNotInitialized", "PodCompleted"]), ("PodReadyToStartContainers", [""])):
        if draw(st.booleans()):
            found.append(condition(type, draw(st.sampled_from(["True", "False"])), draw(st.sampled_from([*usual, "Other"])), at(draw(_second))))
    if draw(st.integers(0, 9)) == 0:
        found.append(draw(st.sampled_from([condition("example.com/gate"), {"type": "Ready", "status": "False"}, found[0]])))
    return found


@st.composite
def any_status(draw: Any) -> Json:
    """Half of them are what a kubelet may well write, with one thing or another different."""
    usual = [one for life in PLAIN_LIFE.values() for one in life]
    made = draw(st.sampled_from([*usual, *NEARLY_PLAIN.values()]))
    anything = {
        "phase": draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""])),
        "conditions": draw(_conditions()),
        "containerStatuses": draw(_containers(2)),
        "initContainerStatuses": draw(_containers(2)),
        "ephemeralContainerStatuses": draw(_containers(1)),
    }
    replaced = draw(st.one_of(st.just(list(anything)), st.lists(st.sampled_from(list(anything)), max_size=1)))
    return made | {name: anything[name] for name in replaced}


# -- what is to be read in it ----------------------------------------------------------------------------------------------

_KINDS = {"containerStatuses": "", "initContainerStatuses": "init", "ephemeralContainerStatuses": "ephemeral"}
_USUAL = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def read_containers(said: Json) -> tuple[set[tuple[str, str, int | None]], int]:
    """(kind, reason, exit code) of all that wait or have ended, but for init containers that have done their work; all restarts."""
    found, restarts = set(), 0
    for name, kind in _KINDS.items():
        for one in said.get(name, ()):
            restarts += one["restartCount"]
            waiting, end = one["state"].get("waiting"), one["state"].get("terminated")
            if waiting:
                found.add((kind, waiting["reason"], None))
            elif end:
                found.add((kind, end["reason"], end["exitCode"]))
    return {one for one in found if one not in (("init", "Completed", 0), ("init", "", 0))}, restarts


def read_conditions(said: Json) -> set[tuple[str, str, str, int]]:
    """(type, status, reason, since) of all but those that are True and say no more, of which it is not known since when."""
    found = set()
    for one in said["conditions"]:
        reason, since = one.get("reason", ""), TIMES.get(one.get("lastTransitionTime", ""), 0)
        if one["type"] not in _USUAL or one["status"] != "True" or reason:
            found.add((one["type"], one["status"], reason, since))
    if any(one["type"] == "Ready" and one["status"] == "True" for one in said["conditions"]):
        told = {one[0] for one in found}
        found |= {(type, "True", "", 0) for type in _USUAL if type not in told and type != "PodReadyToStartContainers"}
    return found
