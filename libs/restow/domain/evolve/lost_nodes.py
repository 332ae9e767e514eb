"""What is lost with a node: the charges of its pods, holds, nominations and reserved tasks. Pods stay until they are said to be gone; the session
releases the holds (`session.hold_releases`)."""

from restow.contracts.ids import NodeName
from restow.domain.node_table import vector_of
from restow.domain.slots import SlotKey
from restow.domain.state import NODE_LOST, ClusterState


def lose_node(state: ClusterState, name: NodeName) -> None:
    """The node is gone, or another one has its name."""
    for pod in list(state.on_node.get(name, ())):
        charge = state.charges[pod]
        state.account(charge.queue, state.vectors[charge.shape], -1)
        state.moved.append(pod)
        state.drop(state.charges, pod)
        state.drop_in(state.on_node, name, pod)
        state.put(state.homeless, pod, name)
    for key in list(state.held_on.get(name, ())):
        _lose_hold(state, name, key)
    for pod in list(state.nominated_on.get(name, ())):
        state.denominate(pod, placing=True)
        state.requeue(pod)
    for pod in list(state.reserved_on.get(name, ())):
        state.unreserve(pod)
    state.changed_rows.append(state.table.rows[name])
    state.table.remove_node(name)
    state.drop(state.nodes, name)
    state.drop(state.emptied, name)
    state.capacity_epoch += 1


def _lose_hold(state: ClusterState, name: NodeName, key: SlotKey) -> None:
    slot = state.slots[key[0]][key[1]]
    state.account(slot.queue, vector_of(slot.capacity.held), -1)
    state.moved.append(key)
    state.drop_in(state.held_on, name, key)
    state.drop_in(state.waiting_on, name, key)
    state.drop(state.whole, key)
    state.drop(state.resizes, key)
    state.put(state.to_release, key, NODE_LOST)
