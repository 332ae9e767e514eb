// The page: its head, the view, the panel, the dock.

import { h, render } from "./vendor/preact.js";
import { useEffect, useReducer, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { Login, Who } from "./access.js";
import { json } from "./api.js";
import { MODES } from "./colors.js";
import { bytes, date, number, percent, precise, span } from "./format.js";
import { HealthView } from "./health.js";
import { GROUPS } from "./layout.js";
import { Legend, NodeMap } from "./map.js";
import { Moves } from "./moves.js";
import { Panel } from "./panel.js";
import { Plans } from "./plans.js";
import { Queues } from "./queues.js";
import { Store } from "./store.js";
import { Dock } from "./time.js";
import { Tour } from "./tour.js";

const html = htm.bind(h);

function Health({ state }) {
  const { log, error } = state;
  if (error) return html`<p class="health bad" role="status"><i></i>${error}</p>`;
  if (!log) return html`<p class="health" role="status"><i></i>…</p>`;
  const behind = log.tail - log.last;
  const parts = [`${number(log.events)} events`, bytes(log.bytes)];
  let level = "good";
  if (log.broken) [level, parts[parts.length]] = ["bad", `broken at ${log.broken}`];
  if (log.void) parts.push(`${number(log.void)} void`);
  if (log.error) [level, parts[parts.length]] = ["bad", log.error];
  else if (behind > 0) [level, parts[parts.length]] = ["busy", `reading, ${percent(log.last, log.tail)}`];
  else if (log.live && log.last) parts.push(`last event ${span(log.now - log.to)} ago`);
  return html`<p class=${`health ${level}`} role="status" title=${log.source}><i></i><b>${log.live ? "live" : "recorded"}</b> ${parts.join(" · ")}</p>`;
}

function Search({ store }) {
  const [text, type] = useState("");
  const [{ of, found }, learn] = useState({ of: "", found: [] });
  const [at, move] = useState(0);
  const box = useRef(null);
  useEffect(() => {
    if (!text.trim()) return learn({ of: "", found: [] });
    const asking = new AbortController();
    const timer = setTimeout(() => {
      json("/api/v1/search", { q: text.trim(), at: store.world.at ?? undefined, limit: 12 }, asking.signal).then((said) => {
        learn({ of: text, found: said });
        move(0);
      }, () => {});
    }, 90);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [text]);
  const open = (one) => {
    if (!one) return;
    store.select(one.path);
    type("");
    box.current.blur();
  };
  const key = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))));
    } else if (event.key === "Enter" && of === text) open(found[at]);
    else if (event.key === "Escape") type("");
  };
  return html`<div class="search" role="search">
    <input type="search" ref=${box} id="search" value=${text} placeholder="Find a node, pod, gang, queue, hold, move or plan  /" aria-label="Search" role="combobox" aria-expanded=${found.length > 0}
      aria-controls="found" aria-activedescendant=${found.length ? `found-${at}` : null} autocomplete="off" spellcheck=${false} onInput=${(event) => type(event.target.value)} onKeyDown=${key} />
    ${text.trim() && html`<ul id="found" role="listbox" aria-busy=${of !== text}>${found.length === 0 && of === text && html`<li class="none">nothing of that name at this instant</li>`}
      ${found.map((one, i) => html`<li key=${one.path} id=${`found-${i}`} role="option" aria-selected=${i === at} onPointerDown=${(event) => { event.preventDefault(); open(one); }}>
        <small>${one.kind}</small> ${one.name}</li>`)}</ul>`}
  </div>`;
}

function Choice({ label, value, options, onChoose }) {
  return html`<label class="choice"><span>${label}</span><select value=${value} onChange=${(event) => onChoose(event.target.value)}>
    ${Object.entries(options).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>`;
}

function MapPane({ store, announce }) {
  const { state } = store;
  const view = useRef(null);
  const other = useRef(null);
  const differing = store.differences();
  const lit = /^(workload|queue|podgroup)\//.test(state.selected) ? [state.selected.split("/")[0], state.selected.slice(state.selected.indexOf("/") + 1)] : null;
  useEffect(() => {
    for (const one of [view.current, other.current]) {
      if (!one) continue;
      one.lit = lit;
      one.marked = differing?.marked ?? null;
      one.peer = one === view.current ? other.current : view.current;
      one.changed(null);
    }
  }, [state.color, state.group, state.selected, differing?.key, state.beside !== null]);
  const kept = store.beside && html`<${Instant} key="beside" world=${store.beside.world} what=${store.backwards ? "Later, kept" : "Earlier, kept"}><${NodeMap} store=${store.beside} announce=${announce}
    label="Map of the nodes at the instant that is kept" onView=${(one) => { other.current = one; }} /></${Instant}>`;
  const shown = html`<${Instant} key="now" world=${store.beside ? store.world : null} what=${store.backwards ? "Earlier, at the slider" : "Later, at the slider"}><${NodeMap} store=${store} announce=${announce} onView=${(one) => {
    view.current = one;
    store.reveal = () => one?.layout && one.chosen() !== undefined && one.reveal(one.chosen());
  }} /></${Instant}>`;
  return html`<div class="pane">
    <h1 class="hidden">Map</h1>
    <div class="bar">
      <${Choice} label="Colour" value=${state.color} options=${MODES} onChoose=${(color) => store.choose({ color })} />
      <${Choice} label="Group" value=${state.group} options=${GROUPS} onChoose=${(group) => store.choose({ group })} />
      <${Legend} store=${store} />
      <span class="zoom"><button class="icon" aria-label="Smaller" onClick=${() => view.current.zoom(-1)}>−</button><button class="icon" aria-label="Larger" onClick=${() => view.current.zoom(1)}>+</button>
        <button class="icon fit" onClick=${() => view.current.fit()}>Fit</button></span>
    </div>
    <div class=${store.beside ? "both" : "only-one"}>${store.backwards ? [shown, kept] : [kept, shown]}</div>
  </div>`;
}

