// What moved: the moves that ended within the hour, or another while, before the instant that is shown; and those under way.

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";
import { clock, date, isEmpty, many, number, span } from "./format.js";
import { useAnswer } from "./story.js";

const html = htm.bind(h);
export const HOUR = 3600e3;
const ALL = 1e14; // ms: longer than any log
export const WHILES = new Map([[600e3, "10 minutes"], [HOUR, "hour"], [6 * HOUR, "6 hours"], [24 * HOUR, "day"], [168 * HOUR, "week"], [ALL, "whole log"]]);
const WORDS = { landed: "landed", failed: "did not land", not_recreated: "came back nowhere", removed: "removed, with nothing held for it" };
const of = (steps) => Object.entries(WORDS).filter(([step]) => steps[step]).map(([step, word]) => `${number(steps[step])} ${word}`);

// How many moves ended how, and are under way, in a few words.
export const summary = (said) => [...of(said.steps), ...(said.underWay ? [`${number(said.underWay)} under way`] : [])].join(", ");

export function Moves({ store }) {
  const { world, state } = store;
  const { within } = state;
  const { said, error, at } = useAnswer(store, "/api/v1/moved", { within }, world.at);
  if (error) return html`<div class="list"><p class="note">${error}</p></div>`;
  if (isEmpty(state.log)) return html`<div class="list"><p class="note">The log is empty: nothing has moved yet.</p></div>`;
  if (!said) return html`<div class="list"><p class="note busy">…</p></div>`;
  const stale = at !== world.at;
  const begin = Math.max(said.from, state.log.from);
  const compare = () => {
    store.choose({ view: "map", selected: "" });
    store.compare(said.since);
  };
  return html`<div class=${`list moved${stale ? " stale" : ""}`} aria-busy=${stale}>
    <h1>Moves <small>${clock(begin)} – ${clock(said.time)}${date(begin) === date(said.time) ? "" : `, from ${date(begin)} on`}</small></h1>
    <p class="buttons">
      <label class="choice"><span>What moved in the last</span><select value=${within} onChange=${(event) => store.choose({ within: Number(event.target.value) })}>
        ${[...WHILES].map(([ms, word]) => html`<option value=${ms}>${word}</option>`)}</select></label>
      ${said.moves.length > 0 && html`<button onClick=${compare}>Compare both ends on the map</button>`}</p>
    <p role="status">${said.moves.length ? html`<b>${summary(said)}</b>` : nothing(store, said)}</p>
    ${said.moves.length > 0 && html`<table>
      <thead><tr><th>When</th><th>Pod</th><th>From → to</th><th>Outcome</th><th class="right">Away</th><th>Plan</th></tr></thead>
      <tbody>${said.moves.map((move) => html`<${Row} key=${move.migration} store=${store} move=${move} />`)}</tbody></table>`}
    ${said.more > 0 && html`<p class="note">and ${many(said.more, "earlier move", "earlier moves")}</p>`}
    ${said.moves.some((move) => move.away !== null) && html`<p class="note">Away: from when the pod was gone, or terminated, until its successor was ready.</p>`}
  </div>`;
}

function nothing(store, said) {
  if (!said.before) return "No pod was moved until this instant.";
  return html`No pod was moved then. The last move before that ended at <button class="seq" onClick=${() => store.seek({ time: said.before })}>${date(said.before)} ${clock(said.before)}</button>.`;
}

function Row({ store, move }) {
  const node = (name) => (name ? html`<button class="plain" onClick=${() => store.select(`node/${name}`)}>${name}</button>` : "nowhere");
  const pod = (name) => html`<button class="plain" onClick=${() => store.select(`pod/${name}`)}>${name}</button>`;
  return html`<tr>
    <td><button class="seq" title=${`go to sequence ${move.seq}`} onClick=${() => store.seek({ at: move.seq })}>${date(move.since)} ${clock(move.since)}</button></td>
    <td>${move.pod ? pod(move.pod) : "–"}${move.successor && move.successor !== move.pod && html`<br /><small>now ${pod(move.successor)}</small>`}</td>
    <td>${node(move.source)} → ${node(move.target)}</td>
    <td><button class="plain" onClick=${() => store.select(`migration/${move.migration}`)}><span class=${`step ${move.step}`}>${move.step.replace("_", " ")}</span></button>
      ${move.reason && html`<br /><small>${move.reason}${move.message && `: ${move.message}`}</small>`}</td>
    <td class="right">${move.away === null ? "–" : html`<span class="only">away </span>${span(move.away)}`}</td>
    <td>${move.plan ? html`<span class="only">plan </span><button class="plain" onClick=${() => store.select(`plan/${move.plan}`)}>${move.plan}</button>` : "–"}</td></tr>`;
}
