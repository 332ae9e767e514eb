"""Who is placed, waits, is evicted for another, or let go; of holds `holds.py`. An intent about something that facts have overtaken is void."""

from itertools import islice

from restow.contracts import events as e
from restow.contracts.ids import LATEST, Millis, PodUid
from restow.contracts.times import doubled
from restow.domain import nomination_checks
from restow.domain.beside import (
    LET_GO_AGAIN,
    LET_GO_AGAIN_LONGEST,
)
from restow.domain.evolve.placing import choose_anew, settled
from restow.domain.evolve.rules import Rules, void
from restow.domain.groups import named
from restow.domain.records import (
    Capacity,
    Nomination,
    Placement,
    Refusal,
    Victim,
    Waiting,
)
from restow.domain.state import ClusterState, Under

DEADLINE = "Deadline"
"""Why a nomination ends whose victims did not go in time, and with it what was asked of them."""
REFUSED = "Refused"
"""How the reason begins where the API will never evict a victim."""
AGAIN = 600_000
"""Milliseconds after which a pod may be chosen again whose eviction did not come about in time: a budget that has held it up
would most likely do so again, while others may go."""
TOLD_AGAIN = 100
"""At most so many equal pods are told anew why they wait when that has changed: each is a write to the API."""
NEVER = Millis(LATEST)
"""The latest time that a state may hold."""


def pod_placed(state: ClusterState, event: e.PodPlaced) -> None:
    if not state.awaits_placement(event.pod):
        return void(state, event)
    nomination = state.nominations.get(event.pod)
    if nomination is not None:
        state.denominate(event.pod, placing=True)
    placement = Placement(event.node, event.devices, None, state.time, event.volumes, event.cores)
    state.put(state.placed, event.pod, placement)
    choose_anew(state, event.volumes)
    settled(state, event.pod)
    if nomination is not None and nomination.node != event.node:
        state.top_up(nomination.node)
    state.top_up(event.node)


def pod_released(state: ClusterState, event: e.PodReleased) -> None:
    if state.drop(state.placed, event.pod) is None:
        return void(state, event)
    settled(state, event.pod)


def unfit(state: ClusterState, event: e.Unfit) -> None:
    if event.shape not in state.shapes:
        return void(state, event)
    key = event.key or event.shape
    for pod in event.pods:
        if pod in state.queue or pod in state.parked:
            state.park(pod, key, ("shape", f"{event.shape}/{state.pods[pod].fact.pinned_node}"))
            state.touched.pods[pod] = None
    state.put(state.waiting, key, Waiting(event.nodes, event.reasons, state.time, state.capacity_epoch))
    if not event.pods:
        _tell_again(state, ("shape", f"{event.shape}/"), key)
    state.touched.shapes[event.shape] = None


def _tell_again(state: ClusterState, under: Under, key: str) -> None:
    """What is said of these pods has changed: the conditions of those that have waited longest follow. Where more of them wait
    for the same, the others keep what they were told first (`restow why` is of the moment)."""
    own = PodUid(key.rpartition("/")[2])
    for pod in (own, *islice(state.parked_under.get(under, ()), TOLD_AGAIN)):
        if pod in state.parked and state.parked[pod][0] == key:
            state.touched.pods[pod] = None


def withheld_key(reason: str, group: str, message: str) -> str:
    """What pods wait under that are withheld for the same: their group, or the sentence."""
    return f"{reason}/{group or message}"


def withheld(state: ClusterState, event: e.Withheld) -> None:
    key = withheld_key(event.reason, event.group, event.message)
    for pod in event.pods:
        if pod in state.queue or pod in state.parked:
            state.park(pod, key, ("group", event.group) if event.group else ("reason", key))
            state.touched.pods[pod] = None
    waiting = Waiting(event.nodes, event.reasons, state.time, state.capacity_epoch, event.reason, event.message)
    state.put(state.waiting, key, waiting)
    if not event.pods:
        _tell_again(state, ("group", event.group) if event.group else ("reason", key), key)
    if event.group:
        state.touched.groups[named(event.group)] = None


def enqueued(state: ClusterState, event: e.Enqueued) -> None:
    group = (event.namespace, event.group)
    if group not in state.pod_groups:
        return void(state, event)
    state.put(state.enqueued, group, None)
    state.drop(state.unqueued, group)
    state.touched.groups[group] = None
    state.capacity_epoch += 1


