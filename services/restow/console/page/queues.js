// Queues: what each may use and uses, who waits since when and what would help, and what is reserved from when until when.

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";
import { bytes, clock, cores, date, devices, isEmpty, many, number, span } from "./format.js";
import { useAnswer } from "./story.js";

const html = htm.bind(h);
const STEPS = 120;
const GPU = "restow.dev/gpu-milli";
const AMOUNTS = { [GPU]: ["GPU", devices, "devices"], cpu: ["cpu", cores, "cpu"], memory: ["memory", bytes, "memory"] };
const KINDS = { pod: "pod", podgroup: "PodGroup" };

export function Queues({ store }) {
  const { at, time } = store.world;
  const { said, error, at: of } = useAnswer(store, "/api/v1/queues", {}, at);
  // Over the whole log, whatever the instant: asked anew when the timeline has grown.
  const { said: over } = useAnswer(store, "/api/v1/shares", { steps: STEPS }, store.state.timeline?.last ?? null);
  if (error) return html`<div class="list"><p class="note">${error}</p></div>`;
  if (isEmpty(store.state.log)) return html`<div class="list"><p class="note">The log is empty: nothing has happened yet.</p></div>`;
  if (!said) return html`<div class="list"><p class="note busy">…</p></div>`;
  const stale = of !== at;
  return html`<div class=${`list queues${stale ? " stale" : ""}`} aria-busy=${stale}>
    <h1>Queues <small>at ${clock(time)}</small></h1>
    <div class="cards">${said.queues.map((queue) => html`<${Queue} key=${queue.name} store=${store} queue=${queue} over=${over} pods=${said.pods[queue.name] ?? 0} />`)}</div>
    <${Waiting} store=${store} said=${said} />
    <${Reservations} store=${store} said=${said} />
  </div>`;
}

function Queue({ store, queue, over, pods }) {
  const rows = Object.entries(AMOUNTS).filter(([name]) => ["allocated", "deserved", "guarantee", "capability"].some((what) => queue[what][name]));
  const state = queue.invalid ? `cannot be read: ${queue.invalid}` : queue.exists ? queue.state : queue.name === "default" ? "Open" : "there is none of that name";
  const main = rows[0]?.[0] ?? "cpu";
  return html`<section class="card" aria-label=${`Queue ${queue.name}`}>
    <h2><button class="plain" onClick=${() => store.select(`queue/${queue.name}`)}>${queue.name}</button> <small>${[state, `weight ${queue.weight}`, ...(queue.parent ? [`below ${queue.parent}`] : [])].join(" · ")}</small></h2>
    <p class="note">${pods ? html`<b>${many(pods, "pod waits", "pods wait")}</b>` : "Nobody waits."}</p>
    ${rows.map(([name, [title, text]]) => html`<${Share} title=${title} text=${text} queue=${queue} name=${name} />`)}
    <${Over} store=${store} series=${over?.queues[queue.name]} times=${over?.times} queue=${queue} name=${main} />
  </section>`;
}

// What is used of what may be, with marks where it is what the queue deserves and what is guaranteed.
function Share({ title, text, queue, name }) {
  const value = (what) => queue[what][name] ?? 0;
  const whole = Math.max(...["allocated", "deserved", "guarantee", "capability"].map(value), 1);
  const place = (of) => `${(100 * of) / whole}%`;
  const marks = [["guarantee", "guaranteed"], ["deserved", "deserved"], ["capability", "at most"]].filter(([what]) => name in queue[what]);
  return html`<div class="meter"><span>${title}</span><span class="figure">${[`${text(value("allocated"))} used`, ...marks.map(([what, word]) => `${text(value(what))} ${word}`)].join(" · ")}</span>
    <div class="gauge marked"><i class=${value("deserved") && value("allocated") > value("deserved") ? "beyond" : ""} style=${{ width: place(value("allocated")) }}></i>
      ${marks.map(([what]) => html`<b class=${what} style=${{ left: place(value(what)) }}></b>`)}</div></div>`;
}

