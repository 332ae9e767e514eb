// Plans as a list, and one of them with its moves.

import { h } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { Answer, may, ModeBar } from "./access.js";
import { amount, clock, date, isEmpty, many, number } from "./format.js";
import { PlanView } from "./planview.js";
import { Replan } from "./replan.js";
import { useAnswer } from "./story.js";

const html = htm.bind(h);
const SHOWN = 100; // plans at first, and with each "more"

// Of plans that were only observed: what was seen of them later.
function looked(seen) {
  if (!seen) return "";
  const early = seen.early ? `, ${many(seen.early, "pod", "pods")} had ended before` : "";
  const aged = seen.aged ? `; an hour after it ${number(seen.ended)} of ${many(seen.aged, "pod", "pods")} had ended` : "";
  return `; ${number(seen.free)} of ${many(seen.slots, "slot", "slots")} still free later${early}${aged}`;
}

// The same of all of them together.
function score(plans) {
  const seen = plans.map((plan) => plan.looked).filter((one) => one);
  if (!seen.length) return null;
  const all = { slots: 0, free: 0, early: 0, aged: 0, ended: 0 };
  for (const one of seen) for (const key of Object.keys(all)) all[key] += one[key];
  return `Score of ${many(seen.length, "observed plan", "observed plans")}${looked(all)}`;
}

// How far it is, in a few words.
function outcome(plan) {
  if (!plan.moves && !plan.slots) return "nothing to move";
  if (plan.mode === "observe") return `only observed${looked(plan.looked)}`;
  if (plan.mode === "propose" && !plan.answer && !plan.cancelled) return `waits for a person since ${clock(plan.time)}${plan.waitsUntil ? `, until ${clock(plan.waitsUntil)}` : ""}`;
  if (plan.answer?.said === "rejected") return `rejected by ${plan.answer.by}, ${clock(plan.answer.time)}: ${plan.answer.reason}`;
  const by = plan.answer ? `${plan.answer.moves ? many(plan.answer.moves, "move") : "all"} approved by ${plan.answer.by}, ${clock(plan.answer.time)}${plan.answer.reason ? `: ${plan.answer.reason}` : ""}; ` : "";
  const parts = Object.entries(plan.steps).map(([step, count]) => `${number(count)} ${step.replace("_", " ")}`);
  return by + parts.join(", ") + (plan.cancelled ? `; cancelled: ${plan.cancelled}` : "");
}

export function Plans({ store }) {
  const { plan } = store.state;
  const [trying, start] = useState(false);
  if (trying && !plan) return html`<${Replan} store=${store} onClose=${() => start(false)} />`;
  return plan ? html`<${PlanView} key=${plan} store=${store} name=${plan} outcome=${(said) => outcome({ ...said, moves: said.moves.length })} />` : html`<${PlanList} store=${store} onTry=${() => start(true)} />`;
}

function PlanList({ store, onTry }) {
  const { at } = store.world;
  const [every, tell] = useState(false);
  const [shown, show] = useState(SHOWN);
  const { said, error } = useAnswer(store, "/api/v1/plans", { empty: every ? 1 : 0 }, at);
  const { said: report, error: unreported } = useAnswer(store, "/api/v1/report", {}, at);
  // What was approved of a plan, and what came of it.
  const won = new Map((report?.plans ?? []).map((one) => [one.plan, one]));
  if (error) return html`<div class="list"><p class="note">${error}</p></div>`;
  if (isEmpty(store.state.log)) return html`<div class="list"><p class="note">The log is empty: no plan has been made yet.</p></div>`;
  if (!said) return html`<div class="list"><p class="note busy">…</p></div>`;
  return html`<div class="list">
    <h1>Plans <small>made until ${clock(store.world.time)}</small></h1>
    <${ModeBar} store=${store} />
    <p class="buttons"><button onClick=${onTry}>Try another policy at this instant</button></p>
    <${Budgets} said=${report?.budgets ?? []} />
    ${said.length === 0 && html`<p class="note">No plan has been made by this instant. Move the slider on, or look at the marks above it.</p>`}
    ${score(said) && html`<p class="note">${score(said)}</p>`}
    ${unreported && html`<p class="note">What they won and lost, and what eviction budgets have left, is not known: ${unreported}</p>`}
    ${said.length > 0 && html`<table>
      <thead><tr><th>Made</th><th>Plan</th><th>By</th><th class="right">Moves</th><th>Outcome</th><th class="right">Promised</th><th class="right">Won</th><th class="right">Cost</th><th class="right">Lost</th><th>Unit</th></tr></thead>
      <tbody>${said.slice(0, shown).map((plan) => [plan, won.get(plan.plan)]).map(([plan, real]) => html`<tr key=${plan.plan}>
        <td><button class="seq" title=${`go to sequence ${plan.seq}`} onClick=${() => store.seek({ at: plan.seq })}>${date(plan.time)} ${clock(plan.time)}</button></td>
        <td><button class="plain" onClick=${() => store.select(`plan/${plan.plan}`)}>${plan.plan}</button></td>
        <td>${plan.planner}<br /><small>${plan.trigger}</small></td>
        <td class="right">${real && real.moves !== plan.moves ? `${number(real.moves)} of ` : ""}${number(plan.moves)}<span class="only"> ${plan.moves === 1 ? "move" : "moves"}</span></td>
        <td>${outcome(plan)}${plan.reason && html`<br /><small>${plan.reason}</small>`}</td>
        <td class="right"><span class="only">promised </span>${amount((real ?? plan).promised, true)}</td>
        <td class="right"><span class="only">won </span>${real ? (real.won === null ? "–" : amount(real.won, true)) : report || unreported ? "–" : "…"}</td>
        <td class="right"><span class="only">cost </span>${amount((real ?? plan).cost)}</td>
        <td class="right"><span class="only">lost </span>${real ? amount(real.lost) : report || unreported ? "–" : "…"}</td>
        <td><small>${plan.unit}${plan.hours ? ` in ${plan.hours} h` : ""}</small></td>
      </tr>`)}</tbody></table>
      <p class="buttons">${said.length > shown && html`<button onClick=${() => show(shown + SHOWN)}>${number(Math.min(SHOWN, said.length - shown))} more of ${number(said.length)} plans</button>`}
        <button aria-pressed=${every} onClick=${() => tell(!every)}>${every ? "Without those that found nothing to move" : "Also those that found nothing to move"}</button></p>`}
  </div>`;
}

