// Beside the map: what is chosen, or the instant as a whole.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { json } from "./api.js";
import { bytes, clock, cores, date, devices, isEmpty, many, number, percent } from "./format.js";
import { Belt } from "./belt.js";
import { Differences } from "./differences.js";
import { HOUR, summary } from "./moves.js";
import { CopyLink, HoldLink, Items, MoveLink, PodLink, asks } from "./parts.js";
import { PlanDetails } from "./plans.js";
import { Story, useAnswer } from "./story.js";
import { share, waits } from "./world.js";

const html = htm.bind(h);

const CALLED = { __proto__: null, migration: "move", podgroup: "PodGroup" };

export function Panel({ store }) {
  const { selected } = store.state;
  const kind = selected.split("/")[0];
  const Body = DETAILS.get(kind);
  const name = useRef(null);
  // Who has chosen it in the search, or from a list that is gone now, is here next. The map keeps its arrow keys.
  useEffect(() => {
    if (document.activeElement === document.body) name.current?.focus({ preventScroll: true });
  }, [selected]);
  if (!Body && store.state.beside !== null && store.state.view === "map") return html`<aside class="panel" aria-label="What differs"><${Differences} store=${store} /></aside>`;
  if (!Body) return html`<aside class="panel" aria-label="This instant"><${Overview} store=${store} /></aside>`;
  return html`<aside class="panel" aria-label=${selected}>
    <div class="title">
      <div><small>${CALLED[kind] ?? kind}</small><h2 ref=${name} tabIndex="-1">${selected.slice(kind.length + 1)}</h2></div>
      <${CopyLink} />
      <button class="icon" aria-label="Close" title="Escape" onClick=${() => store.select("")}>✕</button>
    </div>
    <${Body} key=${selected} store=${store} path=${selected} name=${selected.slice(kind.length + 1)} />
  </aside>`;
}

function Bar({ label, used, held = 0, whole, text }) {
  const part = (value) => `${whole ? Math.min(100, (100 * value) / whole) : 0}%`;
  return html`<div class="meter"><span>${label}</span><span class="figure">${text}</span>
    <div class="gauge"><i style=${{ width: part(used) }}></i><i class="held" style=${{ width: part(Math.min(held, whole - used)) }}></i></div></div>`;
}

function Overview({ store }) {
  const { world, state } = store;
  const { said: hour } = useAnswer(store, "/api/v1/moved", { within: HOUR, limit: 0 }, world.at);
  if (isEmpty(state.log)) return html`<p class="note">The log is empty: nothing has happened yet.</p>`;
  if (world.at === null) return html`<p class="note busy">${state.log?.tail ? `Reading the log: ${percent(state.log.last, state.log.tail)}` : "Reading the log …"}</p>`;
  const sum = world.summary();
  const waiting = world.waiting().sort((a, b) => b.priority - a.priority || b.asked - a.asked);
  const moving = world.underWay();
  return html`<div class="overview">
    <div class="title"><div><small>This instant</small><h2>${clock(world.time)} <small>${date(world.time)} UTC</small></h2></div><${CopyLink} /></div>
    ${sum.devices > 0 && html`<${Bar} label="Devices" used=${sum.used} held=${sum.held} whole=${sum.devices * 1000}
      text=${`${percent(sum.used, sum.devices * 1000)} of ${number(sum.devices)}`} />`}
    <dl class="facts">
      <div><dt>free devices</dt><dd>${number(sum.freeDevices)}</dd></div>
      <div><dt>free nodes</dt><dd>${number(sum.freeNodes)}</dd></div>
      <div><dt>nodes</dt><dd>${number(sum.nodes)}${sum.ready < sum.nodes ? html` <em>${sum.nodes - sum.ready} not ready</em>` : ""}</dd></div>
      <div><dt>pods running</dt><dd>${number(sum.running)}</dd></div>
      <div><dt>held devices</dt><dd>${devices(sum.held)}</dd></div>
      <div><dt>moves under way</dt><dd>${number(moving.length)}</dd></div>
    </dl>
    <p class="note">Moved in the last hour: ${hour ? html`<button class="plain" onClick=${() => store.choose({ view: "moves", within: HOUR })}>${summary(hour) || "nothing"}</button>` : "…"}</p>
    <h3>Waiting <b>${number(waiting.length)}</b></h3>
    ${waiting.length === 0 && html`<p class="note">No pod waits for a node.</p>`}
    <${Items} rows=${waiting} row=${(pod) => html`<${PodLink} store=${store} pod=${pod} note=${asks(pod)} />`} />
    ${moving.length > 0 && html`<h3>Moves under way <b>${number(moving.length)}</b></h3>
      <${Items} rows=${moving} row=${(move) => html`<${MoveLink} store=${store} move=${move} />`} />`}
    <${Happened} store=${store} />
  </div>`;
}