// A map with the instant that it is of, where there are two.
function Instant({ world, what, children }) {
  return html`<div class="instant">${world && html`<p class="of"><small>${what}</small> <b>${precise(world.time)}</b> <small>${date(world.time)}, sequence ${world.at ?? "–"}</small></p>`}${children}</div>`;
}
const VIEWS = new Map([["moves", Moves], ["plans", Plans], ["queues", Queues], ["health", HealthView]]);

// Arrow keys: from tab to tab. Tab itself leaves them, so that it takes one step to pass.
function besideIt(event) {
  const tabs = [...event.currentTarget.children];
  const to = { ArrowLeft: -1, ArrowRight: 1, Home: -tabs.length, End: tabs.length }[event.key];
  if (!to) return;
  event.preventDefault();
  const one = tabs[Math.max(0, Math.min(tabs.length - 1, tabs.indexOf(event.target) + to))];
  one.focus();
  one.click();
}

function App({ store }) {
  const [, again] = useReducer((count) => count + 1, 0);
  const said = useRef(null);
  useEffect(() => {
    store.listeners.add(again);
    store.start();
    const key = (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      const pressing = event.key === " " && /^(BUTTON|SUMMARY)$/.test(event.target.tagName);
      if (event.key === "Escape" && store.state.selected && !typing) store.select("");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || !store.state.log?.last) return;
      const { world, state } = store;
      const doing = {
        "/": () => document.getElementById("search").focus(),
        " ": () => (pressing ? null : state.playing ? store.pause() : store.play()),
        "[": () => store.jump("earlier"), "]": () => store.jump("later"),
        ",": () => store.seek({ at: Math.max(state.log.first, world.at - 1) }), ".": () => store.seek({ at: Math.min(state.log.last, world.at + 1) }),
        m: () => store.choose({ view: "map" }), v: () => store.choose({ view: "moves" }), p: () => store.choose({ view: "plans" }), q: () => store.choose({ view: "queues" }), h: () => store.choose({ view: "health" }), e: () => store.toEnd(),
        c: () => store.compare(state.beside === null ? world.at : null),
        t: () => store.choose({ tour: state.tour === null ? 1 : null }),
      }[event.key];
      if (doing) {
        if (event.key === "/" || (event.key === " " && !pressing)) event.preventDefault();
        doing();
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const { state } = store;
  if (state.stranger) {
    return html`<div class="door"><h1><img src="/icon.svg" alt="" width="22" height="22" /> Restow</h1>
      <${Login} onDone=${() => location.reload()} why="This console asks who you are." /></div>`;
  }
  const View = VIEWS.get(state.view);
  const announce = (text) => { said.current.textContent = text; };
  const tab = (view, text) => html`<button role="tab" aria-selected=${state.view === view} tabIndex=${state.view === view ? 0 : -1} onClick=${() => store.choose({ view })}>${text}</button>`;
  return html`<div class="page">
    <div>
    <header>
      <span class="brand"><img src="/icon.svg" alt="" width="22" height="22" /><b>Restow</b> <span>${state.log?.cluster ?? ""}</span></span>
      <nav role="tablist" aria-label="Views" onKeyDown=${besideIt}>${tab("map", "Map")}${tab("moves", "Moves")}${tab("plans", "Plans")}${tab("queues", "Queues")}${tab("health", "Health")}</nav>
      <button class="guide" aria-pressed=${state.tour !== null} title="what happened in this log, step by step (t)" disabled=${!state.log?.last} onClick=${() => store.choose({ tour: state.tour === null ? 1 : null })}>Tour</button>
      <${Search} store=${store} />
      <${Health} state=${state} />
      <${Who} store=${store} />
    </header>
    <${Tour} store=${store} />
    </div>
    <main class=${`${state.selected ? "chosen" : ""} ${state.view !== "map" && (state.view !== "plans" || state.plan) ? "planning" : ""}`}>
      ${View ? html`<${View} store=${store} />` : html`<${MapPane} store=${store} announce=${announce} />`}
      <${Panel} store=${store} />
    </main>
    <${Dock} store=${store} />
    <p class="hidden" aria-live="polite" ref=${said}></p>
  </div>`;
}

const store = new Store();
document.getElementById("app").textContent = "";
render(html`<${App} store=${store} />`, document.getElementById("app"));
