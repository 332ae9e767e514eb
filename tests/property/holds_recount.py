"""What the state says of Reservations, places, draws and slots, added up anew, slowly: `wrong(state)` is what does not agree."""

from collections import Counter, defaultdict

from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.held_capacity import UNAVAILABLE
from restow.domain.records import ON_NODE, SlotPhase, Tally
from restow.domain.reservation.hold_index import HoldIndex
from restow.domain.state import NODE_LOST, ClusterState


def wrong(state: ClusterState) -> list[str]:
    found = []
    for check in (table, steps, places, slots, allocations, index, accounts, cores, ports):
        found += [f"{check.__name__}: {sentence}" for sentence in check(state)]
    return found


def on_nodes(state: ClusterState):
    """(place, slot) of everything that is on a node which is still there."""
    for uid, slots in state.slots.items():
        for name, slot in slots.items():
            if slot.phase in ON_NODE and state.to_release.get((uid, name)) != NODE_LOST:
                yield (uid, name), slot


def table(state):
    """The node table is the sum of charges, slots of places and of nominations; and no node gives more than it has for a hold."""
    used, reserved, releasing, devices = (defaultdict(Counter) for _ in range(4))
    kept, unsaid = defaultdict(Counter), Counter()
    for charge in state.charges.values():
        amounts = dict(state.vectors[charge.shape].items)
        used[charge.node].update(amounts)
        if charge.releasing:
            releasing[charge.node].update(amounts)
        devices[charge.node].update({d.index: d.milli for d in charge.devices})
        if not charge.devices and (request := state.vectors[charge.shape].devices) is not None:
            unsaid[charge.node] += request.count
    homes = [(slot.node, slot.capacity) for _, slot in on_nodes(state)] + [(n.node, n.capacity) for n in state.nominations.values()]
    for node, capacity in homes:
        reserved[node].update(dict(capacity.held))
        devices[node].update({d.index: d.milli for d in capacity.held_devices})
        kept[node].update({d.index: d.milli for d in capacity.held_devices})
    for node, row in state.table.rows.items():
        fact, said = state.nodes[node], state.device_objects.get(node)
        there = range(fact.devices) if said is None else [g.index for g in said.gpus if g.healthy]
        for resource, column in state.table.columns.items():
            now = {name: int(getattr(state.table, name)[row, column]) for name in ("used", "reserved", "releasing", "free")}
            left = fact.allocatable.get(resource, 0) - used[node][column] - reserved[node][column]
            right = {"used": used[node][column], "reserved": reserved[node][column], "releasing": releasing[node][column], "free": left}
            if now != right:
                yield f"{node} {resource} is {now}, and should be {right}"
            if left < 0 < reserved[node][column]:
                yield f"{node} {resource} is over-committed by {-left}, and {reserved[node][column]} are reserved"
        for index in [index for index in there if not devices[node][index]][: unsaid[node]]:
            devices[node][index] = 1000
        for index in there:
            free = int(state.table.device_free[row, index])
            if free != 1000 - devices[node][index]:
                yield f"{node} device {index} has {free} free, and should have {1000 - devices[node][index]}"
            if free < 0 < kept[node][index]:
                yield f"{node} device {index} is over-committed by {-free}, and {kept[node][index]} are held"
        for index in set(kept[node]) - set(there):
            if kept[node][index]:
                yield f"{node} has no device {index}, and {kept[node][index]} of it are held"


