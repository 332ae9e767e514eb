"""Manifests as Kubernetes would get them, for the tests."""

import runpy
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


@cache
def whole() -> tuple[Manifest, ...]:
    """deploy/restow.yaml: the chart's default, as it was rendered last (`test_restow_yaml_is_the_charts_default` says whether that is so)."""
    return tuple(yaml.safe_load_all((DEPLOY / "restow.yaml").read_text()))


@cache
def rendered(*arguments: str, namespace: str = "restow-system") -> tuple[Manifest, ...]:
    """What Helm makes of the chart. Skips, and says so, without Helm. Raises ValueError where it refuses."""
    render = runpy.run_path(str(DEPLOY / "render.py"))
    if render["helm"]() is None:
        pytest.skip("Helm is not installed (HELM=1 ONLY=1 tests/kubernetes/build.sh .kubernetes builds it): the chart is not rendered; deploy/restow.yaml is checked")
    return tuple(one for one in yaml.safe_load_all(render["template"](*arguments, namespace=namespace)) if one)


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
