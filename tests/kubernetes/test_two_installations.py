"""Two whole installations on one cluster: each with a broker, a log, a namespace and accounts of its own, and pods of its own to move. Both move at once, on the
same nodes. The audit log of the API server says who has touched what."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import urllib.error
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml
from e2e.stack import Running
from kubernetes.churn import ROLLING
from kubernetes.kubelets import TERM, Kubelets
from kubernetes.lab import Lab, of_chart, own
from kubernetes.left import entries, nothing_is_left, reservations
from kubernetes.services import (
    all_ended,
    defragment,
    ended,
    kill,
    kill_for_good,
    known,
    migrate,
    services,
    stand,
)
from kubernetes.world import NS, World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.cli.embedded import configs
from restow.contracts.times import millis, rfc3339
from restow.domain.beside import GATE
from restow.domain.gated import FORSAKEN
from restow.domain.leftovers import GRACE, LONG, removable
from restow.domain.other_schedulers import LOG
from restow.domain.state import ClusterState
from restow.kube import leftovers
from restow.kube.client import ClientConfig, connect

FIRST, SECOND = "restow-system", "restow-second"
THEIRS = "work-second"
"""The namespace of the second one's pods; the first one's is NS."""
NODES, SETS, REPLICAS = 12, 6, 2
SECONDS = 60
AUDIT = "audit.log"
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def policy(namespace: str) -> str:
    """For the pods of one namespace."""
    text = configs.policy(protection=100).replace(
        "coolDownTime: 0", f"coolDownTime: 0\n          planner: optimizing\n          objective: nodes\n          evictableNamespaces: {{include: [{namespace}]}}"
    )
    return text + "  beside: [default-scheduler]\n  perNode: 50\n  maxMoves: 6\n  holdDeadline: 10s\n  budgetPatience: 60s\n  landDeadline: 60s\n"


@pytest.fixture(scope="module", name="lab")
def audited_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "two", audit=AUDIT) as one:
        one.install()
        install_second(one)
        yield one


def install_second(one: Lab) -> None:
    """Of the chart its rights: the services are processes here."""
    built = [m for m in of_chart("--set", "shared=false,beside.enabled=true", namespace=SECOND) if m["kind"] in RIGHTS]
    one.kubectl("create", "namespace", SECOND)
    path = one.work / "second.yaml"
    path.write_text(yaml.safe_dump_all(built))
    one.kubectl("apply", "-f", str(path))


@pytest.fixture(name="world")
async def with_theirs(world: World) -> AsyncIterator[World]:
    await world.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": THEIRS}})
    yield world
    await world.api.call("DELETE", f"/apis/apps/v1/namespaces/{THEIRS}/deployments", {"propagationPolicy": "Background"})


@pytest.fixture(name="stacks")
def both(lab: Lab, kubelets: Kubelets) -> Iterator[tuple[Running, Running]]:
    with services(lab, policy(NS)) as first, services(lab, policy(THEIRS), namespace=SECOND, scheduler="schedulerNames: [restow-second]\n") as second:
        yield first, second


async def log_of(stack: Running) -> str:
    return str((await asyncio.to_thread(stack.service, "scheduler_session"))["log"])


class Audit:
    """Whose each object is, by a watch; and who has changed it, by the API server's word."""

    def __init__(self, lab: Lab, world: World):
        self._path = lab.work / AUDIT
        self._from = self._path.stat().st_size if self._path.exists() else 0
        self.owners: dict[tuple[str, str], str] = {}
        """(namespace, name) of a pod → the log that has made it, or gated it."""
        world.told.append(self._told)

    def _told(self, kind: str, pod: Any) -> None:
        meta = pod["metadata"]
        said = (meta.get("labels") or {}).get(LOG) or (meta.get("annotations") or {}).get(GATE, "").partition(" ")[0]
        if said:
            self.owners[meta["namespace"], meta["name"]] = said

    def changes(self, namespace: str) -> list[tuple[str, str, str, str, str]]:
        """By the accounts of an installation, where the API did it: service, verb, resource, namespace, name."""
        with self._path.open() as file:
            file.seek(self._from)
            events = [json.loads(line) for line in file if line.endswith("\n")]
        found, prefix = [], f"system:serviceaccount:{namespace}:restow-"
        for event in events:
            who, ref = event["user"]["username"], event["objectRef"]
            if who.startswith(prefix) and event["responseStatus"]["code"] < 300 and "dryRun" not in event["requestURI"]:
                resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
                found.append((who.removeprefix(prefix), event["verb"], resource, ref.get("namespace", ""), ref.get("name", "")))
        return found

    def strange(self, namespace: str, log: str, pods: str) -> list[Any]:
        """What an installation has changed that is not its own. `pods`: the namespace of those that it may move."""
        return [one for one in self.changes(namespace) if not self._is_its_own(one, log, pods)]

    def _is_its_own(self, change: tuple[str, str, str, str, str], log: str, pods: str) -> bool:
        _, verb, resource, namespace, name = change
        match resource.split("/"):
            case ["pods", *_] if namespace.startswith("restow-holds"):
                return verb == "create" or self.owners.get((namespace, name), "") == log
            case ["pods", *_]:
                return namespace == pods and self.owners.get((namespace, name), log) == log
            case ["landings", *_]:
                return name in ("", log)
            case ["reservations", *_]:
                return namespace == pods
            case ["priorityclasses", *_]:
                # Both have the same, and whoever comes first makes it.
                return verb == "create"
        return False


