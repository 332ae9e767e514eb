"""The kubelets of all nodes: admit, start, make ready, finish, stop and remove pods. They restart nothing.

Admission is judged here by what is really on the node, whatever a scheduler believed: an over-commit of cpu,
memory, pods, extended resources, host ports or a GPU device is a rejection and counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

from restow.kubesim import containers, storage
from restow.kubesim.containers import FAIL_AFTER, READY_AFTER, RUN_FOR, STOP_AFTER
from restow.kubesim.ledger import NodeAccount, Refusal
from restow.kubesim.nodes import address_of, liveness_of
from restow.kubesim.objects import Obj, controller_of
from restow.kubesim.placement import affinity_matches, untolerated
from restow.kubesim.podstate import (
    PodKey,
    annotations_of,
    duration_of,
    is_deleting,
    is_ready,
    is_terminal,
    key_of,
    node_of,
    phase_of,
    uid_of,
)
from restow.kubesim.resources import NODES, PERSISTENTVOLUMECLAIMS, PODS
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads.common import ignore_gone

log = logging.getLogger(__name__)

RunKey = tuple[str, str, str]
"""(namespace, name, uid)"""

JOB_DEFAULT = "1s"
"""How long a Job's pod runs that does not say."""
STOPPED_BY_SIGTERM = 143


class Stage(IntEnum):
    ADMITTED = 0
    RUNNING = 1
    READY = 2


@dataclass(slots=True)
class _Run:
    """One admitted pod; times are the loop's."""

    node: str
    stage: Stage
    since: float
    started: float
    pod_ip: str
    stop_at: float | None = None


