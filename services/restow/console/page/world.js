// What there is at the instant that is shown. Frames are laid over it; nobody else changes it.

export class World {
  constructor() {
    this.nodes = new Map();
    this.pods = new Map();
    this.holds = new Map();
    this.moves = new Map();
    this.podsOn = new Map();
    this.holdsOn = new Map();
    this.at = null;
    this.time = 0;
    this.words = [""];
    this.worked = new Map(); // by node what was worked out of its pods and holds, until one of them changes
    this.structure = 0; // grows when nodes come, go or become others: the layout depends on them
  }

  // Lays a frame over it; returns the slots of the nodes that look different now, null for all of them.
  apply({ about, arrays }) {
    const whole = about.since === null;
    const dirty = new Set();
    if (whole) {
      for (const kind of ["nodes", "pods", "holds", "moves", "podsOn", "holdsOn"]) this[kind].clear();
      this.structure++;
    }
    this._nodes(arrays, whole, dirty);
    this._placed("pods", this.podsOn, arrays, whole, dirty, (a, i) => ({
      status: about.statuses[a["pods.status"][i]], ready: !!a["pods.ready"][i], unsaid: a["pods.unsaid"][i], asked: a["pods.asked"][i], queue: a["pods.queue"][i],
      priority: a["pods.priority"][i], workload: a["pods.workload"][i], podgroup: a["pods.podgroup"][i],
    }));
    this._placed("holds", this.holdsOn, arrays, whole, dirty, (a, i) => ({ phase: about.phases[a["holds.phase"][i]], move: a["holds.move"][i] }));
    this._moves(about, arrays, whole);
    this.at = about.at;
    this.time = about.time;
    if (whole) this.worked.clear();
    else for (const slot of dirty) this.worked.delete(slot);
    return whole ? null : dirty;
  }

  _nodes(a, whole, dirty) {
    const slots = a["nodes.slot"];
    const shares = devices(a, "nodes");
    if (!whole) {
      for (const slot of a["nodes.gone"]) if (this.nodes.delete(slot)) this.structure++;
    }
    for (let i = 0; i < slots.length; i++) {
      const flags = a["nodes.flags"][i];
      const node = {
        slot: slots[i], ready: !!(flags & 1), closed: !!(flags & 2), cpu: a["nodes.cpu"][i], memory: a["nodes.memory"][i],
        kind: a["nodes.kind"][i], rack: a["nodes.rack"][i], zone: a["nodes.zone"][i], devices: shares[i].map(([index]) => index),
      };
      const before = this.nodes.get(node.slot);
      if (!before || before.kind !== node.kind || before.rack !== node.rack || before.zone !== node.zone || before.devices.length !== node.devices.length) {
        this.structure++;
      }
      this.nodes.set(node.slot, node);
      dirty.add(node.slot);
    }
  }

  _placed(kind, on, a, whole, dirty, more) {
    const known = this[kind];
    const leave = (row) => {
      on.get(row.node)?.delete(row.slot);
      dirty.add(row.node);
    };
    if (!whole) {
      for (const slot of a[`${kind}.gone`]) {
        const row = known.get(slot);
        if (row) leave(row);
        known.delete(slot);
      }
    }
    const slots = a[`${kind}.slot`];
    const shares = devices(a, kind);
    for (let i = 0; i < slots.length; i++) {
      const before = known.get(slots[i]);
      if (before) leave(before);
      const row = {
        slot: slots[i], node: a[`${kind}.node`][i], cpu: a[`${kind}.cpu`][i], memory: a[`${kind}.memory`][i], devices: shares[i], ...more(a, i),
      };
      known.set(row.slot, row);
      if (!on.has(row.node)) on.set(row.node, new Set());
      on.get(row.node).add(row.slot);
      dirty.add(row.node);
    }
  }

  _moves(about, a, whole) {
    if (!whole) for (const slot of a["moves.gone"]) this.moves.delete(slot);
    const slots = a["moves.slot"];
    for (let i = 0; i < slots.length; i++) {
      this.moves.set(slots[i], {
        slot: slots[i], plan: a["moves.plan"][i], pod: a["moves.pod"][i], successor: a["moves.successor"][i], source: a["moves.source"][i],
        target: a["moves.target"][i], step: about.steps[a["moves.step"][i]], since: a["moves.since"][i], reason: a["moves.reason"][i],
        message: a["moves.message"][i],
      });
    }
  }

  podsOf(node) {
    return [...(this.podsOn.get(node) ?? [])].map((slot) => this.pods.get(slot));
  }

  holdsOf(node) {
    return [...(this.holdsOn.get(node) ?? [])].map((slot) => this.holds.get(slot));
  }

