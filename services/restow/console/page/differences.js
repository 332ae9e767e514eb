// Beside the map: what differs between the two instants.

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";
import { clock, date, devices, number, span } from "./format.js";
import { CopyLink, Items, PodLink } from "./parts.js";

const html = htm.bind(h);
const keyOf = ([was, is]) => (is ?? was).slot;

export function Differences({ store }) {
  const { world, beside, state } = store;
  const found = store.differences();
  if (!found) {
    const unread = state.log && state.beside > state.log.last;
    return html`<p class="note busy">${unread ? "The other instant is not read yet …" : "…"}</p>`;
  }
  const { names } = store;
  const nodeOf = (row) => (row.node < 0 ? "waited" : names.get("nodes", row.node) ?? "…");
  const where = (row) => `${row.status}${row.node < 0 ? "" : ` on ${nodeOf(row)}`}`;
  const { before, after } = found;
  const swap = async () => {
    const at = world.at;
    await store.seek({ at: beside.world.at });
    store.compare(at);
  };
  const part = (title, rows, row) => rows.length > 0 && html`<h3>${title} <b>${number(rows.length)}</b></h3><${Items} rows=${rows} keyOf=${keyOf} row=${row} />`;
  const gap = after.time - before.time;
  return html`<div class="differences">
    <div class="title"><div><small>Two instants, ${gap ? `${span(gap)} apart` : "of the same time"}</small><h2>${clock(before.time)} → ${clock(after.time)} <small>${date(after.time)} UTC</small></h2></div><${CopyLink} /></div>
    <p class="buttons"><button title="keep the instant that is at the slider, and let the slider go on from the other" onClick=${swap}>Slide the other one</button><button onClick=${() => store.compare(null)}>End the comparison</button></p>
    <p class="note" role="status">${found.count ? `${number(found.count)} ${found.count === 1 ? "difference" : "differences"}. On the maps nodes that differ are outlined, and pods that do not are pale.` : "Nothing differs."}</p>
    ${part("Moved by a plan", found.moved, ([was, is, move]) => html`<${PodLink} store=${store} pod=${is} /> <button class="plain" title="the move" disabled=${!names.get("moves", move.slot)} onClick=${() => store.select(`migration/${names.get("moves", move.slot)}`)}><small>${nodeOf(was)} → ${is.node < 0 ? "no node yet" : nodeOf(is)}</small></button>`)}
    ${part("Placed, or on another node", found.placed, ([was, is]) => html`<${PodLink} store=${store} pod=${is} note=${`${nodeOf(was)} → ${is.node < 0 ? "no node" : nodeOf(is)}, ${is.status}`} />`)}
    ${part("New pods", found.came, ([, is]) => html`<${PodLink} store=${store} pod=${is} note=${where(is)} />`)}
    ${part("Pods that are gone", found.went, ([was]) => html`<${PodLink} store=${store} pod=${was} note=${`was ${where(was)}`} />`)}
    ${part("Pods that are otherwise", found.changed, ([was, is]) => html`<${PodLink} store=${store} pod=${is} note=${otherwise(was, is)} />`)}
    ${part("Nodes", found.nodes, ([was, is]) => html`<button class="plain" onClick=${() => store.select(`node/${names.get("nodes", (is ?? was).slot)}`)}>${names.get("nodes", (is ?? was).slot) ?? "…"}</button> <small>${nodeChange(was, is)}</small>`)}
    ${part("Holds", found.holds, ([was, is]) => html`<span>${names.label("holds", (is ?? was).slot) ?? "…"}</span> <small>${holdChange(was, is, nodeOf)}</small>`)}
  </div>`;
}

function otherwise(was, is) {
  if (was.status !== is.status) return `${was.status} → ${is.status}`;
  if (was.ready !== is.ready) return is.ready ? "ready" : "not ready any more";
  return "uses something else";
}

function nodeChange(was, is) {
  if (!was) return "new";
  if (!is) return "gone";
  const parts = [];
  if (was.ready !== is.ready) parts.push(is.ready ? "ready again" : "not ready any more");
  if (was.closed !== is.closed) parts.push(is.closed ? "takes no new pods any more" : "takes new pods again");
  if (was.devices.length !== is.devices.length) parts.push(`devices ${was.devices.length} → ${is.devices.length}`);
  return parts.join(", ") || "of another size";
}

function holdChange(was, is, nodeOf) {
  if (!was) return `${is.phase} on ${nodeOf(is)}`;
  if (!is) return `ended, was ${was.phase} on ${nodeOf(was)}`;
  if (was.node !== is.node) return `${nodeOf(was)} → ${nodeOf(is)}`;
  const held = (row) => devices(row.devices.reduce((all, [, milli]) => all + milli, 0));
  return was.phase !== is.phase ? `${was.phase} → ${is.phase}` : `devices held: ${held(was)} → ${held(is)}`;
}
