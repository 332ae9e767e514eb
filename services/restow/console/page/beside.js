// A second instant beside the one that is shown, and what differs between them.

import * as api from "./api.js";
import { World } from "./world.js";

// What a map needs of the store, at an instant that stays while the slider moves.
export class Beside {
  constructor(store) {
    this.store = store;
    this.world = new World();
    this.world.words = store.world.words; // the same list: words are of the log, not of an instant
    this.names = store.names;
    this.drawn = new Set();
    this.planned = null;
    this.wanted = null;
    this.busy = false;
  }

  get state() {
    return this.store.state;
  }

  get found() {
    return this.store.found;
  }

  select(path) {
    this.store.select(path);
  }

  // To a sequence. While one is on its way only the latest wish counts.
  async go(at) {
    this.wanted = at;
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.wanted !== null && this.wanted !== this.world.at) {
        const began = performance.now();
        const frame = await api.frame({ at: this.wanted, since: this.world.at ?? undefined });
        await this.store.lay(this.world, frame);
        performance.measure("beside", { start: began, end: performance.now() });
        for (const draw of this.drawn) draw(null);
        this.store.set({ version: this.store.state.version + 1 });
      }
    } catch (error) {
      this.store.set({ error: error.message });
    } finally {
      this.busy = false;
    }
  }
}

const key = (row) => row.devices.map((share) => (Array.isArray(share) ? share.join(":") : share)).join(" ");
const samePod = (a, b) => a.node === b.node && a.status === b.status && a.ready === b.ready && a.unsaid === b.unsaid && a.cpu === b.cpu && a.memory === b.memory && key(a) === key(b);
const sameNode = (a, b) => a.ready === b.ready && a.closed === b.closed && a.cpu === b.cpu && a.memory === b.memory && key(a) === key(b);
const sameHold = (a, b) => a.node === b.node && a.phase === b.phase && a.cpu === b.cpu && a.memory === b.memory && key(a) === key(b);

// [row before, row after] of what is not the same; one of them is undefined where there is none.
function pairs(before, after, same) {
  const found = [];
  for (const [slot, row] of before) {
    const other = after.get(slot);
    if (other === undefined || (other !== row && !same(row, other))) found.push([row, other]);
  }
  for (const [slot, row] of after) if (!before.has(slot)) found.push([undefined, row]);
  return found;
}

// What differs between two worlds. `moved`: a pod and the successor that a move has made of it. `pods` and `nodes` are the slots that maps mark: a node differs, too, where who is on it does.
export function differences(before, after) {
  const found = { moved: [], came: [], went: [], placed: [], changed: [], nodes: pairs(before.nodes, after.nodes, sameNode), holds: pairs(before.holds, after.holds, sameHold) };
  const pods = pairs(before.pods, after.pods, samePod);
  const marked = { pods: new Set(), nodes: new Set() };
  const came = new Map();
  const went = new Map();
  for (const [was, is] of pods) {
    marked.pods.add((is ?? was).slot);
    if (!is) went.set(was.slot, was);
    else if (!was) came.set(is.slot, is);
    else (was.node !== is.node ? found.placed : found.changed).push([was, is]);
  }
  const moveOf = new Map([...after.moves.values()].filter((move) => move.successor >= 0).map((move) => [move.pod, move]));
  for (const was of [...went.values()]) {
    // Its successor may have been moved on since: who is there now is at the end of the chain.
    let move = moveOf.get(was.slot);
    for (let left = moveOf.size; left > 0 && move && !came.has(move.successor); left--) move = moveOf.get(move.successor);
    const is = move && came.get(move.successor);
    if (!is) continue;
    found.moved.push([was, is, move]);
    went.delete(was.slot);
    came.delete(is.slot);
  }
  found.came = [...came.values()].map((row) => [undefined, row]);
  found.went = [...went.values()].map((row) => [row, undefined]);
  for (const [was, is] of found.nodes) marked.nodes.add((is ?? was).slot);
  for (const [was, is] of [...pods, ...found.holds]) for (const row of [was, is]) if (row && row.node >= 0) marked.nodes.add(row.node);
  return { ...found, marked, count: pods.length - found.moved.length + found.nodes.length + found.holds.length };
}
