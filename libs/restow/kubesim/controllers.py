"""The registry of what runs in a cluster beside the API server, and `start`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from restow.kubesim.defaultscheduler import DefaultScheduler
from restow.kubesim.kubelet import Kubelet
from restow.kubesim.nodelifecycle import NodeLifecycle
from restow.kubesim.resourceclaims import ResourceClaims
from restow.kubesim.resources import STORAGECLASSES
from restow.kubesim.runtime import Controller, Runtime
from restow.kubesim.storage import STANDARD
from restow.kubesim.store import Store
from restow.kubesim.timers import Loop, Timings
from restow.kubesim.volumes import VolumeController
from restow.kubesim.workloads.daemonset import DaemonSets
from restow.kubesim.workloads.deployment import Deployments
from restow.kubesim.workloads.job import Jobs
from restow.kubesim.workloads.replicaset import ReplicaSets
from restow.kubesim.workloads.statefulset import StatefulSets


class Running:
    """A started cluster: stop it, or look into it."""

    def __init__(self, runtime: Runtime, controllers: Sequence[Controller]):
        self.runtime = runtime
        self.by_name = {controller.name: controller for controller in controllers}

    @property
    def kubelet(self) -> Kubelet:
        kubelet = self.by_name["kubelet"]
        assert isinstance(kubelet, Kubelet)
        return kubelet

    def close(self) -> None:
        """Stop all controllers and timers."""
        self.runtime.close()


def start(
    store: Store,
    loop: Loop,
    *,
    kubelet_speed: float = 1.0,
    timings: Timings | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Running:
    """Run all controllers, the default scheduler and the kubelets on `loop`; they work until `close`.

    `kubelet_speed` divides the kubelet's start, ready and stop times of `timings`. `clock` bounds a turn's length.
    A cluster without any StorageClass gets the default one, `standard`.
    """
    if not store.count(STORAGECLASSES):
        store.create(STORAGECLASSES, STANDARD)
    runtime = Runtime(store, loop, (timings or Timings()).faster(kubelet_speed), clock)
    controllers: list[Controller] = [
        Deployments(runtime),
        ReplicaSets(runtime),
        StatefulSets(runtime),
        DaemonSets(runtime),
        Jobs(runtime),
        VolumeController(runtime),
        ResourceClaims(runtime),
        DefaultScheduler(runtime),
        Kubelet(runtime),
        NodeLifecycle(runtime),
    ]
    for controller in controllers:
        runtime.add(controller)
    runtime.open()
    return Running(runtime, controllers)
