// The one state of the page, and what changes it. Views are functions of it.

import * as api from "./api.js";
import { Beside, differences } from "./beside.js";
import * as link from "./link.js";
import { World } from "./world.js";

export const SPEEDS = [1, 10, 100, 1000, 10000];
const BUCKETS = 400;
const AGAIN = 3000; // ms until a console that has refused the stream is asked again
const LIVE_TIMELINE = 2000; // ms between two looks at a growing log's timeline

export class Store {
  constructor() {
    this.state = {
      me: null, log: null, timeline: null, error: "", playing: false, speed: 10, version: 0, names: 0, panel: true,
      ...link.read(location.hash),
    };
    this.address = location.hash; // as it was read or written last
    this.follow = this.state.follow = this.state.at === null;
    this.world = new World();
    this.names = new api.Names(() => this.set({ names: this.state.names + 1 }));
    this.listeners = new Set();
    this.drawn = new Set(); // called with the nodes that look different
    this.beside = null; // the other instant, where two are looked at
    this.wanted = null;
    this.busy = false;
  }

  set(patch) {
    Object.assign(this.state, patch);
    if (!this.waking) {
      this.waking = true;
      queueMicrotask(() => {
        this.waking = false;
        for (const listener of this.listeners) listener();
      });
    }
  }

  async start() {
    api.unknown.heard = () => this.identify();
    await this.identify();
    this.listen();
    // A browser has six connections to a host, and every page that is open needs one: those that nobody sees give theirs away.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stream.close() : this.listen()));
    addEventListener("hashchange", () => {
      const said = link.read((this.address = location.hash));
      if (link.written(said) === link.written(this.linked())) return;
      this.set({ ...said, at: this.state.at });
      this.follow = said.at === null;
      this.go(said.at === null ? { at: this.state.log?.last ?? 0 } : { at: said.at });
      this.compare(said.beside);
    });
  }

  // Who uses this page. Where nobody says, and somebody must, the page asks.
  async identify() {
    try {
      const me = await api.json("/api/v1/me");
      this.set({ me, stranger: me.login && !me.person });
    } catch (error) {
      this.set({ error: error.message });
    }
    if (this.state.stranger) this.stream?.close();
  }

  listen() {
    this.stream?.close();
    clearTimeout(this.listening);
    if (document.hidden || this.state.stranger) return;
    const stream = (this.stream = new EventSource("/api/v1/live"));
    stream.addEventListener("log", (event) => this.heard(JSON.parse(event.data)));
    stream.addEventListener("error", () => {
      this.set({ error: "the console does not answer; it is asked again" });
      // An answer that is no stream (too many follow it) ends it for good.
      if (stream.readyState === EventSource.CLOSED && stream === this.stream) this.listening = setTimeout(() => this.identify().then(() => this.listen()), AGAIN);
    });
  }

  heard(log) {
    if (!api.ofRun(log.run)) return;
    const grown = log.last !== this.state.log?.last;
    this.set({ log, error: "" });
    if (!log.last) return;
    const soon = LIVE_TIMELINE - (performance.now() - (this.timelineAt ?? -LIVE_TIMELINE));
    clearTimeout(this.looking);
    if (grown && (!this.state.timeline || soon <= 0 || log.done)) this.lookAtTime();
    // The last events before a quiet hour, too.
    else if (this.state.timeline && this.state.timeline.last < log.last) this.looking = setTimeout(() => this.lookAtTime(), Math.max(0, soon));
    if (this.state.beside !== null) this.compare(this.state.beside);
    if (this.world.at === null && this.state.at !== null) {
      if (this.state.at <= log.last) this.go({ at: this.state.at });
      else if (log.last === log.tail) this.go({ at: log.last });
    } else if (this.follow && grown && !this.state.playing) {
      this.go({ at: log.last });
    }
  }

  async lookAtTime() {
    this.timelineAt = performance.now();
    try {
      this.set({ timeline: await api.json("/api/v1/timeline", { buckets: BUCKETS }) });
    } catch (error) {
      this.set({ error: error.message });
    }
  }

  // What the link says: no instant while it follows the end.
  linked() {
    return { ...this.state, at: this.follow ? null : this.world.at };
  }

  relink() {
    // Somebody has just changed the address: `hashchange` is on its way, and what it says counts.
    if (location.hash !== this.address) return;
    const text = link.written(this.linked());
    if ((location.hash || "#") !== text) history.replaceState(null, "", text);
    this.address = location.hash;
  }

