"""A cluster in memory: the store with its rules and the small controllers that belong to the API server."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from restow.kubesim import crd, namespaces, strictness
from restow.kubesim.admission import Admission
from restow.kubesim.faults import Faults
from restow.kubesim.gc import GarbageCollector
from restow.kubesim.metrics_server import MetricsServer
from restow.kubesim.objects import Obj
from restow.kubesim.pdb import DisruptionController
from restow.kubesim.resources import NAMESPACES, PRIORITYCLASSES
from restow.kubesim.routes import RequestInfo
from restow.kubesim.store import Store, utc_now
from restow.kubesim.watch import Hub


@dataclass(frozen=True, slots=True)
class Options:
    """What a test may want to shorten."""

    bookmark_interval: float = 60.0
    """Seconds between bookmarks of a watch."""
    watch_timeout: float = 1800.0
    """Seconds that a watch without timeoutSeconds lasts."""
    watch_queue: int = 200_000
    """Frames that a watch may owe its client before it is cut off."""
    history: int = 50_000
    """Changes remembered per resource."""


class Cluster:
    """Everything behind the HTTP server."""

    def __init__(
        self,
        *,
        options: Options | None = None,
        clock: Callable[[], datetime] = utc_now,
        rng: random.Random | None = None,
        seed: int | None = None,
        soon: Callable[[Callable[[], None]], Any] | None = None,
        later: Callable[[Callable[[], None]], Any] | None = None,
    ):
        self.options = options or Options()
        self.stopping = False
        self.store = Store(clock, strategy=Admission(), history=self.options.history, rng=rng, seed=seed)
        self.hub = Hub(self.store, queue_limit=self.options.watch_queue)
        self.faults = Faults(self.store, self.hub)
        self.metrics = MetricsServer(self.store)
        self.definitions = crd.Definitions(self.store)
        self.gc = GarbageCollector(self.store, soon)
        self.disruption = DisruptionController(self.store, later)
        self.namespaces = namespaces.NamespaceController(self.store)
        for name in namespaces.INITIAL:
            self.store.create(NAMESPACES, {"metadata": {"name": name}})
        for name, value in (
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ):
            self.store.create(PRIORITYCLASSES, _system_priority(name, value))

    def strict(self, info: RequestInfo, obj: Obj) -> None:
        """Refuse unknown fields when the client asked for it (fieldValidation=Strict)."""
        if info.query.get("fieldValidation") == "Strict":
            strictness.check(info, obj)


def _system_priority(name: str, value: int) -> Obj:
    what = "cluster" if "cluster" in name else "node"
    text = (
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
        if what == "cluster"
        else "Used for system critical pods that must not be moved from their current node."
    )
    return {
        "metadata": {"name": name},
        "value": value,
        "description": text,
        "preemptionPolicy": "PreemptLowerPriority",
    }