class Kubelet:
    """One control loop over the pods of all nodes."""

    name = "kubelet"
    watches = (NODES, PERSISTENTVOLUMECLAIMS, PODS)

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self.rejections = 0
        """Pods refused at admission since the start."""
        self.rejections_by_reason: Counter[str] = Counter()
        self._accounts: dict[str, NodeAccount] = {}
        self._runs: dict[str, _Run] = {}
        self._mounting: dict[PodKey, dict[RunKey, None]] = {}
        """Claim → pods that cannot start because of their volumes."""
        self._addresses = 0

    def account(self, node: str) -> NodeAccount | None:
        """What the node's admitted pods use. Not to be changed."""
        return self._accounts.get(node)

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        if change.resource == PODS:
            self._observe_pod(before_of(change), change.new)
        elif change.resource == PERSISTENTVOLUMECLAIMS:
            for run in self._mounting.pop(key_of(change.stored.obj), ()):
                self.queue.add(run)
        else:
            self._observe_node(before_of(change), change.new)

    def _observe_pod(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            assert old is not None
            self._forget(old)
            return
        if not node_of(new):
            return
        if is_terminal(new):
            self._release(new)
        if old is None or not node_of(old) or _orders(old) != _orders(new):
            self.queue.add((*key_of(new), uid_of(new)))

    def _observe_node(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            assert old is not None
            self._accounts.pop(old["metadata"]["name"], None)
            return
        name = new["metadata"]["name"]
        if old is None:
            self._accounts[name] = NodeAccount.of(new)
        else:
            before, after = old.get("status") or {}, new.get("status") or {}
            if before.get("allocatable") != after.get("allocatable"):
                self._accounts[name].refresh(new)
            if liveness_of(old) == liveness_of(new):
                return
        for key, pod in self.runtime.pods.on_node(name).items():
            self.queue.add((*key, uid_of(pod)))

    def _forget(self, pod: Obj) -> None:
        self._release(pod)
        self._runs.pop(uid_of(pod), None)

    def _release(self, pod: Obj) -> None:
        account = self._accounts.get(node_of(pod))
        if account is not None:
            account.release(uid_of(pod))

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: RunKey) -> float | None:
        namespace, name, uid = key
        pod = self.store.find(PODS, namespace, name)
        if pod is None or uid_of(pod) != uid or not node_of(pod):
            return None
        node = self.store.find(NODES, "", node_of(pod))
        if node is None or liveness_of(node) == "Unknown":
            # Nobody is there to act; pod GC or the node's return goes on.
            return None
        run = self._runs.get(uid)
        if is_deleting(pod):
            return self._stop(pod, run)
        if is_terminal(pod):
            return None
        if run is None:
            if liveness_of(node) != "True":
                return None
            run = self._admit(pod, node)
            if run is None:
                return None
        return self._advance(pod, node, run)

    def _admit(self, pod: Obj, node: Obj) -> _Run | None:
        """Take the pod in, or fail it with the kubelet's reason. A pod found running is taken as it is."""
        name = node["metadata"]["name"]
        running = phase_of(pod) == "Running"
        refusal = None if running else _not_here(pod, node)
        refusal = refusal or self._accounts[name].take(pod)
        if refusal is not None:
            self.rejections += 1
            self.rejections_by_reason[refusal.reason] += 1
            log.info("kubelet %s rejects pod %s/%s: %s", name, *key_of(pod), refusal.message)
            status = containers.rejected(pod, self.store.now(), refusal.reason, refusal.message)
            write_status(self.store, PODS, pod, status)
            return None
        stage = Stage.ADMITTED
        if running:
            stage = Stage.READY if is_ready(pod) else Stage.RUNNING
        now = self.runtime.time()
        run = _Run(name, stage, now, now, (pod.get("status") or {}).get("podIP") or self._new_address())
        self._runs[uid_of(pod)] = run
        return run

    def _advance(self, pod: Obj, node: Obj, run: _Run) -> float | None:
        """Go as far as the time allows; seconds until the next step."""
        now, timings = self.runtime.time(), self.runtime.timings
        if run.stage is Stage.ADMITTED:
            wait = run.since + timings.start - now
            if wait > 1e-9:
                return wait
            if storage.unmountable(self.store, pod, node):
                for claim in storage.claims_of(pod):
                    self._mounting.setdefault(claim, {})[(*key_of(pod), uid_of(pod))] = None
                return None
            run.started = now
            run.stage = Stage.RUNNING
            if self._duration(pod, READY_AFTER, timings.ready) > 0:
                self._report(pod, node, run, ready=False)
                return self._duration(pod, READY_AFTER, timings.ready)
        if run.stage is Stage.RUNNING:
            wait = run.started + self._duration(pod, READY_AFTER, timings.ready) - now
            end = self._end(pod)
            if wait > 1e-9 and (end is None or run.started + end[0] > now):
                return wait if end is None else min(wait, run.started + end[0] - now)
            if wait <= 1e-9:
                run.stage = Stage.READY
                pod = self._report(pod, node, run, ready=True)
        elif liveness_of(node) == "True" and not is_ready(pod):
            # The node was away and its pods were marked; it is back.
            pod = self._report(pod, node, run, ready=True)
        return self._finish(pod, run)

    def _report(self, pod: Obj, node: Obj, run: _Run, *, ready: bool) -> Obj:
        host = address_of(node)
        ip = host if pod["spec"].get("hostNetwork") else run.pod_ip
        status = containers.running(pod, self.store.now(), host, ip, ready=ready)
        return write_status(self.store, PODS, pod, status)

    def _end(self, pod: Obj) -> tuple[float, int] | None:
        """(seconds after the start, exit code) at which the containers end by themselves."""
        fail = self._duration(pod, FAIL_AFTER, -1.0)
        if fail >= 0:
            return fail, 1
        owner = controller_of(pod)
        default = duration_of(JOB_DEFAULT) if owner is not None and owner.get("kind") == "Job" else -1.0
        run_for = self._duration(pod, RUN_FOR, default)
        return (run_for, 0) if run_for >= 0 else None

    def _finish(self, pod: Obj, run: _Run) -> float | None:
        end = self._end(pod)
        if end is None:
            return None
        wait = run.started + end[0] - self.runtime.time()
        if wait > 1e-9:
            return wait
        write_status(self.store, PODS, pod, containers.finished(pod, self.store.now(), end[1]))
        return None

    def _stop(self, pod: Obj, run: _Run | None) -> float | None:
        """Shut down within the grace period, report how it ended, remove the pod."""
        now = self.runtime.time()
        if run is not None and run.stage is not Stage.ADMITTED and not is_terminal(pod):
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            least = now + min(self._duration(pod, STOP_AFTER, self.runtime.timings.stop), grace)
            run.stop_at = least if run.stop_at is None else min(run.stop_at, now + grace)
            if run.stop_at - now > 1e-9:
                return run.stop_at - now
            if self.runtime.timings.final_status:
                status = containers.finished(pod, self.store.now(), STOPPED_BY_SIGTERM)
                write_status(self.store, PODS, pod, status)
        namespace, name = key_of(pod)
        self._release(pod)
        ignore_gone(lambda: self.store.delete(PODS, namespace, name, grace_period=0, uid=uid_of(pod)))
        return None

    def _duration(self, pod: Obj, annotation: str, default: float) -> float:
        text = annotations_of(pod).get(annotation)
        if text is None:
            return default
        try:
            return duration_of(text)
        except ValueError as error:
            log.warning("pod %s/%s, annotation %s is ignored: %s", *key_of(pod), annotation, error)
            return default

    def _new_address(self) -> str:
        self._addresses += 1
        number = self._addresses % (1 << 23)
        return f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _orders(pod: Obj) -> tuple[object, ...]:
    """What a kubelet acts on; the status that it writes itself is not part of it."""
    meta = pod["metadata"]
    return (
        meta.get("deletionTimestamp"),
        meta.get("deletionGracePeriodSeconds"),
        meta.get("annotations"),
        is_terminal(pod),
    )


def _not_here(pod: Obj, node: Obj) -> Refusal | None:
    """Node affinity and NoExecute taints, as `lifecycle.PredicateAdmitHandler` words them."""
    if not affinity_matches(pod["spec"], node):
        text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        return Refusal("NodeAffinity", f"Pod was rejected: {text}")
    if untolerated(pod["spec"], node, ("NoExecute",)) is not None:
        text = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        return Refusal("TaintToleration", f"Pod was rejected: {text}")
    return None
