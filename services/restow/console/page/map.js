// The map as a part of the page, and its legend.

import { h } from "./vendor/preact.js";
import { useEffect, useRef } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { css, podColor, theme } from "./colors.js";
import { MapView } from "./mapview.js";
import { share } from "./world.js";

const html = htm.bind(h);

export function Legend({ store }) {
  const { state, world } = store;
  const colors = theme(matchMedia("(prefers-color-scheme: dark)").matches);
  const entries = [];
  if (state.color === "workload" || state.color === "queue") {
    const sums = new Map();
    const color = podColor(state.color, world, colors);
    for (const pod of world.pods.values()) {
      if (pod.node < 0 || !pod[state.color]) continue;
      const known = sums.get(pod[state.color]) ?? { devices: 0, color: color(pod) };
      known.devices += share(pod);
      sums.set(pod[state.color], known);
    }
    const top = [...sums].sort((a, b) => b[1].devices - a[1].devices);
    for (const [word, one] of top.slice(0, 6)) {
      entries.push({ color: css(one.color), text: world.words[word].replace(/^ReplicaSet\//, ""), path: `${state.color}/${world.words[word]}` });
    }
    if (top.length > 6) entries.push({ text: `and ${top.length - 6} more` });
  } else if (state.color === "priority") {
    const ranks = [...new Set([...world.pods.values()].map((pod) => pod.priority))].sort((a, b) => a - b);
    const color = podColor("priority", world, colors);
    for (const priority of ranks.slice(0, 7)) entries.push({ color: css(color({ priority })), text: String(priority) });
  } else {
    colors.ramp.forEach((one, i) => entries.push({ color: css(one), text: `${i * 20 || ">0"}–${i * 20 + 20} %` }));
    entries.push({ text: "of a node in use is idle" });
  }
  return html`<ul class="legend" aria-label="Colours">
    ${entries.map((one) => html`<li key=${one.text}>
      ${one.color && html`<span class="swatch" style=${{ background: one.color }}></span>`}
      ${one.path ? html`<button class="plain" onClick=${() => store.select(one.path)}>${one.text}</button>` : html`<span>${one.text}</span>`}
    </li>`)}
    <li><span class="swatch empty"></span>free</li>
    <li><span class="swatch held"></span>held</li>
    <li class="wide"><span class="bars"><i></i><i></i></span>cpu, memory</li>
  </ul>`;
}

export function NodeMap({ store, announce, onView, label = "Map of the nodes" }) {
  const boxes = useRef(null);
  const above = useRef(null);
  const tip = useRef(null);
  const view = useRef(null);
  useEffect(() => {
    view.current = new MapView(store, boxes.current, above.current, announce);
    view.current.start();
    onView(view.current);
    return () => {
      view.current.stop();
      onView(null);
    };
  }, []);
  const point = (event) => {
    const one = view.current;
    const at = one.hit(event);
    if (at !== one.hover) {
      one.hover = at;
      one.askBoth();
    }
    if (at === null) {
      tip.current.hidden = true;
      return;
    }
    const pod = one.podAt(event, at);
    const area = boxes.current.getBoundingClientRect();
    tip.current.hidden = false;
    tip.current.textContent = one.describe(at) + (pod ? `\n${store.names.label("pods", pod.slot) ?? "…"} (${pod.status})` : "");
    const left = Math.min(event.clientX - area.left + 14, area.width - tip.current.offsetWidth - 4);
    const below = event.clientY - area.top + 18;
    tip.current.style.left = `${Math.max(4, left)}px`;
    tip.current.style.top = `${below + tip.current.offsetHeight > area.height ? below - tip.current.offsetHeight - 26 : below}px`;
  };
  const press = (event) => {
    const at = view.current.hit(event);
    if (at !== null) {
      view.current.cursor = at;
      view.current.open(at, view.current.podAt(event, at));
    } else store.select("");
  };
  const wheel = (event) => {
    if (event.ctrlKey) {
      event.preventDefault();
      view.current.zoom(event.deltaY < 0 ? 1 : -1);
    } else if (view.current.scrollBy(event.deltaY)) event.preventDefault();
  };
  const touch = useRef(null);
  return html`<div class="map" onTouchStart=${(event) => { touch.current = event.touches[0].clientY; }}
      onTouchMove=${(event) => {
        const y = event.touches[0].clientY;
        view.current.scrollBy(touch.current - y);
        touch.current = y;
      }}>
    <canvas class="boxes" ref=${boxes}></canvas>
    <canvas class="above" ref=${above} tabindex="0" role="application" aria-label=${`${label}: arrow keys go from node to node, Enter opens one, plus and minus zoom, 0 shows all`}
      onPointerMove=${point} onPointerLeave=${() => { tip.current.hidden = true; view.current.hover = null; view.current.askBoth(); }}
      onClick=${press} onWheel=${wheel} onKeyDown=${(event) => view.current.key(event)}
      onFocus=${(event) => { view.current.focused = event.target.matches(":focus-visible"); view.current.ask(); }}
      onBlur=${() => { view.current.focused = false; view.current.ask(); }}></canvas>
    <div class="tip" ref=${tip} hidden></div>
  </div>`;
}
