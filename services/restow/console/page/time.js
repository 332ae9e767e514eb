// The dock below the map: how much happened when, the slider, playing, jumping.

import { h } from "./vendor/preact.js";
import { useEffect, useRef } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { theme, css } from "./colors.js";
import { clock, date, many, precise, span } from "./format.js";
import { SPEEDS } from "./store.js";

const html = htm.bind(h);
const STEPS = 10000; // of the slider
const FAMILIES = ["cluster", "session", "reservation", "migration", "gc"];
const LOUD = new Set(["plan", "paused", "node gone", "move failed", "not recreated", "repaired"]);

export function Dock({ store }) {
  const { state, world } = store;
  const { timeline } = state;
  const length = timeline ? Math.max(1, timeline.to - timeline.from) : 1;
  const place = timeline ? Math.max(0, Math.min(STEPS, Math.round((STEPS * (world.time - timeline.from)) / length))) : STEPS;
  const ready = timeline && timeline.last > 0;
  const seek = (event) => {
    const at = Number(event.target.value);
    if (at >= STEPS) store.seek({ at: timeline.last });
    else store.seek({ time: Math.round(timeline.from + (length * at) / STEPS) });
  };
  const step = (by) => store.seek({ at: Math.max(timeline.first, Math.min(state.log.last, world.at + by)) });
  return html`<section class="dock" aria-label="Time">
    <div class="controls">
      <button class="icon" disabled=${!ready} aria-label="Back to the plan, or other mark, before" title="mark before ([)" onClick=${() => store.jump("earlier")}>⇤</button>
      <button class="icon" disabled=${!ready} aria-label="One commit back" title="one commit back (,)" onClick=${() => step(-1)}>‹</button>
      <button class="play" disabled=${!ready} aria-pressed=${state.playing} aria-label=${state.playing ? "Pause" : "Play"} title="space"
        onClick=${() => (state.playing ? store.pause() : store.play())}>${state.playing ? "❚❚" : "▶"}</button>
      <button class="icon" disabled=${!ready} aria-label="One commit on" title="one commit on (.)" onClick=${() => step(1)}>›</button>
      <button class="icon" disabled=${!ready} aria-label="On to the next plan, or other mark" title="next mark (])" onClick=${() => store.jump("later")}>⇥</button>
      <label class="speed"><span class="hidden">Speed</span>
        <select value=${state.speed} onChange=${(event) => store.set({ speed: Number(event.target.value) })}>
          ${SPEEDS.map((speed) => html`<option value=${speed}>${speed.toLocaleString("en").replaceAll(",", "\u202f")}×</option>`)}
        </select>
      </label>
      <button class=${`end${state.follow ? " on" : ""}`} disabled=${!ready} aria-pressed=${state.follow} onClick=${() => store.toEnd()}>${state.log?.live ? "Live" : "End"}</button>
      <button class=${`compare${state.beside !== null ? " on" : ""}`} disabled=${!ready} aria-pressed=${state.beside !== null} title="keep this instant, and put others beside it (c)"
        onClick=${() => store.compare(state.beside === null ? world.at : null)}>Compare</button>
      <output class="now" aria-live="off"><b>${precise(world.time)}</b> <span>${date(world.time)} UTC</span> <span class="seq">sequence ${world.at ?? "–"}</span></output>
    </div>
    <div class="track">
      <${Density} store=${store} length=${length} />
      <input type="range" min="0" max=${STEPS} step="1" value=${place} disabled=${!ready} aria-label="Instant of the log"
        aria-valuetext=${`${clock(world.time)} of ${date(world.time)}, sequence ${world.at}`} onInput=${seek} />
      <div class="ends"><span>${timeline ? clock(timeline.from) : ""}</span><span>${timeline ? `${span(length)}, ${many(state.log?.events ?? 0, "event")}` : ""}</span><span>${timeline ? clock(timeline.to) : ""}</span></div>
    </div>
  </section>`;
}

