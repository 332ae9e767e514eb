"""KS-290..304: Jobs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from kubesim.simworld import World, condition, deleting, phase, pod_spec

from restow.kubesim.resources import JOBS, PODS

INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def world() -> World:
    return World(nodes=2)


def make(world: World, *, annotations: dict | None = None, **spec) -> dict:
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {**pod_spec(), "restartPolicy": "Never"},
    }
    return world.create(JOBS, "j", {"template": template, **spec})


def phases(world: World) -> list[str]:
    return sorted(phase(pod) for pod in world.pods())


def done(world: World) -> str:
    """Complete, Failed or ""."""
    return next((k for k in ("Complete", "Failed") if condition(world.get(JOBS, "j"), k)), "")


def test_a_job_runs_one_pod_to_completion(world):
    """KS-290"""
    make(world, completions=1, annotations={"kubesim.restow.dev/run-for": "500ms"})
    world.run(0.3)
    assert (phases(world), done(world), world.status(JOBS, "j")["active"]) == (["Running"], "", 1)
    world.run(0.5)
    status = world.status(JOBS, "j")
    assert (phases(world), done(world), status["succeeded"]) == (["Succeeded"], "Complete", 1)
    assert status["completionTime"] >= status["startTime"]
    assert condition(world.get(JOBS, "j"), "SuccessCriteriaMet")["status"] == "True"


def test_no_more_than_parallelism_run_at_a_time_until_completions_are_reached(world):
    """KS-291"""
    most = 0

    def watch(change) -> None:
        nonlocal most
        if change.resource == PODS:
            most = max(most, len(world.alive()))

    world.store.subscribe(watch)
    make(world, parallelism=2, completions=5)
    world.run(10)
    assert (most, phases(world), done(world)) == (2, ["Succeeded"] * 5, "Complete")


def test_without_completions_the_first_success_ends_the_creation(world):
    """KS-292"""
    make(world, parallelism=3)
    world.run(5)
    assert (phases(world), done(world)) == (["Succeeded"] * 3, "Complete")


def test_pods_wear_the_labels_of_their_job(world):
    """KS-293"""
    job = make(world, completions=1)
    uid = job["metadata"]["uid"]
    labels = world.pods()[0]["metadata"]["labels"]
    assert {k: labels[k] for k in ("controller-uid", "batch.kubernetes.io/controller-uid")} == {
        "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
    }  # fmt: skip
    assert labels["job-name"] == labels["batch.kubernetes.io/job-name"] == "j"


def test_an_indexed_job_gives_every_pod_its_index(world):
    """KS-294"""
    make(world, completions=3, parallelism=3, completionMode="Indexed")
    pods = sorted(world.pods(), key=lambda pod: pod["metadata"]["name"])
    assert [pod["metadata"]["annotations"][INDEX] for pod in pods] == ["0", "1", "2"]
    assert [pod["metadata"]["labels"][INDEX] for pod in pods] == ["0", "1", "2"]
    assert [pod["spec"]["hostname"] for pod in pods] == ["j-0", "j-1", "j-2"]
    (env,) = pods[0]["spec"]["containers"][0]["env"]
    assert env["name"] == "JOB_COMPLETION_INDEX"
    world.run(3)
    assert world.status(JOBS, "j")["completedIndexes"] == "0-2"
    assert done(world) == "Complete"


def test_a_failed_index_is_tried_again(world):
    """KS-294"""
    make(world, completions=2, parallelism=2, completionMode="Indexed")
    world.run(0.2)
    world.annotate(PODS, world.names()[1], **{"kubesim.restow.dev/fail-after": "1ms"})
    world.run(5)
    assert (done(world), phases(world)) == ("Complete", ["Failed", "Succeeded", "Succeeded"])


def test_a_failed_pod_is_replaced_after_a_growing_delay(world):
    """KS-295"""
    created: list[float] = []
    world.store.subscribe(
        lambda c: created.append(world.loop.now) if c.resource == PODS and c.type == "ADDED" else None
    )
    make(world, completions=1, annotations={"kubesim.restow.dev/fail-after": "1ms"}, backoffLimit=3)
    world.run(20)
    gaps = [b - a for a, b in pairwise(created)]
    assert len(gaps) == 3
    assert gaps == sorted(gaps)
    assert gaps[2] > 1.5 * gaps[1] - 0.1


def test_more_failures_than_the_backoff_limit_fail_the_job(world):
    """KS-296"""
    make(world, completions=1, annotations={"kubesim.restow.dev/fail-after": "1ms"}, backoffLimit=1)
    world.run(20)
    assert (done(world), phases(world)) == ("Failed", ["Failed", "Failed"])
    assert condition(world.get(JOBS, "j"), "Failed")["reason"] == "BackoffLimitExceeded"
    assert world.status(JOBS, "j")["failed"] == 2


def test_an_evicted_pod_is_replaced_and_counts_as_failed(world):
    """KS-297"""
    make(world, completions=1)
    world.run(0.2)
    world.delete(PODS, world.names()[0])
    world.run(0.5)
    assert len(world.alive()) == 1
    world.run(5)
    assert done(world) == "Complete"
    status = world.status(JOBS, "j")
    assert (status["failed"], status["succeeded"]) == (1, 1)


def test_a_success_is_counted_once_even_if_its_pod_is_deleted_then(world):
    """KS-298"""
    make(world, completions=2, parallelism=1)
    world.run(1.1)
    first = next(pod for pod in world.pods() if phase(pod) == "Succeeded")
    world.delete(PODS, first["metadata"]["name"])
    world.run(5)
    assert (world.status(JOBS, "j")["succeeded"], phases(world)) == (2, ["Succeeded"])


def test_the_active_deadline_fails_the_job_and_deletes_its_pods(world):
    """KS-299"""
    make(world, completions=1, annotations={"kubesim.restow.dev/run-for": "1h"}, activeDeadlineSeconds=5)
    world.run(10)
    assert (done(world), world.pods()) == ("Failed", [])
    assert condition(world.get(JOBS, "j"), "Failed")["reason"] == "DeadlineExceeded"


def test_a_suspended_job_has_no_pods_and_resumes(world):
    """KS-300"""
    make(world, completions=1, suspend=True)
    world.run(1)
    assert (world.pods(), condition(world.get(JOBS, "j"), "Suspended")["status"]) == ([], "True")
    world.change(JOBS, "j", suspend=False)
    world.run(3)
    assert (done(world), condition(world.get(JOBS, "j"), "Suspended")["status"]) == ("Complete", "False")


def test_suspending_a_running_job_deletes_its_pods_without_counting_failures(world):
    """KS-300"""
    make(world, completions=1, backoffLimit=0)
    world.run(0.2)
    world.change(JOBS, "j", suspend=True)
    world.run(1)
    assert (world.pods(), done(world), world.status(JOBS, "j").get("failed", 0)) == ([], "", 0)


def test_a_finished_job_goes_after_its_ttl(world):
    """KS-301"""
    make(world, completions=1, ttlSecondsAfterFinished=10)
    world.run(5)
    assert done(world) == "Complete"
    world.run(15)
    job = world.find(JOBS, "j")
    assert job is None or deleting(job)


def test_lower_parallelism_deletes_the_surplus(world):
    """KS-302"""
    make(world, parallelism=3, completions=9, annotations={"kubesim.restow.dev/run-for": "1h"})
    world.run(0.2)
    world.change(JOBS, "j", parallelism=1)
    world.run(0.2)
    assert len(world.alive()) == 1