  // Moves that have begun and not ended.
  underWay() {
    return [...this.moves.values()].filter((move) => UNDER_WAY.has(move.step));
  }

  waiting() {
    return [...this.pods.values()].filter(waits);
  }

  // What `cells` and `usage` say of a node, worked out once.
  content(node) {
    let known = this.worked.get(node.slot);
    if (!known) this.worked.set(node.slot, (known = this._worked(node)));
    return known;
  }

  _worked(node) {
    const cells = this._cells(node);
    const known = { cells, usage: this._usage(node), used: 0, held: 0, freeDevices: 0 };
    for (const cell of cells) {
      let used = 0;
      for (const [, milli] of cell.used) used += milli;
      used = Math.min(1000, used);
      known.used += used;
      known.held += Math.min(cell.held, 1000 - used);
      if (!used && !cell.held) known.freeDevices++;
    }
    return known;
  }

  // Of each device of a node who uses how many thousandths of it, and how many are held. Devices that nobody names are the first free ones.
  cells(node) {
    return this.content(node).cells;
  }

  // Of a node: thousandths of devices that are used and held, cpu and memory likewise.
  usage(node) {
    return this.content(node).usage;
  }

  _usage(node) {
    const sum = { cpu: 0, memory: 0, devices: 0, heldCpu: 0, heldMemory: 0, heldDevices: 0 };
    for (const pod of this.podsOf(node.slot)) {
      sum.cpu += pod.cpu;
      sum.memory += pod.memory;
      sum.devices += share(pod);
    }
    for (const hold of this.holdsOf(node.slot)) {
      sum.heldCpu += hold.cpu;
      sum.heldMemory += hold.memory;
      sum.heldDevices += share(hold);
    }
    return sum;
  }

  // Everything in a few numbers.
  summary() {
    const sum = { nodes: this.nodes.size, ready: 0, devices: 0, used: 0, held: 0, freeDevices: 0, freeNodes: 0, pods: 0, running: 0 };
    for (const node of this.nodes.values()) {
      const { used, held, freeDevices } = this.content(node);
      sum.ready += node.ready ? 1 : 0;
      sum.devices += node.devices.length;
      sum.used += used;
      sum.held += held;
      sum.freeDevices += freeDevices;
      if (!this.holdsOf(node.slot).length && !this.podsOf(node.slot).some((pod) => this.keeps(pod))) sum.freeNodes++;
    }
    for (const pod of this.pods.values()) {
      sum.pods++;
      if (pod.status === "Running") sum.running++;
    }
    return sum;
  }

  // Whether a pod keeps its node from being free, as plans count that: those that every node has do not, nor does one that has ended.
  keeps(pod) {
    return pod.status !== "Succeeded" && pod.status !== "Failed" && !/^(DaemonSet|Node)\//.test(this.words[pod.workload] ?? "");
  }

  _cells(node) {
    const place = new Map(node.devices.map((index, i) => [index, i]));
    const cells = node.devices.map(() => ({ used: [], held: 0 }));
    const unsaid = [];
    for (const pod of this.podsOf(node.slot)) {
      for (const [index, milli] of pod.devices) cells[place.get(index)]?.used.push([pod, milli]);
      for (let i = 0; i < pod.unsaid; i++) unsaid.push(pod);
    }
    for (const hold of this.holdsOf(node.slot)) {
      for (const [index, milli] of hold.devices) {
        const cell = cells[place.get(index)];
        if (cell) cell.held += milli;
      }
    }
    for (const cell of cells) {
      if (!unsaid.length) break;
      if (!cell.used.length && !cell.held) cell.used.push([unsaid.pop(), 1000]);
    }
    return cells;
  }
}

export const UNDER_WAY = new Set(["holding", "held", "evicting", "evicted", "aborting"]);
const WAITS = new Set(["Pending", "Waiting", "Gated", "Nominated"]);

// Whether a pod waits for a node. One that has one is Pending, too, until its containers run.
export const waits = (pod) => pod.node < 0 && WAITS.has(pod.status);

// Thousandths of devices that a pod or a hold has, in all.
export function share(row) {
  let sum = (row.unsaid ?? 0) * 1000;
  for (const [, milli] of row.devices) sum += milli;
  return sum;
}

// Of each row of a frame its device shares, `[index, thousandths]`.
function devices(a, kind) {
  const counts = a[`${kind}.count`];
  const index = a[`${kind}.shareIndex`];
  const milli = a[`${kind}.shareMilli`];
  let taken = 0;
  const found = new Array(counts.length);
  for (let i = 0; i < counts.length; i++) {
    const shares = (found[i] = []);
    for (const end = taken + counts[i]; taken < end; taken++) shares.push([index[taken], milli[taken]]);
  }
  return found;
}
