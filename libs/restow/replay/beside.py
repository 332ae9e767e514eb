"""How far a move of another scheduler's pod is: its placeholder, the gate, and the successor."""

from __future__ import annotations

import msgspec

from restow.contracts.ids import MigrationId
from restow.domain import verdicts as v
from restow.domain.beside import body_of, guard_of, guards, is_to_land, stands
from restow.domain.migration import gating
from restow.domain.records import FINAL, Migration, Step
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.replay.holds import pod_name


class BesideView(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`stage` is an id of `verdicts.BESIDE`, empty for a move that has not begun or is over, and `message` its sentence. `placeholder` and `successor` are
    `namespace/name`; `node` is where the placeholder is or is to be, `runs`: it occupies it. `guard` keeps the old node. New pods of `controller`
    (`Kind name`, or its uid) get the gate, for `landing`, the Landing object, lists it; empty where it does not. `bound`: the node of the successor."""

    scheduler: str
    stage: str = ""
    message: str = ""
    placeholder: str = ""
    node: str = ""
    runs: bool = False
    guard: str = ""
    landing: str = ""
    controller: str = ""
    successor: str = ""
    bound: str = ""


def beside_view(state: ClusterState, migration: Migration) -> BesideView | None:
    """None for one of a pod of ours, and where nothing is held."""
    scheduler = state.shapes[migration.shape].scheduler
    if scheduler in state.session_config.scheduler_names or not migration.move.target:
        return None
    key = slot_of(state, migration)
    body = body_of(state, key) if key is not None else None
    guard = state.stand_ins.get(guard_of(migration.id))
    slot = state.slots[key[0]][key[1]] if key is not None else None
    listed = state.landings.get(migration.id)
    stage = _stage(state, migration, key)
    successor = state.pods.get(migration.successor)
    return BesideView(
        scheduler=scheduler,
        stage=stage,
        message=v.BESIDE.get(stage, ""),
        placeholder=pod_name(state, body) if body is not None else "",
        node=slot.node if body is not None and slot is not None else "",
        guard=pod_name(state, guard) if guard is not None and guards(state, migration) else "",
        runs=body is not None and slot is not None and stands(state.live_of(body), slot),
        landing=state.log if listed is not None else "",
        controller=controller_name(state, migration.id) if listed is not None else "",
        successor=pod_name(state, migration.successor) if migration.successor else "",
        bound=str(successor.live.node or "") if successor is not None else "",
    )


def slot_of(state: ClusterState, migration: Migration) -> SlotKey | None:
    """Of the Reservation that holds for it now."""
    return next(((migration.reservation, name) for name in state.slots.get(migration.reservation, ())), None)


def _stage(state: ClusterState, migration: Migration, key: SlotKey | None) -> str:
    if migration.step in FINAL or migration.step is Step.PLANNED:
        return ""
    successor = migration.successor
    if successor:
        if successor not in state.to_land:
            return v.BOUND
        if is_to_land(state, successor):
            return v.LANDING
        return v.ONE_AT_A_TIME if state.pods[successor].fact.landing else v.UNGATED
    if migration.step is Step.EVICTED:
        return v.AWAITED
    if key is None or key not in state.held_on.get(state.slots[key[0]][key[1]].node, ()):
        return v.PLACING
    body = state.stand_ins.get(key)
    if body is None or not stands(state.live_of(body), state.slots[key[0]][key[1]]):
        return v.PLACEHOLDER
    if not gating.is_gated(state, migration):
        return v.OPENING
    return v.GUARDING if migration.step is Step.EVICTING and not guards(state, migration) else v.HELD


def controller_name(state: ClusterState, id: MigrationId) -> str:
    """Of the controller that is listed for a migration: `ReplicaSet web-1`, or its uid where none of its pods is known any more."""
    uid, migration = state.landings[id].controller, state.migrations[id]
    for pod in (migration.move.pod, migration.successor):
        fact = state.fact_of(pod)
        if fact is not None and fact.owner is not None and fact.owner.uid == uid:
            return f"{fact.owner.kind} {fact.owner.name}"
    return uid
