"""What makes one of the five services, and what it gets of the process that runs it (`process.py`)."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from restow.contracts import commands as c
from restow.contracts.ids import Family
from restow.domain import config
from restow.domain.effects import Effect
from restow.domain.state import ClusterState
from restow.eventlog.port import EventLog, LogError
from restow.eventlog.snapshots import Snapshots
from restow.kube.client import Client
from restow.kube.event_recorder import Recorder
from restow.runtime.bearer import Gate
from restow.runtime.clock import Clock
from restow.runtime.commander import Book, smaller
from restow.runtime.config_source import Fits, Read
from restow.runtime.deciding import Propose
from restow.runtime.effector import Executor
from restow.runtime.follower import Follower
from restow.runtime.health import Check, Health
from restow.runtime.http import Route
from restow.runtime.leadership import Leadership
from restow.runtime.long_decisions import Heavy
from restow.runtime.settings import Settings
from restow.runtime.telemetry import Metrics

TO_REPAIR = "Nothing is decided until `restow log repair` (docs/failures.md); `restow log verify` shows what is wrong"


class Parts(msgspec.Struct, kw_only=True):
    """What a service adds to the common runtime."""

    executors: Mapping[type[Effect], Executor] = {}
    routes: Sequence[Route] = ()
    tasks: Sequence[Coroutine[Any, Any, None]] = ()
    """Run from when the log is caught up until the service stops; one that ends ends the service."""
    checks: Sequence[Callable[[], str]] = ()


class Context(msgspec.Struct, kw_only=True):
    """The running service, as `Service.assemble` gets it."""

    service: "Service"
    settings: Settings
    log: EventLog
    snapshots: Snapshots | None
    client: Client
    recorder: Recorder
    follower: Follower
    leadership: Leadership
    clock: Clock
    metrics: Metrics
    health: Health
    gate: Gate
    commander: Any = None
    refused: Check = str
    """What the configuration file says that is not allowed, so that the last good one is used; empty where there is nothing."""

    @property
    def state(self) -> ClusterState:
        return self.follower.state


class Shaping(msgspec.Struct, kw_only=True):
    """How the commander decides, where it is not simply the family's decider (the cluster watcher)."""

    propose: Propose | None = None
    book: Book | None = None
    shrink: Callable[[c.Command, LogError], c.Command | None] = smaller
    heavy: Heavy | None = None


class Service(msgspec.Struct, kw_only=True, frozen=True):
    """What makes one of the five: its name, family and decider, how its configuration is read, and its own parts."""

    name: str
    family: Family
    decider: Any
    assemble: Callable[[Context], Parts]
    read_config: Read | None = None
    default_config: config.Config | None = None
    fits: Fits | None = None
    shape: Callable[[Context], Shaping] | None = None
    stores_snapshots: bool = False
