// Why something is as it is: what `restow why` says, at the instant that is shown.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { json } from "./api.js";
import { clock } from "./format.js";

const html = htm.bind(h);
const CALM = 350; // ms between two questions

// { said, error, at } of a question of the API at the instant shown; `said` is the last answer while the next one is on its way.
// One question at a time: a log that grows all the while must not keep each answer away by the next question.
export function useAnswer(store, path, query, at) {
  const [known, learn] = useState({});
  const key = JSON.stringify([path, query]);
  const { playing } = store.state;
  const wanted = useRef(null);
  const ask = useRef(null);
  wanted.current = playing ? null : at;
  useEffect(() => {
    const asking = new AbortController();
    let [timer, busy, last] = [0, false, null];
    const mine = () => {
      if (busy || timer || !path || wanted.current === null || wanted.current === last) return;
      timer = setTimeout(async () => {
        timer = 0;
        if (wanted.current === null) return;
        busy = true;
        const of = (last = wanted.current);
        try {
          learn({ key, at: of, said: await json(path, { ...query, at: of }, asking.signal) });
        } catch (error) {
          if (error.name !== "AbortError") learn({ key, at: of, error: error.message });
        }
        busy = false;
        if (!asking.signal.aborted) mine();
      }, last === null ? 0 : CALM);
    };
    ask.current = mine;
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [key]);
  useEffect(() => ask.current(), [key, at, playing]);
  return known.key === key ? known : {};
}

export function Story({ store, path }) {
  const { at } = store.world;
  const { said, error, at: of } = useAnswer(store, "/api/v1/why", { what: path }, at);
  if (error) return html`<p class="note">${error}</p>`;
  if (!said) return html`<p class="note busy">Reading its story from the log …</p>`;
  const stale = of !== at;
  return html`<div class=${stale ? "stale" : ""} aria-busy=${stale}>
    <h3>Why</h3>
    <ul class="verdict">${said.verdict.map((line) => html`<li>${line}</li>`)}</ul>
    ${said.chain.length > 0 && html`<h3>Because</h3>
      <ol class="chain">${said.chain.map((link) => html`<li>
        <button class="seq" disabled=${!link.seq} onClick=${() => store.seek({ at: link.seq })}>${link.seq || "·"}</button>
        <span>${link.text}${link.by && html` <small>${link.by}</small>`}</span></li>`)}</ol>`}
    <h3>Story</h3>
    <ol class="told">${[...said.story].reverse().slice(0, 200).map((entry) => html`<li class=${entry.own ? "" : "beside"}>
      <button class="seq" title=${`go to sequence ${entry.seq}`} onClick=${() => store.seek({ at: entry.seq })}>${clock(entry.time)}</button>
      <span>${entry.text} <small>${entry.family}${entry.by ? `, ${entry.by}` : ""}</small></span></li>`)}</ol>
    ${said.story.length > 200 && html`<p class="note">The latest 200 of ${said.story.length}; all of them: <code>restow why ${path}</code></p>`}
  </div>`;
}