// Two strips over the log's time: what was used, and how many pods waited.
function Over({ store, series, times, queue, name }) {
  if (!series) return null;
  const [title, text, column] = AMOUNTS[name];
  const [from, to] = [store.state.timeline.from, store.state.timeline.to];
  const at = to > from ? (100 * (store.world.time - from)) / (to - from) : 100;
  const strip = (values, label, told, levels = [], now = []) => {
    const most = Math.max(...values, ...levels.flatMap(([, all]) => all), ...now.map(([, value]) => value), 1e-9);
    const high = (value) => (30 - (28 * value) / most).toFixed(2);
    const step = 100 / values.length;
    // A stretch a step, and a gap where there is nothing to say.
    const path = (all) => all.map((value, i) => (value === null ? "" : `${i && all[i - 1] !== null ? "L" : "M"}${(i * step).toFixed(2)},${high(value)}H${((i + 1) * step).toFixed(2)}`)).join("");
    const points = values.map((value, i) => `${((i + 1) * step).toFixed(2)},${high(value)}`);
    const peak = Math.max(...values);
    return html`<figure class="over"><figcaption>${label} <small>at most ${told(peak)}</small></figcaption>
      <svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label=${`${label} over time: at most ${told(peak)}, last ${told(values[values.length - 1])}`}>
        <polygon points=${`0,30 ${points.join(" ")} 100,30`} />
        ${levels.map(([what, all]) => html`<path class=${what} d=${path(all)} />`)}
        ${now.map(([what, value]) => html`<line class=${what} x1=${Math.max(0, at - 2)} x2=${Math.min(100, at + 2)} y1=${high(value)} y2=${high(value)} />`)}
        <line class="now" x1=${at} x2=${at} y1="0" y2="30" /></svg></figure>`;
  };
  const levels = ["guarantee", "deserved", "capability"].filter((what) => series.levels[what]?.[column]).map((what) => [what, series.levels[what][column]]);
  // What a plugin works out is known of the instant that is shown.
  const now = queue.deserved[name] && !series.levels.deserved?.[column] ? [["deserved", queue.deserved[name]]] : [];
  return html`${strip(series[column], `${title} used`, text, levels, now)}${strip(series.waiting, "pods waiting", number)}
    <p class="ends"><small>${date(times[0])} ${clock(from)}</small><small>${clock(to)}</small></p>`;
}

const asks = (requests) => Object.entries(AMOUNTS).filter(([name]) => requests[name]).map(([name, [title, text]]) => `${text(requests[name])} ${title}`).join(", ");

function Waiting({ store, said }) {
  const open = (path) => html`<button class="plain" onClick=${() => store.select(path)}>${path.slice(path.indexOf("/") + 1)}</button>`;
  return html`<h3>Who waits <b>${number(said.waitingInAll)}</b></h3>
    ${said.waitingInAll > said.waiting.length && html`<p class="note">The first ${number(said.waiting.length)} in turn:</p>`}
    ${said.waiting.length === 0 && html`<p class="note">No pod that Restow places waits for a node.</p>`}
    ${said.waiting.length > 0 && html`<table class="waiting">
      <thead><tr><th>Queue</th><th>Pod or PodGroup</th><th class="right">For</th><th>Asks for</th><th>Why</th><th>What would help</th></tr></thead>
      <tbody>${said.waiting.map((one) => html`<tr key=${one.path}>
        <td>${one.queue}</td>
        <td>${open(one.path)}<br /><small>${KINDS[one.path.split("/")[0]]}${one.path.startsWith("podgroup/") ? `: ${one.pods} wait, ${one.ready} of ${one.need} ready` : ""}${one.priority ? ` · priority ${one.priority}` : ""}</small></td>
        <td class="right"><span class="only">for </span>${span(said.time - one.since)}</td>
        <td><span class="only">asks for </span>${asks(one.requests)}${one.pods > 1 ? " each" : ""}</td>
        <td>${one.why}</td>
        <td>${one.helps === null ? html`<small>not worked out: others come first</small>` : one.helps.length ? html`<ul class="helps">${one.helps.map((line) => html`<li>${line}</li>`)}</ul>` : html`<small>no single change would</small>`}</td>
      </tr>`)}</tbody></table>`}`;
}

// Each from when it is there until it ends, on one axis; the line is the instant.
function Reservations({ store, said }) {
  const rows = said.reservations;
  if (!rows.length) return html`<h3>Reservations</h3><p class="note">None but those that moves make for themselves.</p>`;
  const from = Math.min(...rows.map((one) => one.since), said.time);
  const to = Math.max(...rows.map((one) => one.ends), said.time) + 1;
  const place = (ms) => (100 * (ms - from)) / (to - from);
  return html`<h3>Reservations <b>${number(said.reservationsInAll)}</b></h3>
    ${said.reservationsInAll > rows.length && html`<p class="note">${number(rows.length)} of them:</p>`}
    <ol class="calendar" aria-label="Reservations over time">${rows.map((one) => {
      const end = one.ends || to;
      const until = one.ends ? `${one.ends < said.time ? "ended" : "ends"} ${date(one.ends)} ${clock(one.ends)}` : "does not end";
      return html`<li key=${one.path}>
        <span><button class="plain" onClick=${() => store.select(one.path)}>${one.path.slice("reservation/".length)}</button> <small>${one.phase}${one.reason ? ` (${one.reason})` : ""} · ${one.slots} of ${many(one.asked, "slot")} held, ${one.used} used</small></span>
        <div class="span"><i class=${one.phase.toLowerCase()} style=${{ left: `${place(one.since)}%`, width: `${Math.max(0.4, place(end) - place(one.since))}%` }}></i><b style=${{ left: `${place(said.time)}%` }}></b></div>
        <small>${date(one.since)} ${clock(one.since)} – ${until}</small></li>`;
    })}</ol>`;
}
