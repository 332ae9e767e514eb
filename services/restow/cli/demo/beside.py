"""`restow demo --beside`: the pods of the play belong to the stock scheduler, and Restow moves them beside it."""

import asyncio
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from restow.cli.demo.feed import Api
from restow.cli.demo.scenario import Scenario
from restow.contracts import events as e
from restow.contracts.codec import decode
from restow.contracts.values import Move
from restow.domain.beside import GATE, GUARD, NAMESPACES, SLOT, STOLEN
from restow.domain.node_table import WHOLE
from restow.domain.nomination_checks import HONOURED, verdict
from restow.domain.state import ClusterState

if TYPE_CHECKING:
    from restow.replay.source import Source

SCHEDULERS = ("default-scheduler",)
"""Whom kubesim plays."""
LEAVE = 30.0
"""Seconds in which everything that moves have made must be gone after the last one."""


def objects() -> list[Path]:
    """deploy/beside, as kustomize lists it: in the checkout, or inside the installed package. Raises FileNotFoundError."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "beside", here.parents[4] / "deploy" / "beside"):
        if (list_file := folder / "kustomization.yaml").is_file():
            return [folder / name for name in yaml.safe_load(list_file.read_text())["resources"]]
    raise FileNotFoundError("deploy/beside was not found beside this installation; reinstall Restow")


def with_whole_gpus(scenario: Scenario) -> Scenario:
    """Without the workloads that ask for a part of a GPU: the stock scheduler counts whole ones, and chooses none."""
    return replace(scenario, workloads=tuple(w for w in scenario.workloads if not w.gpus or w.milli == WHOLE))


@dataclass(slots=True)
class Beside:
    """What is said about moves beside `scheduler`. `held`: moves whose placeholder ran; `guards`: placeholders that kept an old node; `stolen`: those
    that somebody else ended; `elsewhere`: moves whose successor that scheduler put on another node;
    `bound`: milliseconds from the first sight of the pod's end to the first sight of its successor on a node, in order; `left`: what moves have made and
    is still there; `classes`: PriorityClasses that stay for the next moves."""

    scheduler: str
    placeholders: int = 0
    guards: int = 0
    held: int = 0
    stolen: int = 0
    elsewhere: int = 0
    bound: list[int] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)

    @property
    def p50(self) -> int:
        return round(statistics.median(self.bound)) if self.bound else 0

    def is_checked(self, state: ClusterState) -> bool:
        """Whether the canaries have said that nominations are honoured: before that nobody is moved."""
        return verdict(state, self.scheduler) == HONOURED

    def as_json(self) -> dict[str, object]:
        return {
            "scheduler": self.scheduler, "placeholders": self.placeholders, "guards": self.guards, "held": self.held,
            "stolen": self.stolen, "elsewhere": self.elsewhere,
            "evictedToBoundMs": {"p50": self.p50, "max": max(self.bound, default=0), "moves": len(self.bound)},
            "left": self.left, "priorityClasses": self.classes,
        }  # fmt: skip

    def read(self, log: "Source") -> None:
        """Counts and times, from the log: the time of a fact is when the log stored it."""
        held: set[str] = set()
        bodies: set[str] = set()
        guards: set[str] = set()
        moves: dict[str, Move] = {}
        landed: dict[str, str] = {}
        ending: dict[str, int] = {}
        placed: dict[str, int] = {}
        for record in (record for batch in log.batches() for record in batch):
            events: list[e.Event] = [event for decision in decode(record.body) for event in decision.events]
            for event in events:
                match event:
                    case e.Planned():
                        moves |= {move.migration: move for move in event.moves}
                    case e.Held(migration=migration):
                        held.add(migration)
                    case e.Landed(migration=migration):
                        landed[migration] = event.pod
                    case e.MigrationFailed(reason=reason):
                        self.elsewhere += reason == "Elsewhere"
                    case e.HoldReleased(reason=reason):
                        self.stolen += reason == STOLEN
                    case e.PodObserved() | e.PodChanged():
                        if isinstance(event, e.PodObserved) and event.namespace in NAMESPACES and (slot := event.annotations.get(SLOT)):
                            # Canaries stand in no slot.
                            (guards if slot.startswith(f"{GUARD}/") else bodies).add(event.pod)
                        if event.deleting:
                            ending.setdefault(event.pod, record.time)
                        if event.node:
                            placed.setdefault(event.pod, record.time)
        self.placeholders, self.guards, self.held = len(bodies), len(guards), len(held)
        victims = {id: moves[id].pod or landed.get(moves[id].follows, "") for id in landed}
        self.bound = sorted((placed[new] - ending[victims[id]]) // 1_000_000 for id, new in landed.items() if victims[id] in ending and new in placed)

    async def leave(self, api: Api, patience: float) -> None:
        """Look until nothing is left behind, or until it should not be there any more."""
        deadline = asyncio.get_running_loop().time() + LEAVE * patience
        while (left := await left_behind(api)) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
        self.left = left
        classes = await api.list("/apis/scheduling.k8s.io/v1/priorityclasses")
        self.classes = sorted(c["metadata"]["name"] for c in classes if c["metadata"]["name"].startswith("restow-"))


async def left_behind(api: Api) -> list[str]:
    """Placeholders, pods that wait for a hand-over, and controllers whose pods would: as the API shows them."""
    pods = await api.list("/api/v1/pods")
    landings = await api.list("/apis/restow.dev/v1/landings")
    placeholders = [f"placeholder {p['metadata']['name']}" for p in pods if p["metadata"]["namespace"] in NAMESPACES]
    gated = [p["metadata"]["name"] for p in pods if any(gate["name"] == GATE for gate in p["spec"].get("schedulingGates", ()))]
    entries = [uid for landing in landings for uid in (landing.get("spec") or {}).get("open") or ()]
    return placeholders + [f"gate of {name}" for name in gated] + [f"entry of {uid}" for uid in entries]


async def all_tried(api: Api, namespace: str) -> bool:
    """Whether its scheduler has bound each pod of a namespace, or has said that it fits nowhere."""
    pods = await api.list(f"/api/v1/namespaces/{namespace}/pods")
    waiting = [p for p in pods if not p["spec"].get("nodeName")]
    return all(any(c["type"] == "PodScheduled" and c["status"] == "False" for c in p["status"].get("conditions", ())) for p in waiting)
