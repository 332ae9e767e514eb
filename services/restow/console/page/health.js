// Health: who leads, how large the log is, what is kept of it, and whether every decision in it is decided again as it was.

import { h } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { ModeBar } from "./access.js";
import { json } from "./api.js";
import { bytes, clock, date, isEmpty, many, number, span } from "./format.js";

const html = htm.bind(h);
const AGAIN = 2000; // ms between two questions

const moment = (ms) => (ms ? `${date(ms)} ${clock(ms)}` : "–");

// Of what was said before the log begins nobody knows when.
const when = (ms) => (ms ? moment(ms) : "before what is known of this log");

// Asked again and again while it is looked at; not while nobody sees the page.
function useHealth() {
  const [known, learn] = useState({});
  useEffect(() => {
    const asking = new AbortController();
    let timer = 0;
    const ask = async () => {
      if (!document.hidden) {
        try {
          learn({ said: await json("/api/v1/health", {}, asking.signal) });
        } catch (error) {
          if (error.name !== "AbortError") learn((before) => ({ ...before, error: error.message }));
        }
      }
      if (!asking.signal.aborted) timer = setTimeout(ask, AGAIN);
    };
    ask();
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, []);
  return known;
}

export function HealthView({ store }) {
  const { said, error } = useHealth();
  const { log } = store.state;
  if (isEmpty(log)) return html`<div class="list"><p class="note">The log is empty: nothing has happened yet.</p></div>`;
  if (!said || !log) return html`<div class="list"><p class="note busy">${error ?? "…"}</p></div>`;
  const go = (at) => (at ? html`<button class="seq" onClick=${() => store.seek({ at })}>${at}</button>` : "–");
  return html`<div class="list healthview">
    <h1>Health <small>at the end of the log, ${moment(log.to)}</small></h1>
    ${error && html`<p class="note">${error}</p>`}
    <${ModeBar} store=${store} />
    <${Verdict} store=${store} said=${said.verify} last=${log.last} />
    <h3>Who leads</h3>
    <table><thead><tr><th>Family</th><th>Leader</th><th>Since</th><th class="right">Epoch</th><th class="right">Commits</th><th class="right">Events</th><th>Last commit</th></tr></thead>
      <tbody>${said.families.map((one) => html`<tr key=${one.family}>
        <td><b>${one.family}</b></td><td>${one.holder || "–"}</td><td>${one.since ? moment(one.since) : "before this log begins"}</td><td class="right"><span class="only">epoch </span>${one.epoch}</td>
        <td class="right">${number(one.commits)}<span class="only"> commits</span></td><td class="right">${number(one.events)}<span class="only"> events</span></td>
        <td><span class="only">last commit </span>${go(one.last)} <small>${one.time ? (log.live ? `${span(log.now - one.time)} ago` : moment(one.time)) : ""}</small></td></tr>`)}</tbody></table>
    ${said.changes.length > 0 && html`<details><summary>${many(said.changes.length, "change")} of leaders</summary><ol class="told">${[...said.changes].reverse().map((one) => html`<li key=${one.seq}>
      <button class="seq" onClick=${() => store.seek({ at: one.seq })}>${clock(one.time)}</button><span>${one.holder} leads ${one.family} <small>epoch ${one.epoch}, ${date(one.time)}</small></span></li>`)}</ol></details>`}
    <h3>The log</h3>
    <dl class="facts wide">
      <div><dt>id</dt><dd>${log.log || "–"}</dd></div>
      <div><dt>sequences</dt><dd>${number(log.first)} to ${number(log.last)}</dd></div>
      <div><dt>not read yet</dt><dd>${number(Math.max(0, log.tail - log.last))}</dd></div>
      <div><dt>events</dt><dd>${number(log.events)} in ${number(said.commits)} commits</dd></div>
      <div><dt>size of what is read</dt><dd>${bytes(log.bytes)}</dd></div>
      <div><dt>from</dt><dd>${moment(log.from)}</dd></div>
      <div><dt>archived up to</dt><dd>${go(said.kept.archived)} <small>${said.kept.archived ? when(said.kept.archived_at) : "nothing, as far as this log says"}</small></dd></div>
      <div><dt>newest snapshot</dt><dd>${go(said.kept.snapshot)} <small>${said.kept.snapshot ? [...(said.kept.snapshot_size ? [bytes(said.kept.snapshot_size)] : []), when(said.kept.snapshot_at)].join(", ") : "none"}</small></dd></div>
      <div><dt>truncated up to</dt><dd>${said.kept.truncated ? number(said.kept.truncated) : "–"} <small>${said.kept.truncated ? when(said.kept.truncated_at) : log.first > 1 ? "what is known begins at a snapshot" : "all of it is there"}</small></dd></div>
      <div><dt>broken at</dt><dd>${said.broken ? html`<em>${number(said.broken)}: see restow log repair</em>` : "nowhere"}</dd></div>
    </dl>
    <${Counts} title="Void" note="Events that came too late, or a second time; they changed nothing" counts=${said.rejected} />
    <${Counts} title="Unknown" note="Events of a later release, which this one passes over" counts=${said.unknown} />
  </div>`;
}

function Counts({ title, note, counts }) {
  const rows = Object.entries(counts);
  if (!rows.length) return null;
  return html`<h3>${title} <b>${number(rows.reduce((sum, [, count]) => sum + count, 0))}</b></h3><p class="note">${note}.</p>
    <dl class="facts">${rows.map(([name, count]) => html`<div key=${name}><dt>${name}</dt><dd>${number(count)}</dd></div>`)}</dl>`;
}

// What `restow verify` says. It runs beside the console; the first look at this view begins it.
function Verdict({ said, last }) {
  const verdict = said.verdict;
  const beyond = verdict ? last - verdict.last : 0;
  const level = said.state === "failed" || (verdict && !verdict.ok) ? "bad" : verdict ? "good" : "busy";
  const words = { off: "Not here: this console does not know how to name its log to restow verify.", waits: "The log is still being read; then every decision in it is decided again.",
    running: `Every decision is being decided again, beside everything else: for ${span(said.seconds * 1000)} now.`, failed: said.fault, done: "" }[said.state];
  return html`<section class=${`verify ${level}`} aria-label="Verify" aria-live="polite" aria-busy=${said.state === "running"}>
    <h2>${verdict ? (verdict.ok ? "Verified" : "Not as it was decided") : said.state === "off" ? "Verify" : said.state === "failed" ? "Verify failed" : "Verifying"}</h2>
    ${verdict && html`<p>${verdict.sentence}</p><p class="note">up to sequence ${number(verdict.last)}, in ${span(verdict.seconds * 1000)}${beyond > 0 ? `; ${many(beyond, "commit")} came since` : ""}</p>`}
    ${words && html`<p class="note">${words}</p>`}
    ${verdict?.advice.map((line) => html`<p class="note"><code>${line}</code></p>`)}
    ${verdict?.found.map((one) => html`<p class="note">sequence ${one.seq} (${one.family}): ${one.what}</p>`)}
    ${verdict?.differences.map((one) => html`<p class="note">sequence ${one.seq}, decision ${one.decision} (${one.family}) differs: ${one.command}</p>`)}
  </section>`;
}
