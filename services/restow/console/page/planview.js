// A plan as two maps, before it and after it, and its moves with what each is worth, what it costs and why.

import { h } from "./vendor/preact.js";
import { useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { css, hueOf, theme } from "./colors.js";
import { amount, clock, devices, many, number, percent } from "./format.js";
import { useAnswer } from "./story.js";
import { Waves } from "./waves.js";

const html = htm.bind(h);
const SHOWN = 60; // nodes at first, and with each "more"

// Of each device of a node who uses how many thousandths of it; devices that nobody names are the first free ones.
function cellsOf(node, occupants) {
  const place = new Map(node.devices.map((index, i) => [index, i]));
  const cells = node.devices.map(() => []);
  for (const one of occupants) for (const [index, milli] of one.devices) cells[place.get(index)]?.push([one, milli]);
  for (const one of occupants) {
    for (let left = one.unsaid, i = 0; left > 0 && i < cells.length; i++) {
      if (cells[i].length) continue;
      cells[i].push([one, 1000]);
      left--;
    }
  }
  return cells;
}

const free = (cells) => cells.filter((cell) => !cell.length).length;
const sum = (occupants, key) => occupants.reduce((all, one) => all + one[key], 0);

// What a move does to the node that it leaves, with the rest of the plan.
function effect(node) {
  if (!node) return "";
  if (!node.after.length) return `nobody is left on ${node.name}`;
  const [before, after] = [free(node.cells.before), free(node.cells.after)];
  return after !== before ? `free devices on ${node.name}: ${before} → ${after}` : "";
}

const costOf = (move) => Object.entries(move.parts).map(([kind, part]) => `${kind} ${amount(part)}`).join(", ");

export function PlanView({ store, name, outcome }) {
  const path = `/api/v1/plans/${encodeURIComponent(name)}`;
  const { at } = store.world;
  const { said, error } = useAnswer(store, path, {}, at);
  const { said: maps, error: unmapped } = useAnswer(store, `${path}/maps`, {}, at);
  const { said: values, error: unvalued } = useAnswer(store, `${path}/values`, {}, at);
  const back = html`<button class="back" onClick=${() => store.choose({ plan: "", selected: store.state.selected === `plan/${name}` ? "" : store.state.selected })}>‹ All plans</button>`;
  if (error) return html`<div class="list">${back}<h1>${name}</h1><p class="note">${error}</p></div>`;
  if (!said) return html`<div class="list">${back}<p class="note busy">…</p></div>`;
  return html`<div class="list planview">
    ${back}
    <h1>${name} <small>${outcome(said)}</small></h1>
    <${PlanBody} key=${name} store=${store} said=${said} maps=${maps} values=${unvalued ? { moves: [], unknown: unvalued } : values} unmapped=${unmapped} />
  </div>`;
}

// The maps and the moves of a plan as the API has it. `thought`: it is of a policy that somebody tries, and not in the log.
export function PlanBody({ store, said, maps, values, unmapped = "", thought = false }) {
  const [lit, light] = useState("");
  const [shown, show] = useState(SHOWN);
  const numberOf = new Map(said.moves.map((move, i) => [move.migration, i + 1]));
  const nodes = (maps?.nodes ?? []).map((node) => ({ ...node, cells: { before: cellsOf(node, node.before), after: cellsOf(node, node.after) } }));
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const valueOf = new Map((values?.moves ?? []).map((one) => [one.migration, one]));
  const moveOf = new Map(said.moves.map((move) => [move.migration, move]));
  const marked = { lit, light, numberOf, moveOf, thought, first: said.moves.find((move) => move.target)?.migration };
  const worth = said.promised === null ? "" : `; it promise${thought ? "s" : "d"} ${amount(said.promised, true)} ${said.unit} in ${said.hours} h, and its moves cost ${amount(said.cost)}`;
  const made = said.moves.length - (maps?.declined ?? 0);
  const landed = made === said.moves.length ? "once all moves have landed" : made === 1 ? "once the 1 move that was approved has landed" : `once the ${number(made)} moves that were approved have landed`;
  return html`<p class="note">Made at <button class="seq" title=${`go to sequence ${said.seq}`} onClick=${() => store.seek({ at: said.seq })}>${clock(said.time)}</button>${" "}
      by ${said.planner}: ${many(said.moves.length, "move")}${worth}. ${maps?.declined ? "With all of them: free" : "Free"} nodes ${said.freeNodes[0]} → ${said.freeNodes[1]}, free devices ${said.freeDevices[0]} → ${said.freeDevices[1]}.${said.reason ? ` ${said.reason}` : ""}</p>
    ${unmapped && html`<p class="note">${unmapped}</p>`}
    ${!maps && !unmapped && html`<p class="note busy">…</p>`}
    ${maps && !maps.known && html`<p class="note">The plan was made before what is known of this log: how its nodes were then is not known.</p>`}
    ${nodes.length > 0 && html`<div class="twomaps" onKeyDown=${walk}>
      <${Side} store=${store} side="before" title="Before" note=${`as of ${clock(said.time)}`} nodes=${nodes.slice(0, shown)} marked=${marked} />
      <${Side} store=${store} side="after" title="After" note=${landed} nodes=${nodes.slice(0, shown)} marked=${marked} />
    </div>`}
    ${nodes.length > shown && html`<p><button onClick=${() => show(shown + SHOWN)}>${Math.min(SHOWN, nodes.length - shown)} more of ${number(maps.nodesInAll)} nodes</button></p>`}
    ${maps?.slots.length > 0 && html`<p class="note">${maps.declined ? "With all of its moves it" : "It"} makes capacity for ${maps.slots.slice(0, 20).map((slot) => `${slot.pod} on ${slot.node}`).join(", ")}${maps.slots.length > 20 ? ` and ${maps.slots.length - 20} more` : ""}.</p>`}
    <${Waves} store=${store} moves=${said.moves} marked=${marked} />
    ${said.moves.length > 0 && html`<table class="each" aria-label="Moves">
      <thead><tr><th>Move</th><th>Pod</th><th>From, to</th><th class="right" title="By how much less the plan would win without it">Value</th><th class="right">Cost</th><th>Reason</th>${!thought && html`<th>Now</th>`}</tr></thead>
      <tbody>${said.moves.map((move) => html`<${Row} key=${move.migration} store=${store} move=${move} value=${valueOf.get(move.migration)} asked=${!values} effect=${effect(byName.get(move.source))} marked=${marked} />`)}</tbody></table>
      <p class="note">${values?.unknown ? `No values: ${values.unknown}.` : html`Value: by how much less the plan would win without the move, in ${said.unit || "its unit"}. What several moves free together, the plan loses without any one of them, so these do not add up to what the plan wins.`}</p>`}`;
}

function Row({ store, move, value, asked, effect: does, marked }) {
  const { lit, light, numberOf } = marked;
  const along = value?.along.map((one) => numberOf.get(one)) ?? [];
  return html`<tr class=${lit === move.migration ? "lit" : ""} onMouseEnter=${() => light(move.migration)} onMouseLeave=${() => light("")} onFocusIn=${() => light(move.migration)} onFocusOut=${() => light("")}>
    <td><span class="number">${numberOf.get(move.migration)}</span></td>
    <td><button class="plain" onClick=${() => store.select(marked.thought ? `pod/${move.pod}` : `migration/${move.migration}`)}>${move.pod || `the pod of move ${numberOf.get(move.follows) ?? ""}`}</button></td>
    <td>${move.source} → ${move.target || "nowhere"}<br /><small>wave ${move.wave}${move.after.length ? `, after ${move.after.map((one) => numberOf.get(one) ?? one).join(", ")}` : ""}</small></td>
    <td class="right"><span class="only">value </span>${value ? amount(value.loses, true) : asked ? "…" : "–"}${along.length > 0 && html`<br /><small>with ${along.slice(0, 6).join(", ")}${along.length > 6 ? ` and ${along.length - 6} more` : ""}</small>`}</td>
    <td class="right"><span class="only">cost </span>${amount(move.cost)}${costOf(move) && html`<br /><small>${costOf(move)}</small>`}</td>
    <td>${move.why || does || "–"}</td>
    ${!marked.thought && html`<td><span class=${`step ${move.step}`}>${move.step.replace("_", " ")}</span>${move.reason && html`<br /><small>${move.reason}: ${move.message}</small>`}</td>`}
  </tr>`;
}

function Side({ store, side, title, note, nodes, marked }) {
  const colors = theme(matchMedia("(prefers-color-scheme: dark)").matches);
  const { words } = store.world;
  const numbers = new Map(words.map((word, i) => [word, i]));
  const color = (one) => css(numbers.get(one.workload) ? hueOf(numbers.get(one.workload), colors) : colors.plain);
  return html`<figure data-side=${side}><figcaption>${title} <small>${note}</small></figcaption>
    <ul class="boxes">${nodes.map((node) => html`<${Box} key=${node.name} store=${store} node=${node} side=${side} color=${color} marked=${marked} />`)}</ul></figure>`;
}

function Box({ store, node, side, color, marked }) {
  const occupants = node[side];
  const cells = node.cells[side];
  const { lit, light, numberOf, moveOf, first } = marked;
  const movers = occupants.filter((one) => one.migration).sort((a, b) => numberOf.get(a.migration) - numberOf.get(b.migration));
  const others = node[side === "before" ? "after" : "before"].filter((one) => one.migration);
  const used = cells.length - free(cells);
  const about = `${node.name}, ${side} the plan: ${cells.length ? `${used} of ${many(cells.length, "device")} used, ` : ""}${many(occupants.length, "pod")}${movers.length ? `, ${movers.length} of them ${side === "before" ? "to leave" : "come"}` : ""}`;
  const part = (key) => `${node[key] ? Math.min(100, (100 * sum(occupants, key)) / node[key]) : 0}%`;
  return html`<li class=${`box${occupants.length ? "" : " empty"}`}>
    <button class="plain name" aria-label=${about} title=${node.name} onClick=${() => store.select(`node/${node.name}`)}>${node.name}</button>
    ${cells.length > 0 && html`<div class="cells" aria-hidden="true">${cells.map((cell) => html`<span class="cell">${cell.map(([one, milli]) => html`<i
      class=${`${one.migration ? `moved ${side}` : ""}${lit && one.migration === lit ? " lit" : ""}${lit && one.migration !== lit ? " dim" : ""}`}
      style=${{ height: `${Math.min(100, milli / 10)}%`, background: color(one) }} title=${title(one, numberOf, side)}
      onMouseEnter=${() => one.migration && light(one.migration)} onMouseLeave=${() => light("")}></i>`)}</span>`)}</div>`}
    <div class="loads" aria-hidden="true" title=${`cpu ${percent(sum(occupants, "cpu"), node.cpu)}, memory ${percent(sum(occupants, "memory"), node.memory)}`}><i style=${{ width: part("cpu") }}></i><i style=${{ width: part("memory") }}></i></div>
    ${movers.length + others.length > 0 && html`<div class="either"><div class="chips space" aria-hidden="true">${others.map((one) => html`<span class="chip">${numberOf.get(one.migration)}</span>`)}</div><div class="chips">${movers.map((one) => html`<button key=${one.migration} class=${`chip${lit === one.migration ? " lit" : ""}`} data-move=${one.migration}
      tabIndex=${(lit || first) === one.migration ? 0 : -1} aria-label=${told(one, moveOf.get(one.migration), numberOf, side)} title=${title(one, numberOf, side)}
      onMouseEnter=${() => light(one.migration)} onMouseLeave=${() => light("")} onFocus=${() => light(one.migration)} onBlur=${() => light("")}
      onClick=${() => store.select(marked.thought ? `pod/${one.pod}` : `migration/${one.migration}`)}>${numberOf.get(one.migration)}</button>`)}</div></div>`}
  </li>`;
}

const shares = (one) => (one.devices.length || one.unsaid ? ` (${devices(one.devices.reduce((all, [, milli]) => all + milli, 0) + 1000 * one.unsaid)} GPU)` : "");
const title = (one, numberOf, side) => `${one.pod}${shares(one)}${one.migration ? `: move ${numberOf.get(one.migration)} ${side === "before" ? "takes it away" : "has brought it"}` : ", stays"}`;
const told = (one, move, numberOf, side) => `Move ${numberOf.get(one.migration)}: ${one.pod}${shares(one)} ${side === "before" ? `leaves ${move?.source} for ${move?.target || "nowhere"}` : `has come to ${move?.target} from ${move?.source}`}`;

// Arrow keys: to the move before or after in this map, or to the same move in the other map.
function walk(event) {
  const chip = event.target.closest(".chip");
  const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!chip || (!sideways && event.key !== "ArrowUp" && event.key !== "ArrowDown")) return;
  event.preventDefault();
  const here = chip.closest("figure");
  const inside = sideways ? here : [...event.currentTarget.querySelectorAll("figure")].find((one) => one !== here);
  const chips = [...inside.querySelectorAll(".chip")];
  if (!sideways) return chips.find((one) => one.dataset.move === chip.dataset.move)?.focus();
  chips[Math.max(0, Math.min(chips.length - 1, chips.indexOf(chip) + sideways))]?.focus();
}