  // To an instant, `{ at }` or `{ time }`. While one is on its way only the latest wish counts.
  async go(where) {
    this.wanted = where;
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.wanted) {
        const query = this.wanted;
        this.wanted = null;
        await this._step(query);
      }
    } catch (error) {
      this.pause();
      this.set({ error: error.message });
    } finally {
      this.busy = false;
    }
  }

  async _step(query) {
    const began = performance.now();
    // What was before the log begins is not known.
    const at = query.at === undefined ? undefined : Math.max(query.at, this.state.log?.first ?? 0);
    const frame = await api.frame({ ...query, at, since: this.world.at ?? undefined });
    const dirty = await this.lay(this.world, frame);
    performance.measure("instant", { start: began, end: performance.now() });
    for (const draw of this.drawn) draw(dirty);
    this.set({ version: this.state.version + 1, at: this.world.at, error: "" });
    this.relinkSoon();
  }

  // Lays a frame over a world, once there are the words and names that it needs; returns the nodes that look different.
  async lay(world, frame) {
    if (frame.about.words > this.world.words.length) await this._words(frame.about.words);
    const dirty = world.apply(frame);
    const slots = frame.arrays["nodes.slot"];
    if (slots.length) await this.names.all("nodes", slots[slots.length - 1] + 1);
    return dirty;
  }

  // Puts the instant of this sequence beside the one that is shown; null for none.
  compare(at) {
    const { log } = this.state;
    const known = at === null || !log?.last ? at : Math.max(log.first, log.last === log.tail ? Math.min(at, log.last) : at);
    if (known !== this.state.beside) this.choose({ beside: known });
    if (known === null) {
      this.beside = null;
      return undefined;
    }
    if (!log || known > log.last) return undefined; // it is not read yet
    this.beside ??= new Beside(this);
    return this.beside.go(known);
  }

  // What became of the earlier of the two instants until the later one; null where there is none beside it, or it is on its way.
  differences() {
    const { beside, world } = this;
    if (!beside || beside.world.at === null || world.at === null) return null;
    const [before, after] = this.backwards ? [world, beside.world] : [beside.world, world];
    const key = `${before.at} ${after.at}`;
    if (this.differing?.key !== key) this.differing = { key, before, after, ...differences(before, after) };
    return this.differing;
  }

  // Whether the instant that is kept is the later one. The earlier is always first.
  get backwards() {
    return (this.beside?.world.at ?? 0) > (this.world.at ?? 0);
  }

  relinkSoon() {
    clearTimeout(this.relinking);
    this.relinking = setTimeout(() => this.relink(), 250);
  }

  // One at a time: two instants may want the same ones.
  _words(count) {
    this.learning = (this.learning ?? Promise.resolve()).catch(() => {}).then(() => this._moreWords(count));
    return this.learning;
  }

  async _moreWords(count) {
    while (this.world.words.length < count) {
      const said = await api.json("/api/v1/names/words", { from: this.world.words.length });
      if (!said.names.length) break;
      this.world.words.push(...said.names);
    }
  }

  // By hand: away from the end, unless it is the end.
  seek(where) {
    this.pause();
    this.follow = false;
    this.set({ follow: false });
    return this.go(where);
  }

  toEnd() {
    this.pause();
    this.follow = true;
    this.set({ follow: true });
    return this.go({ at: this.state.log.last });
  }

  async jump(which) {
    const said = await api.json("/api/v1/moment", { at: this.world.at });
    if (said[which]) await this.seek({ at: said[which].seq });
    return said[which];
  }

  play() {
    const { timeline } = this.state;
    if (!timeline || this.state.playing) return;
    let time = this.world.time >= timeline.to ? timeline.from : this.world.time;
    this.follow = false;
    this.set({ playing: true, follow: false });
    let before = performance.now();
    const tick = (now) => {
      if (!this.state.playing) return;
      time += (now - before) * this.state.speed;
      before = now;
      if (time >= this.state.timeline.to) {
        this.pause();
        this.go({ at: this.state.log.last });
        return;
      }
      this.playTime = time;
      if (!this.busy) this.go({ time: Math.round(time) });
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    if (this.state.playing) this.set({ playing: false });
  }

  choose(patch) {
    // What belongs to a plan is looked at beside it.
    if (patch.selected?.startsWith("plan/")) patch.plan = patch.selected.slice("plan/".length);
    this.set(patch);
    this.relinkSoon();
  }

  select(path) {
    this.choose({ selected: path, panel: true });
  }
}
