"""Manifests as Kubernetes would get them, for the tests."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVICES = ("cluster-watcher", "scheduler-session", "reservation-cache", "descheduler", "garbage-collector")
Manifest = dict[str, Any]


@cache
def build(folder: str) -> tuple[Manifest, ...]:
    """What `kubectl kustomize deploy/<folder>` prints."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed; it holds kustomize")
    run = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return tuple(yaml.safe_load_all(run.stdout))


def sources() -> list[Manifest]:
    """Every object of the base as it is written, kustomize aside."""
    files = [*sorted((DEPLOY / "base").glob("*.yaml")), DEPLOY / "nats" / "statefulset.yaml"]
    wanted = [f for f in files if f.name not in {"kustomization.yaml", "service.yaml"}]
    return [m for f in wanted for m in yaml.safe_load_all(f.read_text())]


def of_kind(manifests: list[Manifest] | tuple[Manifest, ...], *kinds: str) -> list[Manifest]:
    return [m for m in manifests if m["kind"] in kinds]


def named(manifests: list[Manifest] | tuple[Manifest, ...], kind: str, name: str) -> Manifest:
    (found,) = [m for m in of_kind(manifests, kind) if m["metadata"]["name"] == name]
    return found


def containers(workload: Manifest) -> list[Manifest]:
    spec = workload["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def env(container: Manifest) -> dict[str, Any]:
    """Name → value, or its source where it has one."""
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container.get("env", [])}
