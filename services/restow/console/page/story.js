// Why something is as it is: what `restow why` says, at the instant that is shown.

import { h } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { json } from "./api.js";
import { clock } from "./format.js";

const html = htm.bind(h);
const CALM = 350; // ms that the instant has to stay before the story is asked for

// { said, error, at } of a question of the API at the instant shown; `said` is the last answer while the next one is on its way.
export function useAnswer(store, path, query, at) {
  const [known, learn] = useState({});
  const key = JSON.stringify([path, query]);
  const { playing } = store.state;
  useEffect(() => {
    if (at === null || playing || !path) return undefined;
    const asking = new AbortController();
    const timer = setTimeout(async () => {
      try {
        learn({ key, at, said: await json(path, { ...query, at }, asking.signal) });
      } catch (error) {
        if (error.name !== "AbortError") learn({ key, at, error: error.message });
      }
    }, known.key === key ? CALM : 0);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [key, at, playing]);
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