// Events over time, by family; marks above them.
function Density({ store, length }) {
  const canvas = useRef(null);
  const tip = useRef(null);
  const { state, world } = store;
  const { timeline } = state;
  const draw = () => {
    const one = canvas.current;
    if (!one || !timeline?.buckets) return;
    const ratio = Math.min(3, devicePixelRatio || 1);
    const area = one.getBoundingClientRect();
    const width = (one.width = Math.max(1, Math.round(area.width * ratio)));
    const height = (one.height = Math.max(1, Math.round(area.height * ratio)));
    const pen = one.getContext("2d");
    const colors = theme(matchMedia("(prefers-color-scheme: dark)").matches);
    const tints = [colors.plain, colors.hues[0], colors.hold, colors.hues[3], colors.line].map(css);
    const sums = Array.from({ length: timeline.buckets }, (_, i) => FAMILIES.reduce((all, family) => all + (timeline.events[family]?.[i] ?? 0), 0));
    const most = Math.max(1, ...sums);
    const floor = height - ratio;
    const room = height - 11 * ratio;
    sums.forEach((sum, i) => {
      if (!sum) return;
      let y = floor;
      const [left, right] = [Math.floor((i * width) / timeline.buckets), Math.ceil(((i + 1) * width) / timeline.buckets)];
      // The square root: a quiet hour beside a busy second stays in sight.
      const whole = Math.max(2 * ratio, room * Math.sqrt(sum / most));
      FAMILIES.forEach((family, f) => {
        const tall = (whole * (timeline.events[family]?.[i] ?? 0)) / sum;
        if (!tall) return;
        pen.fillStyle = tints[f];
        pen.fillRect(left, y - tall, Math.max(1, right - left), tall);
        y -= tall;
      });
    });
    for (const mark of timeline.marks) {
      const x = ((mark.time - timeline.from) / length) * width;
      const loud = LOUD.has(mark.what);
      pen.fillStyle = mark.what === "move failed" || mark.what === "node gone" ? css(colors.bad) : loud ? colors.accentText : colors.muted;
      pen.beginPath();
      const size = (loud ? 4.5 : 3) * ratio;
      pen.moveTo(x - size, 0);
      pen.lineTo(x + size, 0);
      pen.lineTo(x, 1.7 * size);
      pen.fill();
    }
    const place = (time) => Math.max(0, Math.min(width - 2 * ratio, Math.round(((time - timeline.from) / length) * width) - ratio));
    if (store.beside?.world.at) {
      pen.fillStyle = css(colors.hold);
      pen.fillRect(place(store.beside.world.time), 0, 2 * ratio, height);
    }
    pen.fillStyle = colors.accentText;
    pen.fillRect(place(world.time), 0, 2 * ratio, height);
  };
  useEffect(draw);
  useEffect(() => {
    const observer = new ResizeObserver(draw);
    observer.observe(canvas.current);
    return () => observer.disconnect();
  }, [timeline]);
  const near = (event) => {
    const area = canvas.current.getBoundingClientRect();
    const time = timeline.from + (length * (event.clientX - area.left)) / area.width;
    let best = null;
    for (const mark of timeline.marks) {
      if (Math.abs(mark.time - time) * area.width < 6 * length && (!best || Math.abs(mark.time - time) < Math.abs(best.time - time))) best = mark;
    }
    return { time, best, left: event.clientX - area.left, width: area.width };
  };
  const point = (event) => {
    if (!timeline?.buckets) return;
    const { time, best, left, width } = near(event);
    tip.current.hidden = false;
    tip.current.textContent = best ? `${clock(best.time)}  ${best.text}` : clock(time);
    tip.current.style.left = `${Math.max(0, Math.min(width - tip.current.offsetWidth, left - tip.current.offsetWidth / 2))}px`;
  };
  const press = (event) => {
    if (!timeline?.buckets) return;
    const { time, best } = near(event);
    store.seek(best ? { at: best.seq } : { time: Math.round(time) });
  };
  return html`<div class="density"><canvas ref=${canvas} aria-hidden="true" onPointerMove=${point} onPointerLeave=${() => { tip.current.hidden = true; }} onClick=${press}></canvas>
    <div class="tip" ref=${tip} hidden></div></div>`;
}
