"""Jobs: pods that run to completion (`pkg/controller/job`).

A finished pod is counted the moment its change is seen and at most once, by its uid. The real controller needs a
finalizer on every pod for that; here no change can be missed, so pods of a Job carry none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from restow.kubesim.objects import Obj, clone, controller_of
from restow.kubesim.podindex import Group
from restow.kubesim.podstate import (
    PodKey,
    annotations_of,
    condition_of,
    is_active,
    is_deleting,
    is_ready,
    key_of,
    phase_of,
    seconds_of,
    set_condition,
    uid_of,
)
from restow.kubesim.resources import JOBS, PODS
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads.common import (
    CREATE_BATCH,
    DELETE_BATCH,
    PodOwners,
    ignore_gone,
    pod_from_template,
)

INDEX = "batch.kubernetes.io/job-completion-index"
_INDEX_ENV = "JOB_COMPLETION_INDEX"


@dataclass(slots=True)
class _Tally:
    """What became of the pods of one Job."""

    counted: set[str] = field(default_factory=set)
    succeeded: int = 0
    failed: int = 0
    indexes: set[int] = field(default_factory=set)
    failed_at: float = 0.0
    """Loop time of the last failure."""
    failures_in_row: int = 0


class Jobs(PodOwners):
    """Adoption by a hand-written selector is not supported: a Job's pods are those that it made."""

    name = "job"
    resource = JOBS
    watches = (JOBS, PODS)

    def __init__(self, runtime: Runtime):
        super().__init__(runtime)
        self._tallies: dict[str, _Tally] = {}

    # -- observing ------------------------------------------------------------------------------

    def observe_owner(self, change: Change) -> None:
        job = change.stored.obj
        if change.new is None:
            self._tallies.pop(uid_of(job), None)
        elif before_of(change) is None:
            status = job.get("status") or {}
            tally = self._tallies.setdefault(uid_of(job), _Tally())
            tally.succeeded += status.get("succeeded") or 0
            tally.failed += status.get("failed") or 0
            tally.indexes |= set(_read_indexes(status.get("completedIndexes") or ""))
        self.queue.add(key_of(job))

    def observe_pod(self, change: Change) -> None:
        pod = change.stored.obj
        owner = controller_of(pod)
        if owner is None or owner.get("kind") != "Job":
            return
        tally = self._tallies.get(owner["uid"])
        if tally is not None and uid_of(pod) not in tally.counted:
            self._count(tally, pod, gone=change.new is None)
        super().observe_pod(change)

    def _count(self, tally: _Tally, pod: Obj, *, gone: bool) -> None:
        """A pod that is deleted before it succeeded has failed (podReplacementPolicy TerminatingOrFailed)."""
        phase = phase_of(pod)
        if phase == "Succeeded":
            tally.succeeded += 1
            tally.failures_in_row = 0
            index = _index_of(pod)
            if index is not None:
                tally.indexes.add(index)
        elif phase == "Failed" or gone or is_deleting(pod):
            tally.failed += 1
            tally.failures_in_row += 1
            tally.failed_at = self.runtime.time()
        else:
            return
        tally.counted.add(uid_of(pod))

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: PodKey) -> float | None:
        job = self.store.find(JOBS, *key)
        if job is None or is_deleting(job):
            return None
        tally = self._tallies.setdefault(uid_of(job), _Tally())
        group = self.runtime.pods.group(uid_of(job))
        if _finished(job) is not None:
            return self._after_the_end(job, group, tally)
        verdict = self._verdict(job, group, tally)
        if verdict is not None:
            self._delete_active(group, len(group.members))
            self._write(job, tally, verdict)
            return 0.0
        if job["spec"].get("suspend"):
            # A pod that is stopped by suspension does not count as a failure.
            for pod in group.members.values():
                tally.counted.add(uid_of(pod))
            self._delete_active(group, len(group.members))
            self._write(job, tally, None)
            return None
        again = self._scale(job, group, tally)
        self._write(job, tally, None)
        return _soonest(again, self._until_deadline(job))

    def _verdict(self, job: Obj, group: Group, tally: _Tally) -> tuple[str, str, str] | None:
        """(Complete or Failed, reason, message) once the Job is decided."""
        spec = job["spec"]
        completions = spec.get("completions")
        limit = spec.get("backoffLimit")
        if tally.failed > (6 if limit is None else limit):
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left = self._until_deadline(job)
        if left is not None and left <= 0:
            return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
        if completions is None:
            done = tally.succeeded > 0 and not group.active
        else:
            done = (len(tally.indexes) if _is_indexed(job) else tally.succeeded) >= completions
        if not done:
            return None
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"

    def _until_deadline(self, job: Obj) -> float | None:
        deadline = job["spec"].get("activeDeadlineSeconds")
        started = (job.get("status") or {}).get("startTime")
        if deadline is None or not started or job["spec"].get("suspend"):
            return None
        return seconds_of(started) + deadline - self.runtime.now()

    def _scale(self, job: Obj, group: Group, tally: _Tally) -> float | None:
        """Make or delete pods until so many are active as may be; seconds until the next try."""
        spec = job["spec"]
        parallelism = 1 if spec.get("parallelism") is None else spec["parallelism"]
        completions = spec.get("completions")
        if completions is None:
            wanted = group.active if tally.succeeded else parallelism
        else:
            done = len(tally.indexes) if _is_indexed(job) else tally.succeeded
            wanted = min(parallelism, completions - done)
        if group.active > wanted:
            self._delete_active(group, min(group.active - wanted, DELETE_BATCH))
            return 0.0 if group.active > wanted else None
        missing = wanted - group.active
        if missing <= 0:
            return None
        wait = self._backoff(tally)
        if wait > 0:
            return wait
        self._create(job, group, tally, min(missing, CREATE_BATCH))
        return 0.0 if missing > CREATE_BATCH else None

    def _backoff(self, tally: _Tally) -> float:
        timings = self.runtime.timings
        if not tally.failures_in_row:
            return 0.0
        delay = min(timings.job_backoff * 2 ** min(tally.failures_in_row - 1, 20), timings.job_backoff_last)
        return tally.failed_at + delay - self.runtime.time()

    def _create(self, job: Obj, group: Group, tally: _Tally, count: int) -> None:
        name, uid = job["metadata"]["name"], uid_of(job)
        template = job["spec"]["template"]
        indexes: Sequence[int | None] = [None] * count
        if _is_indexed(job):
            running = {_index_of(pod) for pod in group.members.values() if is_active(pod)}
            taken = running | tally.indexes
            indexes = [i for i in range(job["spec"].get("completions") or 0) if i not in taken][:count]
        for index in indexes:
            prefix = f"{name}-" if index is None else f"{name}-{index}-"
            spec = clone(template.get("spec") or {})
            pod = pod_from_template(template, job, JOBS, prefix=prefix, spec=spec)
            pod["metadata"]["labels"].update({
                "controller-uid": uid, "job-name": name,
                "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
            })  # fmt: skip
            if index is not None:
                pod["metadata"]["labels"][INDEX] = str(index)
                pod["metadata"].setdefault("annotations", {})[INDEX] = str(index)
                spec.setdefault("hostname", f"{name}-{index}")
                _add_index_env(spec)
            self.store.create(PODS, pod, job["metadata"].get("namespace", ""), owned=True)

    def _delete_active(self, group: Group, count: int) -> None:
        active = [pod for pod in group.members.values() if is_active(pod)]
        # Not yet ready ones first: they lose the least work.
        active.sort(key=lambda pod: (is_ready(pod), phase_of(pod) == "Running", key_of(pod)))
        for pod in active[:count]:
            self.delete_pod(pod)

    # -- status ---------------------------------------------------------------------------------

    def _write(self, job: Obj, tally: _Tally, verdict: tuple[str, str, str] | None) -> None:
        job = self.store.find(JOBS, *key_of(job)) or job
        group = self.runtime.pods.group(uid_of(job))
        before, now = job.get("status") or {}, self.store.now()
        suspended = bool(job["spec"].get("suspend"))
        status: Obj = {
            "active": group.active,
            "ready": group.ready,
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "terminating": group.terminating,
        }
        status = {k: v for k, v in status.items() if v or k in ("ready", "terminating")}
        status["uncountedTerminatedPods"] = {}
        if _is_indexed(job) and tally.indexes:
            status["completedIndexes"] = _show_indexes(tally.indexes)
        if not suspended:
            status["startTime"] = before.get("startTime") or now
        conditions = before.get("conditions") or []
        if suspended and verdict is None:
            conditions = set_condition(
                conditions, "Suspended", "True", "JobSuspended", "Job suspended", now, lastProbeTime=now
            )
        elif condition_of(job, "Suspended") is not None and not suspended:
            resumed = condition_of(job, "Suspended") or {}
            if resumed.get("status") == "True":
                status["startTime"] = now
            conditions = set_condition(
                conditions, "Suspended", "False", "JobResumed", "Job resumed", now, lastProbeTime=now
            )
        if verdict is not None:
            kind, reason, message = verdict
            first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
            for one in (first, kind):
                conditions = set_condition(conditions, one, "True", reason, message, now, lastProbeTime=now)
            if kind == "Complete":
                status["completionTime"] = now
        if conditions:
            status["conditions"] = conditions
        write_status(self.store, JOBS, job, status)

    def _after_the_end(self, job: Obj, group: Group, tally: _Tally) -> float | None:
        """Finish the counts, then remove the Job when its ttlSecondsAfterFinished is over."""
        counts = {"active": group.active, "ready": group.ready, "terminating": group.terminating}
        status = {**(job.get("status") or {}), **counts}
        if not group.active:
            status.pop("active")
        write_status(self.store, JOBS, job, status)
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        condition = _finished(job)
        if ttl is None or condition is None:
            return None
        left = seconds_of(condition.get("lastTransitionTime")) + ttl - self.runtime.now()
        if left > 0:
            return left
        namespace, name = key_of(job)
        ignore_gone(
            lambda: self.store.delete(JOBS, namespace, name, uid=uid_of(job), propagation="Foreground")
        )
        return None


def _soonest(*waits: float | None) -> float | None:
    known = [wait for wait in waits if wait is not None]
    return max(min(known), 0.0) if known else None


def _finished(job: Obj) -> Obj | None:
    for kind in ("Complete", "Failed"):
        condition = condition_of(job, kind)
        if condition is not None and condition.get("status") == "True":
            return condition
    return None


def _is_indexed(job: Obj) -> bool:
    return job["spec"].get("completionMode") == "Indexed"


def _index_of(pod: Obj) -> int | None:
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isdigit() else None


def _add_index_env(spec: Obj) -> None:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        env = container.setdefault("env", [])
        if not any(entry["name"] == _INDEX_ENV for entry in env):
            env.append({"name": _INDEX_ENV, "valueFrom": clone(source)})


def _show_indexes(indexes: set[int]) -> str:
    """`0-2,5`: runs of three and more as ranges, as the real controller writes them (`0,1` stays two)."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in runs)


def _read_indexes(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found
