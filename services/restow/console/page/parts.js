// What several views are made of.

import { h } from "./vendor/preact.js";
import { useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { cores, devices, number } from "./format.js";

const html = htm.bind(h);
const SHOWN = 12; // at first
const MOST = 500;

export const asks = (pod) => [pod.status, ...(pod.asked ? [`${devices(pod.asked)} GPU`] : []), `${cores(pod.cpu)} cpu`].join(" · ");

export function CopyLink() {
  const [copied, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      say("copied");
    } catch {
      say("copy it from the address bar");
    }
    setTimeout(() => say(""), 1800);
  };
  return html`<button class="link" onClick=${copy} title="Link to this, at this instant">${copied || "Copy link"}</button>`;
}

// `keyOf`: what tells rows apart.
export function Items({ rows, row, keyOf = (one) => one.slot }) {
  const [all, show] = useState(false);
  return html`<ul class="items">${(all ? rows.slice(0, MOST) : rows.slice(0, SHOWN)).map((one) => html`<li key=${keyOf(one)}>${row(one)}</li>`)}
    ${!all && rows.length > SHOWN && html`<li><button class="plain more" onClick=${() => show(true)}>all ${number(rows.length)}</button></li>`}
    ${all && rows.length > MOST && html`<li><small>the first ${MOST} of ${number(rows.length)}</small></li>`}</ul>`;
}

export function PodLink({ store, pod, note }) {
  const name = store.names.label("pods", pod.slot);
  return html`<button class="plain" disabled=${!name} onClick=${() => store.select(`pod/${name}`)}>${name ?? "…"}</button> <small>${note}</small>`;
}

export function HoldLink({ store, hold }) {
  const name = store.names.label("holds", hold.slot);
  return html`<button class="plain" disabled=${!name} onClick=${() => store.select(`reservation/${name}`)}>${name ?? "…"}</button>`;
}

export function MoveLink({ store, move }) {
  const { names } = store;
  const id = names.get("moves", move.slot);
  return html`<button class="plain" disabled=${!id} onClick=${() => store.select(`migration/${id}`)}>${names.label("pods", move.pod) || id || "…"}</button>
    <small>${move.step} · ${names.get("nodes", move.source)} → ${move.target < 0 ? "nowhere" : names.get("nodes", move.target)}</small>`;
}
