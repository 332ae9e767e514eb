// What one thing was over the whole log: a row of stretches, each leads to the instant in which it began.

import { h } from "./vendor/preact.js";
import { useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { clock, number, span } from "./format.js";
import { useAnswer } from "./story.js";

const html = htm.bind(h);
const text = (one) => `${one.what}${one.text ? ` (${one.text})` : ""}`;

export function Belt({ store, path }) {
  const { at, time } = store.world;
  const { said } = useAnswer(store, "/api/v1/belt", { what: path }, at);
  const [pointed, point] = useState(-1);
  if (!said?.spans.length) return null;
  const { spans } = said;
  const from = spans[0].time;
  const length = Math.max(1, spans[spans.length - 1].until - from);
  const place = (ms) => Math.max(0, Math.min(100, (100 * (ms - from)) / length));
  const current = spans.findLastIndex((one) => one.seq <= at);
  const shown = spans[pointed] ?? (current >= 0 && time <= spans[current].until ? spans[current] : null);
  // Arrows go from one to the next; Tab goes by.
  const walk = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = [...event.currentTarget.querySelectorAll("button")];
    all[Math.max(0, Math.min(all.length - 1, all.indexOf(document.activeElement) + by))].focus();
  };
  return html`<h3>What it was</h3>
    <div class="belt" role="group" aria-label="What it was: arrow keys go from one to the next, Enter goes to that instant" onKeyDown=${walk} onMouseLeave=${() => point(-1)}>
      ${spans.map((one, i) => html`<button key=${`${one.seq} ${one.what}`} class=${`was ${one.what.replaceAll(" ", "-")}${i === current ? " current" : ""}`} tabIndex=${i === Math.max(0, current) ? 0 : -1}
        style=${{ left: `${place(one.time)}%`, width: `${place(one.until) - place(one.time)}%` }} aria-label=${`${text(one)} since ${clock(one.time)}, for ${span(one.until - one.time)}`} aria-current=${i === current ? "time" : null}
        onMouseEnter=${() => point(i)} onFocus=${() => point(i)} onBlur=${() => point(-1)} onClick=${() => store.seek({ at: one.seq })}></button>`)}
      <i class="here" hidden=${time < from || time > from + length} style=${{ left: `${place(time)}%` }}></i>
    </div>
    <p class="was-text">${shown ? html`<b>${shown.what}</b> ${shown.text} <small>${clock(shown.time)}, ${span(shown.until - shown.time)}</small>` : html`<small>${clock(from)} to ${clock(from + length)}</small>`}
      ${said.earlier > 0 && html` <small>${number(said.earlier)} earlier ones are not shown</small>`}</p>`;
}