def preempted(state: ClusterState, event: e.Preempted) -> None:
    if event.pod not in state.charges:
        return void(state, event)
    state.put(state.victims_of, event.pod, Victim(event.by, event.action, event.reason, state.time))
    state.touched.pods[event.pod] = None


def preemption_ended(state: ClusterState, event: e.PreemptionEnded) -> None:
    if state.drop(state.victims_of, event.pod) is None:
        return void(state, event)
    if event.reason == DEADLINE:
        state.put(state.stuck, event.pod, Millis(state.time + AGAIN))
    elif event.reason.startswith(REFUSED):
        state.put(state.stuck, event.pod, NEVER)
    state.touched.pods[event.pod] = None


def nominated(state: ClusterState, event: e.Nominated) -> None:
    if not state.awaits_placement(event.pod) or event.node not in state.table.rows:
        # Facts came in between: nobody is evicted for it.
        for victim in event.victims:
            if victim in state.victims_of and state.victims_of[victim].by == event.pod:
                state.drop(state.victims_of, victim)
        return void(state, event)
    v = state.vectors[state.pods[event.pod].fact.shape]
    # CPUs of its victims are theirs still; those of a hold whose hand-over was void are not for it.
    theirs = state.held_cores(event.node) if event.cores else ()
    cores = tuple(core for core in event.cores if core not in theirs)
    capacity = Capacity(v.items, devices=event.devices, cores=cores)
    state.nominate(event.pod, Nomination(event.node, event.deadline, capacity, event.victims))
    if event.pod in state.nominations:
        state.unpark(event.pod)
        state.drop(state.queue, event.pod)
    state.touched.pods[event.pod] = None


def nomination_ended(state: ClusterState, event: e.NominationEnded) -> None:
    if event.pod not in state.nominations:
        return void(state, event)
    state.denominate(event.pod)
    state.requeue(event.pod)
    state.touched.pods[event.pod] = None


def task_reserved(state: ClusterState, event: e.TaskReserved) -> None:
    if not state.awaits_placement(event.pod) or event.node not in state.table.rows:
        return void(state, event)
    state.reserve(event.pod, event.node)
    state.touched.pods[event.pod] = None


def task_unreserved(state: ClusterState, event: e.TaskUnreserved) -> None:
    if event.pod not in state.reserved_tasks:
        return void(state, event)
    state.unreserve(event.pod)
    state.touched.pods[event.pod] = None


def owners_gated(state: ClusterState, event: e.OwnersGated) -> None:
    if event.until and event.reservation not in state.reservations:
        return void(state, event)
    state.put(state.owner_gates, event.reservation, event.until)
    state.touched.reservations[event.reservation] = None


def owners_unlisted(state: ClusterState, event: e.OwnersUnlisted) -> None:
    if state.owner_gates.get(event.reservation) != 0:
        return void(state, event)
    state.drop(state.owner_gates, event.reservation)


def pod_let_go(state: ClusterState, event: e.PodLetGo) -> None:
    if event.pod not in state.gated:
        return void(state, event)
    state.put(state.passed, event.pod, None)
    state.touched.pods[event.pod] = None


def let_go_refused(state: ClusterState, event: e.LetGoRefused) -> None:
    if event.pod not in state.gated:
        return void(state, event)
    known = state.not_let_go.get(event.pod)
    times = known.times + 1 if known is not None else 1
    until = Millis(state.time + doubled(LET_GO_AGAIN, times, LET_GO_AGAIN_LONGEST))
    state.put(state.not_let_go, event.pod, Refusal(times, until, event.reason))
    state.touched.pods[event.pod] = None


RULES: Rules = {
    e.OwnersGated: owners_gated,
    e.OwnersUnlisted: owners_unlisted,
    e.PodLetGo: pod_let_go,
    e.LetGoRefused: let_go_refused,
    e.PodPlaced: pod_placed,
    e.PodReleased: pod_released,
    e.Unfit: unfit,
    e.Withheld: withheld,
    e.Enqueued: enqueued,
    e.Preempted: preempted,
    e.PreemptionEnded: preemption_ended,
    e.Nominated: nominated,
    e.NominationEnded: nomination_ended,
    e.TaskReserved: task_reserved,
    e.TaskUnreserved: task_unreserved,
    e.NominationsChecked: nomination_checks.checked,
}
