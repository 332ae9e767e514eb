// A tour of the log: what the API says are the instants to see, one after the other.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { json } from "./api.js";

const html = htm.bind(h);

// The strip above the map while there is one. `state.tour` is the number of the stop, from 1 on.
export function Tour({ store }) {
  const { log, tour } = store.state;
  const [stops, learn] = useState(null);
  const [error, say] = useState("");
  const next = useRef(null);
  const read = !!log && log.last > 0 && log.last === log.tail;
  const wanted = tour !== null && read;
  useEffect(() => {
    if (!wanted || stops) return;
    json("/api/v1/tour").then(learn, (failed) => say(failed.message));
  }, [wanted]);
  const at = stops && Math.min(tour, stops.length);
  useEffect(() => {
    const stop = tour !== null && stops?.[at - 1];
    if (!stop) return;
    // Where somebody was quicker than this effect, the number is theirs.
    if (tour > stops.length) store.choose({ tour: at });
    const show = () => [tour, at].includes(store.state.tour) && store.choose({ view: stop.view, selected: stop.show, plan: "", panel: true });
    // What is opened is there at its instant and later, and not before.
    if (stop.at < (store.world.at ?? 0)) show();
    store.seek({ at: stop.at }).then(show);
    next.current?.focus();
  }, [stops, tour]);
  // The next tour is of the log as it is then.
  useEffect(() => {
    if (tour === null) learn(null);
  }, [tour]);
  if (tour === null) return null;
  const end = () => store.choose({ tour: null });
  const stop = stops?.[at - 1];
  return html`<section class="tour" aria-label="Tour">
    ${!stop && html`<p class=${error ? "bad" : "note busy"}>${error || (stops ? "Nothing has happened in this log yet." : "The tour begins once the log is read …")}</p>`}
    ${stop && html`<div aria-live="polite"><h2><small>${at} of ${stops.length}</small> ${stop.title}</h2><p>${stop.text}</p></div>`}
    <span class="buttons">
      ${stop && html`<button disabled=${at === 1} onClick=${() => store.choose({ tour: at - 1 })}>Back</button>
        <button class="go" ref=${next} onClick=${() => (at < stops.length ? store.choose({ tour: at + 1 }) : end())}>${at < stops.length ? "Next" : "Done"}</button>`}
      <button class="icon" aria-label="End the tour" title="t" onClick=${end}>✕</button>
    </span>
  </section>`;
}