function Happened({ store }) {
  const { said, at } = useAnswer(store, "/api/v1/happened", { limit: 14 }, store.world.at);
  const stale = said && at !== store.world.at;
  return html`<h3>Just before</h3>
    ${!said && html`<p class="note busy">…</p>`}
    <ol class=${`told${stale ? " stale" : ""}`} aria-busy=${!!stale}>${(said ?? []).map((one) => html`<li key=${`${one.seq} ${one.command}`}>
      <button class="seq" title=${`go to sequence ${one.seq}`} onClick=${() => store.seek({ at: one.seq })}>${clock(one.time)}</button>
      <span>${one.events.slice(0, 3).join("; ")}${one.events.length + one.more > 3 ? `; and ${one.events.length + one.more - 3} more` : ""} <small>${one.family}</small></span></li>`)}</ol>`;
}

// The slot of what is chosen, which the map marks, too.
function useFound(store, path) {
  const [found, learn] = useState(store.found?.path === path ? store.found : null);
  const { at } = store.world;
  useEffect(() => {
    if (at === null || (found && found.slot >= 0 && (found.kind !== "pod" || store.world.pods.has(found.slot)))) return;
    json("/api/v1/find", { what: path, at }).then((said) => {
      store.found = said;
      learn(said);
      for (const draw of store.drawn) draw(new Set());
      store.reveal?.();
    }, () => {});
  }, [path, at]);
  return found;
}

function NodeDetails({ store, path }) {
  const { world, names } = store;
  const found = useFound(store, path);
  const node = found && world.nodes.get(found.slot);
  if (found && !node) return html`<p class="note">There is no such node at this instant.</p><${Belt} store=${store} path=${path} /><${Story} store=${store} path=${path} />`;
  if (!node) return html`<p class="note busy">…</p>`;
  const usage = world.usage(node);
  const pods = world.podsOf(node.slot);
  const holds = world.holdsOf(node.slot);
  const where = [node.kind, node.rack, node.zone].filter(Boolean).map((word) => world.words[word]);
  const cells = world.cells(node);
  return html`
    <p class="tags">${where.map((word) => html`<span>${word}</span>`)}${!node.ready && html`<span class="bad">not ready</span>`}${node.closed && html`<span class="bad">takes no new pods</span>`}</p>
    ${node.devices.length > 0 && html`<${Bar} label="Devices" used=${usage.devices} held=${usage.heldDevices} whole=${node.devices.length * 1000} text=${`${devices(usage.devices)} of ${node.devices.length}`} />`}
    <${Bar} label="CPU" used=${usage.cpu} held=${usage.heldCpu} whole=${node.cpu} text=${`${cores(usage.cpu)} of ${cores(node.cpu)}`} />
    <${Bar} label="Memory" used=${usage.memory} held=${usage.heldMemory} whole=${node.memory} text=${`${bytes(usage.memory)} of ${bytes(node.memory)}`} />
    <${Belt} store=${store} path=${path} />
    ${cells.length > 0 && html`<h3>Devices</h3><ul class="devices">${cells.map((cell, i) => html`<li>
      <span class="index">${node.devices[i]}</span>
      <span>${cell.used.length === 0 && !cell.held ? html`<small>free</small>` : ""}
        ${cell.used.map(([pod, milli]) => html`<span class="one"><${PodLink} store=${store} pod=${pod} note=${milli < 1000 ? `${milli / 10} %` : ""} /></span>`)}
        ${cell.held > 0 && html`<small class="held">${cell.held < 1000 ? `${cell.held / 10} % ` : ""}held</small>`}</span></li>`)}</ul>`}
    ${holds.length > 0 && html`<h3>Holds <b>${holds.length}</b></h3><${Items} rows=${holds} row=${(hold) => html`<${HoldLink} store=${store} hold=${hold} /> <small>${hold.phase}</small>
      ${hold.move >= 0 && names.get("moves", hold.move) && html` <button class="plain" onClick=${() => store.select(`migration/${names.get("moves", hold.move)}`)}>for a move</button>`}`} />`}
    <h3>Pods <b>${pods.length}</b></h3>
    <${Items} rows=${pods} row=${(pod) => html`<${PodLink} store=${store} pod=${pod} note=${asks(pod)} />`} />
    <${Story} store=${store} path=${path} />`;
}