def unexcused(world: World, evicted: list[dict[str, Any]], changed: dict[str, list[float]], apps: dict[str, str]) -> list[dict[str, Any]]:
    """Of the moves of pods that were evicted those that have not landed, of Deployments that have missed more often than they asked for other pods at about the time
    of such an eviction. A rollout makes no successor of a pod that was evicted just before it. Which of the Deployment's moves misses then is open: who has waited longest gets the next pod."""

    def disturbed(move: dict[str, Any]) -> bool:
        left = world.at[move["pod"], "ending"]
        return any(left - 5 <= at <= left + 15 for at in changed[apps[move["pod"]]])

    missed = [one for one in evicted if one["step"] != "landed"]
    may = Counter(apps[one["pod"]] for one in evicted if disturbed(one))
    have = Counter(apps[one["pod"]] for one in missed)
    return [one for one in missed if have[apps[one["pod"]]] > may[apps[one["pod"]]]]


@pytest.mark.slow
async def test_two_that_move_on_the_same_nodes_at_once_land_or_roll_back_and_touch_nothing_of_each_other(
    world: World, lab: Lab, stacks: tuple[Running, Running]
) -> None:
    for i in range(NODES):
        await world.node(f"n{i}", gpus=4)
    for namespace, letter in ((NS, "a"), (THEIRS, "b")):
        for i in range(SETS):
            await world.workload("deployments", f"{letter}{i}", REPLICAS, pod_spec(), 0.3, namespace=namespace, strategy=ROLLING)
    for letter in "ab":
        for i in range(SETS):
            await world.running(f"{letter}{i}", REPLICAS)
    audit, logs, rnd, changed = Audit(lab, world), [await log_of(one) for one in stacks], random.Random(1), defaultdict[str, list[float]](list)
    assert logs[0] != logs[1]

    async def plans(stack: Running) -> None:
        while True:
            await asyncio.sleep(1.5)
            with contextlib.suppress(OSError, ValueError):
                # Its collector was killed a moment ago, or it does not lead yet.
                await asyncio.to_thread(defragment, stack)

    async def churn() -> None:
        """Rollouts, for they spread the pods again; and each collector is started again, and looks."""
        for turn in range(10**6):
            await asyncio.sleep(2.5)
            namespace, letter = rnd.choice(((NS, "a"), (THEIRS, "b")))
            name = f"{letter}{rnd.randrange(SETS)}"
            changed[name].append(time.perf_counter())
            patch = {"spec": {"template": {"metadata": {"annotations": {"turn": str(turn)}}}}}
            await world.api.ok("PATCH", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}", patch, media=MERGE)
            if turn % 5 == 4:
                kill(stacks[turn % 2], "garbage_collector")

    apps: dict[str, str] = {}
    world.told.append(lambda kind, pod: apps.update({pod["metadata"]["uid"]: (pod["metadata"].get("labels") or {}).get("app", "")}))
    tasks = [asyncio.create_task(work) for work in (plans(stacks[0]), plans(stacks[1]), churn())]
    done, _ = await asyncio.wait(tasks, timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
    moves = [await all_ended(one) for one in stacks]
    for theirs in moves:
        print(Counter((one["step"], one["reason"]) for one in theirs))
    evicted = {(one[3], one[4]) for namespace in (FIRST, SECOND) for one in audit.changes(namespace) if one[2] == "pods/eviction"}
    last = {one["pod"]: one for theirs in moves for one in sorted(theirs, key=lambda one: one["since"]) if (one["namespace"], one["name"]) in evicted}
    lost = unexcused(world, list(last.values()), changed, apps)
    print(f"{len(evicted)} evicted")
    for one in lost:
        print("missed:", one)
    await nothing_is_left(world)
    assert audit.strange(FIRST, logs[0], NS) == []
    assert audit.strange(SECOND, logs[1], THEIRS) == []
    assert lost == []
    went = [sum(one["step"] == "landed" for one in theirs) for theirs in moves]
    assert min(went) >= 5, "too few to say anything"
    for letter in "ab":
        for i in range(SETS):
            await world.running(f"{letter}{i}", REPLICAS)
    assert world.kubelets.rejected == []


@pytest.mark.slow
@pytest.mark.parametrize("term", [0.3, 4.0])
async def test_moves_of_the_two_that_cross_land_or_roll_back(world: World, stacks: tuple[Running, Running], term: float) -> None:
    """Each moves its pod to the node that the other one's pod leaves. Neither knows of the other's guard, and both nodes are full with what is held."""
    both = {NS: "ours", THEIRS: "theirs"}
    for i, (namespace, name) in enumerate(both.items()):
        await world.node(f"c{i}", gpus=2)
        made = {"labels": {"app": name}, "annotations": {TERM: str(term)}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": made, "spec": pod_spec()}}
        await world.api.ok("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": name}, "spec": spec})
        (pod,) = await world.running(name)
        if pod["spec"]["nodeName"] != f"c{i}":
            await world.cordon(pod["spec"]["nodeName"])
            await world.api.ok("DELETE", path_of(pod))
            await world.until(lambda name=name, i=i: [p["spec"].get("nodeName") for p in world.of(name)] == [f"c{i}"], "it is where it is to be", 30)  # type: ignore[misc]
            await world.cordon(f"c{1 - i}", False)
        await known(stacks[i], await world.running(name))
    told: list[tuple[Any, Any]] = []
    for _ in range(4):
        pods = [(await world.running(name))[0] for name in both.values()]
        if pods[0]["spec"]["nodeName"] == pods[1]["spec"]["nodeName"]:
            break
        for stack, pod in zip(stacks, pods, strict=True):
            # Of pods that have just landed the watcher may not have told yet.
            await known(stack, [pod])
        ids = await asyncio.gather(*(planned(stack, pod, pods[1 - i]["spec"]["nodeName"]) for i, (stack, pod) in enumerate(zip(stacks, pods, strict=True))))
        for stack, id, pod in zip(stacks, ids, pods, strict=True):
            one = await ended(stack, id)
            told.append((one["step"], one["reason"]))
            if (at := world.at.get((pod["metadata"]["uid"], "ending"))) is not None:
                print(f"{one['step']} {one['reason']}: pods at {[(k[1], round(t - at, 2)) for k, t in world.at.items() if 0 <= t - at < 30][:8]}")
    print(term, Counter(told))
    await nothing_is_left(world)
    assert {step for step, _ in told} <= {"landed", "failed"}
    for name in both.values():
        await world.running(name)
    assert world.kubelets.rejected == []