def steps(state):
    """What is free and lacked by somebody on its node is held. Of all GPUs together it lacks as much as of its own devices, and more only where
    nothing is left: so who waits for a device keeps nobody from another one."""
    gpus = state.table.columns.get("restow.dev/gpu-milli")
    there = [(key, slot.node, slot.capacity) for key, slot in on_nodes(state)]
    there += [(pod, n.node, n.capacity) for pod, n in state.nominations.items()]
    for who, node, capacity in there:
        row = state.table.rows[node]
        lacks = Counter(dict(capacity.wanted)) - Counter(dict(capacity.held))
        of_devices = Counter({d.index: d.milli for d in capacity.devices}) - Counter({d.index: d.milli for d in capacity.held_devices})
        together = min(of_devices.total(), dict(capacity.wanted).get(gpus, 0))
        if lacks[gpus] < together:
            yield f"{who} lacks {dict(of_devices)} of devices, and only {lacks[gpus]} of all GPUs together: {capacity}"
        for column, amount in lacks.items():
            free = int(state.table.free[row, column])
            if free > 0 and amount > (together if column == gpus else 0):
                yield f"{who} lacks {amount} of {state.table.resources[column]}, and {free} are free: {capacity}"
        for index in of_devices:
            if index < state.table.device_free.shape[1] and (free := int(state.table.device_free[row, index])) > 0:
                yield f"{who} lacks {of_devices[index]} of device {index}, and {free} are free: {capacity}"


def places(state):
    """Indexes over places are what going through all of them says."""
    held, waiting, pending = defaultdict(set), defaultdict(set), set()
    for uid, slots in state.slots.items():
        counts = Counter(slot.phase for slot in slots.values())
        right = Tally(*(counts[phase] for phase in SlotPhase))
        if state.tally_of(uid) != right:
            yield f"the tally of {uid} is {state.tally_of(uid)}, and should be {right}"
        pending |= {(uid, name) for name, slot in slots.items() if slot.phase is SlotPhase.PENDING}
    for key, slot in on_nodes(state):
        held[slot.node].add(key)
        if slot.phase is SlotPhase.WAITING:
            waiting[slot.node].add(key)
    for name, right in (("held_on", held), ("waiting_on", waiting)):
        now = {node: set(keys) for node, keys in getattr(state, name).items() if keys}
        if now != dict(right):
            yield f"{name} is {now}, and should be {dict(right)}"
    if set(state.slot_queue) != pending:
        yield f"slot_queue is {set(state.slot_queue)}, and should be {pending}"
    whole = {key for key, slot in on_nodes(state) if slot.phase is SlotPhase.WAITING and slot.capacity.complete}
    if set(state.whole) != whole:
        yield f"whole is {set(state.whole)}, and should be {whole}"
    resizes = {key for key, slot in on_nodes(state) if slot.asked and key not in state.to_release}
    if set(state.resizes) != resizes:
        yield f"resizes is {set(state.resizes)}, and should be {resizes}"
    for uid, phase in state.phases.items():
        usable = str(phase.phase) == "Available" and not state.reservations[uid].over
        if (uid in state.available) != usable:
            yield f"{uid} is {phase.phase}, available: {uid in state.available}"
    if state.unsettled:
        yield f"unsettled: {list(state.unsettled)}"


def slots(state):
    """What a place is to have, and what owners have taken of it, is what it is of; nothing else is held."""
    for key, slot in on_nodes(state):
        capacity, full = slot.capacity, Counter(dict(state.vectors[slot.shape].items))
        shares = Counter({d.index: d.milli for d in slot.devices})
        mine = set(slot.cores)
        for pod in state.slot_users.get(key, ()):
            drawn = state.allocations[pod]
            full -= Counter(dict(drawn.items))
            shares -= Counter({d.index: d.milli for d in drawn.devices})
            mine -= set(drawn.cores)
        if dict(capacity.wanted) != dict(full) or {d.index: d.milli for d in capacity.devices} != dict(shares) or set(capacity.cores) != mine:
            yield f"{key} wants {capacity}, and should want {dict(full)} {dict(shares)} {mine}"
        if any(amount > dict(capacity.wanted).get(column, 0) or amount <= 0 for column, amount in capacity.held):
            yield f"{key} holds more than it wants, or nothing: {capacity}"
        if any(d.milli > Counter({w.index: w.milli for w in capacity.devices})[d.index] or d.milli <= 0 for d in capacity.held_devices):
            yield f"{key} holds more of a device than it wants, or nothing: {capacity}"
        if slot.phase is SlotPhase.HELD and not capacity.complete:
            yield f"{key} is held and not whole: {capacity}"
        if capacity.complete != (capacity.held == capacity.wanted and capacity.held_devices == capacity.devices) or list(capacity.held) != sorted(capacity.held):
            yield f"{key} is of no order: {capacity}"