function PodDetails({ store, path }) {
  const { world, names } = store;
  const found = useFound(store, path);
  const pod = found && world.pods.get(found.slot);
  const moves = pod ? [...world.moves.values()].filter((move) => move.pod === pod.slot || move.successor === pod.slot) : [];
  const node = pod && pod.node >= 0 ? names.get("nodes", pod.node) : "";
  return html`
    ${found && !pod && html`<p class="note">There is no such pod at this instant.</p>`}
    ${pod && html`<dl class="facts">
      <div><dt>status</dt><dd>${pod.status}${pod.ready ? ", ready" : ""}</dd></div>
      <div><dt>node</dt><dd>${node ? html`<button class="plain" onClick=${() => store.select(`node/${node}`)}>${node}</button>` : "none"}</dd></div>
      <div><dt>asks for</dt><dd>${pod.asked > 0 ? `${devices(pod.asked)} GPU, ` : ""}${cores(pod.cpu)} cpu, ${bytes(pod.memory)}</dd></div>
      ${pod.queue > 0 && html`<div><dt>queue</dt><dd><button class="plain" onClick=${() => store.select(`queue/${world.words[pod.queue]}`)}>${world.words[pod.queue]}</button></dd></div>`}
      <div><dt>priority</dt><dd>${pod.priority}</dd></div>
      ${pod.podgroup > 0 && html`<div><dt>PodGroup</dt><dd><button class="plain" onClick=${() => store.select(`podgroup/${world.words[pod.podgroup]}`)}>${world.words[pod.podgroup]}</button></dd></div>`}
      ${pod.workload > 0 && html`<div><dt>workload</dt><dd><button class="plain" onClick=${() => store.select(`workload/${world.words[pod.workload]}`)}>${world.words[pod.workload]}</button></dd></div>`}
    </dl>`}
    <${Belt} store=${store} path=${path} />
    ${moves.length > 0 && html`<h3>Moves</h3><${Items} rows=${moves} row=${(move) => html`<${MoveLink} store=${store} move=${move} />`} />`}
    <${Story} store=${store} path=${path} />`;
}