// How many pods may still be evicted, by budget: those that are each namespace's, queue's or node pool's as far as anything of them is used.
function Budgets({ said }) {
  if (!said.length) return null;
  return html`<table class="budgets"><caption>Eviction budgets</caption>
    <thead><tr><th>Budget</th><th>Of</th><th class="right">Left</th><th class="right">Spent</th><th class="right">Planned</th><th>Allows</th><th>More from</th></tr></thead>
    <tbody>${said.map((one) => html`<tr key=${`${one.budget}/${one.of}`}>
      <td>${one.budget}</td><td>${one.of || "–"}</td>
      <td class="right">${one.left <= 0 ? html`<b>0</b>` : number(one.left)}<span class="only"> left</span></td><td class="right">${number(one.spent)}<span class="only"> spent</span></td><td class="right">${number(one.planned)}<span class="only"> planned</span></td>
      <td><span class="only">of </span>${number(one.evictions)} ${one.within === "day" ? "a day" : `within ${one.within}`}</td>
      <td><span class="only">more from </span>${one.again ? `${date(Date.parse(one.again))} ${clock(Date.parse(one.again))}` : "–"}</td></tr>`)}</tbody></table>`;
}

export function PlanDetails({ store, path, name }) {
  const { said, error } = useAnswer(store, `/api/v1/plans/${encodeURIComponent(name)}`, {}, store.world.at);
  const [declined, decline] = useState(new Set());
  useEffect(() => {
    // The map draws them.
    store.planned = said ? { path, moves: said.moves } : null;
    for (const draw of store.drawn) draw(new Set());
  }, [said]);
  if (error) return html`<p class="note">${error}</p>`;
  if (!said) return html`<p class="note busy">…</p>`;
  const steps = Object.fromEntries(Object.entries(said.steps));
  const { me, follow } = store.state;
  const choosable = said.waitsUntil > 0 && said.moves.length > 1 && follow && !me?.off && may(me, "approver");
  const tick = (one) => {
    const next = new Set(declined);
    if (!next.delete(one)) next.add(one);
    decline(next);
  };
  return html`<dl class="facts">
      <div><dt>made</dt><dd><button class="seq" onClick=${() => store.seek({ at: said.seq })}>${clock(said.time)}</button> by ${said.planner}, ${said.trigger}</dd></div>
      <div><dt>outcome</dt><dd>${outcome({ ...said, moves: said.moves.length, steps })}</dd></div>
      ${said.promised !== null && html`<div><dt>promised</dt><dd>${amount(said.promised, true)} ${said.unit} in ${said.hours} h</dd></div>
      <div><dt>cost</dt><dd>${amount(said.cost)}</dd></div>`}
      <div><dt>free nodes</dt><dd>${said.freeNodes[0]} → ${said.freeNodes[1]}</dd></div>
      <div><dt>free devices</dt><dd>${said.freeDevices[0]} → ${said.freeDevices[1]}</dd></div>
    </dl>
    ${said.reason && html`<p class="note">${said.reason}</p>`}
    <${Answer} store=${store} plan=${said} chosen=${said.moves.map((move) => move.migration).filter((one) => !declined.has(one))} />
    ${store.state.view !== "map" && said.moves.length > 0 && html`<p><button onClick=${() => store.choose({ view: "map" })}>Show its moves on the map</button></p>`}
    <h3>${many(said.moves.length, "Move", "Moves")}</h3>
    <ol class="moves">${said.moves.map((move) => html`<li key=${move.migration}>
      ${choosable && html`<input type="checkbox" checked=${!declined.has(move.migration)} aria-label=${`Approve ${move.migration}: ${move.pod || "the pod that follows"}`} onChange=${() => tick(move.migration)} /> `}
      <button class="plain" onClick=${() => store.select(`migration/${move.migration}`)}>${move.pod || move.migration}</button> <span class=${`step ${move.step}`}>${move.step.replace("_", " ")}</span>
      <small>${move.source} → ${move.target || "nowhere"} · wave ${move.wave}${move.cost ? ` · cost ${amount(move.cost)}` : ""}${move.after.length ? ` · after ${move.after.join(", ")}` : ""}${move.why ? ` · ${move.why}` : ""}${move.reason ? ` · ${move.reason}: ${move.message}` : ""}${move.seen ? ` · ${move.seen}` : ""}</small></li>`)}</ol>
    ${Object.keys(said.kept).length > 0 && html`<h3>Why others stay</h3><dl class="facts">${Object.entries(said.kept).map(([why, count]) => html`<div><dt>${why}</dt><dd>${number(count)}</dd></div>`)}</dl>`}`;
}