def allocations(state):
    """Drawers are those that have taken, and a pod draws where it is charged."""
    right = defaultdict(set)
    for pod, drawn in state.allocations.items():
        right[drawn.reservation, drawn.slot].add(pod)
        charge = state.charges.get(pod)
        if drawn.node in state.nodes and pod not in state.homeless and (charge is None or charge.node != drawn.node):
            yield f"{pod} has drawn on {drawn.node}, and is charged {charge}"
        if charge is not None and charge.node == drawn.node:
            request = dict(state.vectors[charge.shape].items)
            if any(amount > request.get(column, 0) for column, amount in drawn.items):
                yield f"{pod} has drawn more than it asks for: {drawn}"
    now = {key: set(pods) for key, pods in state.slot_users.items() if pods}
    if now != dict(right):
        yield f"slot_users are {now}, and should be {dict(right)}"


def index(state):
    """The index of holds is one made anew."""
    now, anew = HoldIndex.of(state), HoldIndex(state)
    if now.open != anew.open or now.any != anew.any:
        yield f"{now.open} are open, and should be {anew.open}"
    for uid in state.reservations:
        classes = now.class_of(uid), anew.class_of(uid)
        if (classes[0] is None) != (classes[1] is None):
            yield f"{uid} is of {classes}"
        elif classes[0] is not None:
            for name in ("members", "open", "all"):
                old, new = (set(getattr(kind, name)) for kind in classes)
                if old != new:
                    yield f"{name} of {uid}'s kind are {old}, and should be {new}"
            for shape, ladder in classes[0].ladders.items():
                right = anew.ladder(classes[1], shape)
                if ladder.entries != right.entries or ladder.ranks != right.ranks:
                    yield f"pods of {shape} take {ladder.entries}, and should take {right.entries}"
    for pod in state.queue.keys() | state.parked.keys():
        said = state.pods[pod].fact
        old, new = (sorted(map(str, (k.record.fact.reservation for k in i.classes(said)))) for i in (now, anew))
        if len(old) != len(new):
            yield f"{pod} owns {old}, and should own {new}"


def accounts(state):
    """Queues are accounted for their pods and for what is held for them."""
    right = defaultdict(Counter)
    for charge in state.charges.values():
        if charge.queue:
            right[charge.queue].update(dict(state.vectors[charge.shape].items))
    for _, slot in on_nodes(state):
        if slot.queue:
            right[slot.queue].update(dict(slot.capacity.held))
    for queue in {*right, *state.accounts.queues(), DEFAULT_QUEUE}:
        want = {column: amount for column, amount in right[queue].items() if amount}
        if state.accounts.of(queue) != want:
            yield f"{queue} uses {state.accounts.of(queue)}, and should use {want}"


def cores(state):
    """No CPU is used or held twice. (A nomination may be for CPUs that its victims still have.)"""
    found = defaultdict(Counter)
    for charge in state.charges.values():
        found[charge.node].update(charge.cores)
    for _, slot in on_nodes(state):
        found[slot.node].update(slot.capacity.cores)
    for node, counts in found.items():
        twice = [core for core, count in counts.items() if count > 1]
        if twice:
            yield f"CPUs {twice} of {node} are given twice"


def ports(state):
    """No two slots on a node keep one host port. (One that has it back, since its owner was never bound there, is to go elsewhere where another has got it.)"""
    there = [slot for key, slot in on_nodes(state) if state.to_release.get(key) != UNAVAILABLE]
    kept = Counter((slot.node, port) for slot in there for port in state.shapes[slot.shape].host_ports)
    for (node, port), times in kept.items():
        if times > 1:
            yield f"{times} slots on {node} keep {port}"
