// How the map is drawn and walked through: one canvas for boxes, as pixels; one above it for names, moves and what is chosen.

import { idleColor, podColor, theme } from "./colors.js";
import { fitted, grouped } from "./layout.js";
import { Raster } from "./raster.js";
import { devices, many } from "./format.js";

const KEPT_MEASURES = 2000;
const WAITING = new Set(["proposed", "planned", "observed"]); // steps of moves that have not begun

export class MapView {
  constructor(store, boxes, above, announce) {
    this.store = store;
    this.raster = new Raster(boxes);
    this.boxes = boxes;
    this.above = above;
    this.announce = announce;
    this.pen = above.getContext("2d");
    this.scroll = 0;
    this.steps = 0;
    this.cursor = -1;
    this.hover = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.draw = this.draw.bind(this);
    this.dirty = null; // null, a set of nodes, "scrolled" or "all"
    this.structure = -1;
    this.short = new Map();
  }

  start() {
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.boxes.parentElement);
    this.heard = (dirty) => this.changed(dirty);
    this.store.drawn.add(this.heard);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", () => this.recolor());
    this.resize();
  }

  stop() {
    this.observer.disconnect();
    this.store.drawn.delete(this.heard);
    this.stopped = true;
  }

  recolor() {
    this.colors = null;
    this.changed(null);
  }

  resize() {
    const place = this.boxes.parentElement.getBoundingClientRect();
    this.ratio = Math.min(3, devicePixelRatio || 1);
    this.width = Math.round(place.width * this.ratio);
    this.height = Math.round(place.height * this.ratio);
    for (const canvas of [this.boxes, this.above]) {
      canvas.style.width = `${place.width}px`;
      canvas.style.height = `${place.height}px`;
    }
    this.above.width = this.width;
    this.above.height = this.height;
    this.raster.resize(this.width, this.height);
    this.structure = -1;
    this.changed(null);
  }

  // Nodes that look different; null for all.
  changed(dirty) {
    if (dirty === null || this.dirty === "all" || this.dirty === "scrolled") this.dirty = "all";
    else this.dirty = this.dirty ? new Set([...this.dirty, ...dirty]) : dirty;
    this.ask();
  }

  // The same with the map beside, if there is one.
  askBoth() {
    this.ask();
    this.peer?.like(this);
  }

  ask() {
    if (!this.asked && !this.stopped) {
      this.asked = true;
      requestAnimationFrame(this.draw);
    }
  }

  relayout() {
    const { world, state, names } = this.store;
    if (this.groupsOf !== `${world.structure} ${state.group}`) {
      this.groups = grouped(world, state.group, (slot) => names.get("nodes", slot) ?? "");
      this.groupsOf = `${world.structure} ${state.group}`;
    }
    this.named = null;
    this.layout = fitted(this.groups, this.width, this.height, this.ratio, state.group !== "none", this.steps);
    this.steps = this.layout.steps;
    this.placeOf = new Map(this.layout.places.map((place, i) => [place.node.slot, i]));
    this.structure = world.structure;
    this.groupedBy = state.group;
    this.clamp();
  }

  clamp() {
    const most = Math.max(0, this.layout.height - this.height);
    this.scroll = Math.max(0, Math.min(most, Math.round(this.scroll)));
  }

  draw() {
    this.asked = false;
    const { world, state } = this.store;
    if (!this.width) return;
    const began = performance.now();
    this.colors ??= theme(matchMedia("(prefers-color-scheme: dark)").matches);
    if (world.at === null) {
      // Nothing is known yet, or the log is empty. The canvas is opaque, so black until it is drawn.
      this.raster.clear(this.colors.ground);
      return this.raster.show();
    }
    if (this.structure !== world.structure || this.groupedBy !== state.group) {
      this.relayout();
      this.dirty = "all";
    }
    if (this.dirty) {
      this.colorOf = podColor(state.color, world, this.colors);
      if (this.dirty === "all") {
        this.raster.clear(this.colors.ground);
        for (const place of this.layout.places) this.node(place);
      } else if (this.dirty === "scrolled") {
        const { from, to } = this.raster.shift(this.drawnAt - this.scroll, this.colors.ground);
        for (const place of this.layout.places) {
          const top = place.y - this.scroll;
          if (top < to && top + place.box.height > from) this.node(place);
        }
      } else {
        for (const slot of this.dirty) {
          const at = this.placeOf.get(slot);
          if (at !== undefined) this.node(this.layout.places[at]);
        }
      }
      this.raster.show();
      this.drawnAt = this.scroll;
      this.dirty = null;
    }
    this.overlay();
    performance.measure("map", { start: began, end: performance.now() });
    if (++this.measures > KEPT_MEASURES) {
      performance.clearMeasures();
      this.measures = 0;
    }
    if (this.moving && !this.still) this.ask();
  }

  measures = 0;

  shaded(color, pod) {
    const [kind, name] = this.lit ?? [];
    const lit = (!kind || this.store.world.words[pod[kind]] === name) && (!this.marked || this.marked.pods.has(pod.slot));
    const shown = pod.status === "Running" && pod.ready ? color : this.colors.paler(color);
    return lit ? shown : this.colors.faded(color);
  }

  // A place knows which node it is of; what the node is now, the world knows.
  nodeOf(place) {
    return this.store.world.nodes.get(place.node.slot);
  }

  node(place) {
    const { x, y, box } = place;
    const node = this.nodeOf(place);
    const top = y - this.scroll;
    if (!node || top + box.height < 0 || top > this.height) return;
    const { raster, colors, store } = this;
    const { world } = store;
    const { cells, usage } = world.content(node);
    const back = !node.ready ? colors.bad : node.closed ? colors.closed : colors.box;
    raster.rect(x, top, box.width, box.height, back);
    const left = x + box.pad;
    let at = top + box.pad + box.header;
    let idle = null;
    if (store.state.color === "idle") {
      const used = cells.filter((cell) => cell.used.length || cell.held).length;
      idle = idleColor(colors, cells.length ? 1 - used / cells.length : 0);
    }
    for (let i = 0; i < cells.length; i++) {
      const cx = left + (i % box.columns) * box.size;
      const cy = at + Math.floor(i / box.columns) * box.size;
      this.cell(cells[i], cx, cy, box.size - box.gap, idle);
    }
    if (!cells.length) raster.hatch(left, at, box.columns * box.size, box.rows * box.size, colors.empty, 4);
    at += box.rows * box.size + box.between;
    const full = box.columns * box.size;
    for (const [used, held, whole] of [[usage.cpu, usage.heldCpu, node.cpu], [usage.memory, usage.heldMemory, node.memory]]) {
      raster.rect(left, at, full, box.bar, colors.barBack);
      const end = whole ? Math.min(full, Math.round((full * used) / whole)) : 0;
      raster.rect(left, at, end, box.bar, colors.bar);
      if (held && whole) raster.rect(left + end, at, Math.min(full - end, Math.ceil((full * held) / whole)), box.bar, colors.hold);
      at += box.bar + Math.max(1, box.between - 1);
    }
  }

  // One device: what is used is filled from below, pod by pod; what is held is hatched.
  cell(cell, x, y, size, idle) {
    const { raster, colors } = this;
    if (cell.used.length !== 1 || cell.used[0][1] < 1000) raster.rect(x, y, size, size, idle && !cell.used.length && !cell.held ? idle : colors.empty);
    let filled = 0;
    for (const [pod, milli] of cell.used) {
      const height = Math.min(size - filled, Math.max(1, Math.round((size * milli) / 1000)));
      raster.rect(x, y + size - filled - height, size, height, this.shaded(this.colorOf(pod), pod));
      filled += height;
    }
    if (cell.held && filled < size) {
      const height = Math.min(size - filled, Math.max(1, Math.round((size * cell.held) / 1000)));
      if (size < 6) raster.rect(x, y + size - filled - height, size, height, colors.hold);
      else {
        raster.hatch(x, y + size - filled - height, size, height, colors.hold, 5);
        raster.frame(x, y + size - filled - height, size, height, colors.hold);
      }
    }
  }

  // Names, moves under way, what is chosen.
  overlay() {
    const { pen, colors, layout, ratio, store } = this;
    pen.clearRect(0, 0, this.width, this.height);
    pen.textBaseline = "middle";
    pen.fillStyle = colors.muted;
    pen.font = `600 ${Math.round(11.5 * ratio)}px system-ui, sans-serif`;
    for (const { y, group } of layout.headings) {
      const top = y - this.scroll + 10 * ratio;
      if (top < -20 * ratio || top > this.height + 20 * ratio) continue;
      pen.fillText(`${group.label || "not labelled"}   ${many(group.nodes.length, "node")}`, 1, top);
    }
    pen.font = `${Math.round(10 * ratio)}px system-ui, sans-serif`;
    for (const { node, x, y, box } of layout.places) {
      const top = y - this.scroll;
      if (!box.header || top + box.height < 0 || top > this.height) continue;
      const name = this.shortened(store.names.get("nodes", node.slot) ?? "", box.width - 2 * box.pad);
      pen.fillText(name, x + box.pad, top + box.pad + box.header / 2);
    }
    if (this.marked) this.outlined();
    this.arrows();
    const chosen = this.chosen();
    if (chosen !== undefined) this.ring(chosen, colors.accentText, 2);
    if (this.hover !== null && this.hover !== chosen) this.ring(this.hover, colors.muted, 1);
    if (this.focused && this.cursor >= 0) this.ring(this.cursor, colors.text, 2);
  }

  // Nodes that differ from the instant beside.
  outlined() {
    this.layout.places.forEach(({ node, y, box }, at) => {
      if (this.marked.nodes.has(node.slot) && y - this.scroll < this.height && y + box.height > this.scroll) this.ring(at, this.colors.accentText, 1.5);
    });
  }

  // What the map beside shows is what this one shows.
  like(other) {
    const slot = (at) => (at === null || at < 0 ? undefined : other.layout?.places[at]?.node.slot);
    this.hover = this.placeOf?.get(slot(other.hover)) ?? null;
    if (this.steps !== other.steps) {
      this.steps = other.steps;
      this.structure = -1;
      this.changed(null);
    }
    const scroll = this.layout ? Math.min(other.scroll, Math.max(0, this.layout.height - this.height)) : other.scroll;
    if (scroll !== this.scroll) {
      this.scroll = scroll;
      this.changed(null);
    }
    this.ask();
  }

  shortened(text, width) {
    const key = `${width} ${text}`;
    let known = this.short.get(key);
    if (known === undefined) this.short.set(key, (known = shortened(this.pen, text, width)));
    return known;
  }

  ring(at, color, thick) {
    const place = this.layout.places[at];
    if (!place) return;
    const { pen, ratio } = this;
    pen.strokeStyle = color;
    pen.lineWidth = thick * ratio;
    const out = ratio * (thick / 2 + 0.5);
    pen.strokeRect(place.x - out, place.y - this.scroll - out, place.box.width + 2 * out, place.box.height + 2 * out);
  }

  // The place of what is chosen: a node, or the node of a pod.
  chosen() {
    const { found } = this.store;
    if (!found || found.path !== this.store.state.selected) return undefined;
    const { world } = this.store;
    if (found.kind === "node") return this.placeOf.get(found.slot);
    if (found.kind === "pod") return this.placeOf.get(world.pods.get(found.slot)?.node);
    if (found.kind === "migration") return this.placeOf.get(world.moves.get(found.slot)?.target);
    return undefined;
  }

  arrows() {
    const moves = this.store.world.underWay().filter((move) => move.target >= 0);
    this.moving = moves.length > 0;
    const { pen, ratio, colors } = this;
    for (const move of moves) {
      const from = this.layout.places[this.placeOf.get(move.source)];
      const to = this.layout.places[this.placeOf.get(move.target)];
      if (!from || !to) continue;
      const [x1, y1, x2, y2] = [from.x + from.box.width / 2, from.y + from.box.height / 2 - this.scroll, to.x + to.box.width / 2, to.y + to.box.height / 2 - this.scroll];
      const bend = Math.min(80 * ratio, Math.hypot(x2 - x1, y2 - y1) / 4);
      const angle = Math.atan2(y2 - y1, x2 - x1);
      const [cx, cy] = [(x1 + x2) / 2 + bend * Math.sin(angle), (y1 + y2) / 2 - bend * Math.cos(angle)];
      pen.strokeStyle = colors.accentText;
      pen.fillStyle = colors.accentText;
      pen.lineWidth = 1.75 * ratio;
      pen.setLineDash([6 * ratio, 4 * ratio]);
      pen.lineDashOffset = this.still ? 0 : -performance.now() / 40;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.quadraticCurveTo(cx, cy, x2, y2);
      pen.stroke();
      pen.setLineDash([]);
      const tip = Math.atan2(y2 - cy, x2 - cx);
      pen.beginPath();
      pen.moveTo(x2, y2);
      for (const side of [-0.4, 0.4]) pen.lineTo(x2 - 9 * ratio * Math.cos(tip + side), y2 - 9 * ratio * Math.sin(tip + side));
      pen.fill();
      pen.beginPath();
      pen.arc(x1, y1, 3 * ratio, 0, 7);
      pen.fill();
    }
    this.planned();
  }

  // The moves of the plan that is chosen, as far as they have not begun.
  planned() {
    const { planned, state, names } = this.store;
    if (!planned || planned.path !== state.selected) return;
    this.named ??= new Map(this.layout.places.map((place) => [names.get("nodes", place.node.slot), place]));
    const { pen, ratio, colors } = this;
    pen.strokeStyle = pen.fillStyle = colors.accentText;
    pen.lineWidth = 1.25 * ratio;
    for (const move of planned.moves) {
      const [from, to] = [this.named.get(move.source), this.named.get(move.target)];
      if (!from || !to || !WAITING.has(move.step)) continue;
      const [x1, y1, x2, y2] = [from.x + from.box.width / 2, from.y + from.box.height / 2 - this.scroll, to.x + to.box.width / 2, to.y + to.box.height / 2 - this.scroll];
      const angle = Math.atan2(y2 - y1, x2 - x1);
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(x2, y2);
      for (const side of [-0.4, 0.4]) pen.lineTo(x2 - 9 * ratio * Math.cos(angle + side), y2 - 9 * ratio * Math.sin(angle + side));
      pen.fill();
    }
  }

  // -- pointer and keys ----------------------------------------------------------------------------------------------

  hit(event) {
    const area = this.boxes.getBoundingClientRect();
    const x = (event.clientX - area.left) * this.ratio;
    const y = (event.clientY - area.top) * this.ratio + this.scroll;
    const at = this.layout?.places.findIndex(({ x: left, y: top, box }) => x >= left && x < left + box.width && y >= top && y < top + box.height) ?? -1;
    return at < 0 ? null : at;
  }

  // The pod under the pointer, if it is on one.
  podAt(event, at) {
    const { x, y, box } = this.layout.places[at];
    const node = this.nodeOf(this.layout.places[at]);
    const area = this.boxes.getBoundingClientRect();
    const column = Math.floor(((event.clientX - area.left) * this.ratio - x - box.pad) / box.size);
    const within = (event.clientY - area.top) * this.ratio + this.scroll - y - box.pad - box.header;
    const row = Math.floor(within / box.size);
    if (column < 0 || column >= box.columns || row < 0 || row >= box.rows) return null;
    const cell = node && this.store.world.cells(node)[row * box.columns + column];
    if (!cell) return null;
    let height = (1 - (within % box.size) / box.size) * 1000;
    for (const [pod, milli] of cell.used) {
      height -= milli;
      if (height <= 0) return pod;
    }
    return null;
  }

  describe(at) {
    const node = this.nodeOf(this.layout.places[at]);
    if (!node) return "";
    const { world, names } = this.store;
    const usage = world.usage(node);
    const parts = [names.get("nodes", node.slot) ?? ""];
    if (!node.ready) parts.push("not ready");
    if (node.closed) parts.push("takes no new pods");
    if (node.devices.length) parts.push(`${devices(usage.devices)} of ${many(node.devices.length, "device")} used`);
    parts.push(many(world.podsOf(node.slot).length, "pod"));
    if (world.holdsOf(node.slot).length) parts.push(many(world.holdsOf(node.slot).length, "hold"));
    return parts.join(", ");
  }

  zoom(by) {
    this.steps += by;
    this.structure = -1;
    this.changed(null);
    this.askBoth();
  }

  fit() {
    this.steps = 0;
    this.scroll = 0;
    this.structure = -1;
    this.changed(null);
    this.askBoth();
  }

  scrollBy(pixels) {
    const before = this.scroll;
    this.scroll += pixels * this.ratio;
    this.clamp();
    if (this.scroll !== before) {
      // What is in sight before and after is the same pixels, if nothing else has changed.
      this.dirty = this.dirty === null || this.dirty === "scrolled" ? "scrolled" : "all";
      this.askBoth();
    }
    return this.scroll !== before;
  }

  // Brings a place into sight.
  reveal(at) {
    const place = this.layout?.places[at];
    if (!place) return;
    const top = place.y - 30 * this.ratio;
    const bottom = place.y + place.box.height + 20 * this.ratio;
    if (top < this.scroll) this.scroll = top;
    else if (bottom > this.scroll + this.height) this.scroll = bottom - this.height;
    else return this.ask();
    this.clamp();
    this.changed(null);
    return this.peer?.like(this);
  }

  key(event) {
    const places = this.layout?.places ?? [];
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (steps && places.length) {
      event.preventDefault();
      this.cursor = this.cursor < 0 ? 0 : this.next(...steps);
      this.announce(this.describe(this.cursor));
      this.reveal(this.cursor);
    } else if (event.key === "Home" || event.key === "End") {
      this.cursor = event.key === "Home" ? 0 : places.length - 1;
      this.announce(this.describe(this.cursor));
      this.reveal(this.cursor);
    } else if (event.key === "Enter" && this.cursor >= 0) {
      this.open(this.cursor);
    } else if (event.key === "+" || event.key === "=") this.zoom(1);
    else if (event.key === "-") this.zoom(-1);
    else if (event.key === "0") this.fit();
  }

  next(dx, dy) {
    const { places } = this.layout;
    if (dx) return Math.max(0, Math.min(places.length - 1, this.cursor + dx));
    const here = places[this.cursor];
    let best = this.cursor;
    let least = Infinity;
    places.forEach((place, i) => {
      if (Math.sign(place.y - here.y) !== dy) return;
      const far = Math.abs(place.y - here.y) * 4 + Math.abs(place.x - here.x);
      if (far < least) [best, least] = [i, far];
    });
    return best;
  }

  open(at, pod) {
    const { names } = this.store;
    if (pod) return this.store.select(`pod/${names.label("pods", pod.slot) ?? ""}`);
    return this.store.select(`node/${names.get("nodes", this.layout.places[at].node.slot)}`);
  }
}

function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let tail = text;
  while (tail.length > 1 && pen.measureText(`…${tail}`).width > width) tail = tail.slice(1);
  return `…${tail}`;
}