async def planned(stack: Running, pod: dict[str, Any], target: str) -> str:
    """Of what the other one's last move held, or of who left, its watcher may not have read yet that it is gone: until then there is no room, and it says so."""
    ends = time.monotonic() + 30
    while True:
        try:
            return await migrate(stack, pod, target)
        except urllib.error.HTTPError as error:
            if "Insufficient" not in error.msg or time.monotonic() > ends:
                raise
        await asyncio.sleep(0.2)


async def test_what_one_leaves_that_is_gone_for_good_the_other_lets_alone_until_it_has_ended_by_its_own_word(
    world: World, lab: Lab, stacks: tuple[Running, Running]
) -> None:
    first, second = stacks
    audit, log, other = Audit(lab, world), await log_of(first), await log_of(second)
    await world.node("source", gpus=1)
    await world.workload("statefulsets", "victim", 1, pod_spec(), 2.0, serviceName="victim")
    (victim,) = await world.running("victim")
    await world.budget(0)
    await world.node("target", gpus=1)
    await known(first, [victim])
    await migrate(first, victim, "target")
    await stand(world, 1)
    await world.budget(1)
    await world.until(lambda: (victim["metadata"]["uid"], "ending") in world.at, "it is evicted", 30)
    kill_for_good(first)
    await world.until(lambda: world.where("victim") == ["gated"], "its successor waits for the dead one", 30)

    # The other one moves its own meanwhile, on nodes of its own size, and its collector looks.
    await moves_its_own(world, second)
    kill(second, "garbage_collector")
    await asyncio.sleep(10)
    assert len(world.placeholders()) == 2, "a placeholder and a guard"
    assert world.where("victim") == ["gated"]
    assert len(await entries(world)) == 1
    assert len(await reservations(world)) == 1
    assert audit.strange(SECOND, other, THEIRS) == []

    # Its entry ended a while ago: the other one lets the pod go.
    (pod,) = world.of("victim")
    said = pod["metadata"]["annotations"][GATE].partition(" ")
    assert said[0] == log
    over = rfc3339(int(time.time() * 1000) - FORSAKEN)
    await world.api.ok("PATCH", path_of(pod), {"metadata": {"annotations": {GATE: f"{log} {over}"}}}, media=MERGE)
    await world.until(lambda: world.where("victim") == ["waits"], "it is let go", 30)

    # By a clock that is ahead: what has ended by its own word goes, with the rights of the other one's collector.
    account = lab.account("garbage-collector", SECOND)
    async with await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(account, "second-collector")))) as client:
        found, state, now = [one for one in await leftovers.listed(client) if one.log == log], ClusterState(), int(time.time() * 1000)
        state.log = other
        assert removable(state, found, now) == []
        assert all(one.until for one in found if one.kind == "Pod"), found
        last = max(one.until for one in found if one.kind == "Pod")
        for one in removable(state, found, last + GRACE):
            assert (one.what.kind, one.what.log) == ("Pod", log)
            await leftovers.remove(client, one)
        await world.until(lambda: not world.placeholders(), "no placeholder is left", 30)
        await world.running("victim")
        day = removable(state, [one for one in await leftovers.listed(client) if one.log == log], millis(said[2]) + LONG)
        assert ("Landing", log) in [(one.what.kind, one.what.name) for one in day]
        for one in day:
            await leftovers.remove(client, one)
    assert await entries(world) == []
    # Reservations of a log that is lost are removed by who knows that it is.
    lab.kubectl("delete", "reservations.batch.volcano.sh", "-A", "-l", f"{LOG}={log}")


async def moves_its_own(world: World, stack: Running) -> None:
    for name in ("theirs-0", "theirs-1"):
        await world.node(name, gpus=1, labels={"pool": "theirs"})
    await world.workload("deployments", "theirs", 1, pod_spec(nodeSelector={"pool": "theirs"}), 0.3, namespace=THEIRS)
    (pod,) = await world.running("theirs")
    await known(stack, [pod])
    target = {"theirs-0": "theirs-1", "theirs-1": "theirs-0"}[pod["spec"]["nodeName"]]
    one = await ended(stack, await migrate(stack, pod, target))
    assert one["step"] == "landed", one
    await world.stands("theirs", [target])