function MoveDetails({ store, path }) {
  const { world, names } = store;
  const found = useFound(store, path);
  const move = found && world.moves.get(found.slot);
  const holds = move ? [...world.holds.values()].filter((hold) => hold.move === move.slot) : [];
  const node = (slot) => (slot < 0 ? "nowhere" : html`<button class="plain" onClick=${() => store.select(`node/${names.get("nodes", slot)}`)}>${names.get("nodes", slot)}</button>`);
  const pod = (slot) => (slot < 0 ? "none" : html`<button class="plain" onClick=${() => store.select(`pod/${names.label("pods", slot)}`)}>${names.label("pods", slot)}</button>`);
  return html`
    ${found && !move && html`<p class="note">It is not planned yet, or forgotten, at this instant.</p>`}
    ${move && html`<dl class="facts">
      <div><dt>step</dt><dd>${move.step}, since ${clock(move.since)}</dd></div>
      <div><dt>pod</dt><dd>${pod(move.pod)}</dd></div>
      <div><dt>from</dt><dd>${node(move.source)}</dd></div>
      <div><dt>to</dt><dd>${node(move.target)}</dd></div>
      <div><dt>successor</dt><dd>${pod(move.successor)}</dd></div>
      <div><dt>plan</dt><dd><button class="plain" onClick=${() => store.select(`plan/${world.words[move.plan]}`)}>${world.words[move.plan]}</button></dd></div>
      ${holds.map((hold) => html`<div><dt>hold</dt><dd><${HoldLink} store=${store} hold=${hold} /></dd></div>`)}
      ${move.reason > 0 && html`<div><dt>reason</dt><dd>${world.words[move.reason]} ${world.words[move.message]}</dd></div>`}
    </dl>`}
    <${Belt} store=${store} path=${path} />
    <${Story} store=${store} path=${path} />`;
}

// What a Reservation holds: each slot with its node.
function ReservationDetails({ store, path, name }) {
  const { world, names } = store;
  const holds = [...world.holds.values()].filter((hold) => names.label("holds", hold.slot) === name);
  const node = (slot) => html`<button class="plain" onClick=${() => store.select(`node/${names.get("nodes", slot)}`)}>${names.get("nodes", slot) ?? "…"}</button>`;
  const move = names.get("moves", holds[0]?.move ?? -1);
  return html`<dl class="facts">
      <div><dt>slots held</dt><dd>${number(holds.length)}</dd></div>
      <div><dt>devices</dt><dd>${devices(holds.reduce((all, hold) => all + share(hold), 0))}</dd></div>
      ${move && html`<div><dt>for</dt><dd><button class="plain" onClick=${() => store.select(`migration/${move}`)}>a move</button></dd></div>`}
    </dl>
    <${Belt} store=${store} path=${path} />
    ${holds.length > 0 && html`<h3>${many(holds.length, "Slot", "Slots")}</h3>
      <${Items} rows=${holds} row=${(hold) => html`${node(hold.node)} <small>${[hold.phase, ...(share(hold) ? [`${devices(share(hold))} GPU`] : []), `${cores(hold.cpu)} cpu`].join(" · ")}</small>`} />`}
    <${Story} store=${store} path=${path} />`;
}

// Of a workload, a queue or a PodGroup: its pods, which the map shows alone.
function Owned({ store, path, name }) {
  const { world } = store;
  const kind = path.split("/")[0];
  const pods = [...world.pods.values()].filter((pod) => world.words[pod[kind]] === name);
  const sum = pods.reduce((all, pod) => all + (pod.node >= 0 ? share(pod) : 0), 0);
  return html`<dl class="facts">
      <div><dt>pods</dt><dd>${number(pods.length)}</dd></div>
      <div><dt>waiting</dt><dd>${number(pods.filter(waits).length)}</dd></div>
      <div><dt>devices</dt><dd>${devices(sum)}</dd></div>
    </dl>
    ${kind !== "workload" && html`<${Belt} store=${store} path=${path} />`}
    <h3>${many(pods.length, "Pod", "Pods")}</h3>
    <${Items} rows=${pods} row=${(pod) => html`<${PodLink} store=${store} pod=${pod} note=${asks(pod)} />`} />
    ${kind !== "workload" && html`<${Story} store=${store} path=${path} />`}`;
}

// A map, for what a link says may be any word: an object has `constructor`, too.
const DETAILS = new Map(Object.entries({ node: NodeDetails, pod: PodDetails, migration: MoveDetails, plan: PlanDetails, reservation: ReservationDetails, workload: Owned, queue: Owned, podgroup: Owned }));
