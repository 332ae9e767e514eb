// Another policy, and the plans that it makes at the instant that is shown. Nothing is written.

import { h } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { json, post } from "./api.js";
import { clock } from "./format.js";
import { PlanBody } from "./planview.js";

const html = htm.bind(h);

export function Replan({ store, onClose }) {
  const { at, time } = store.world;
  const [text, type] = useState("");
  const [said, learn] = useState(null); // what the API has answered
  const [error, tell] = useState("");
  const [busy, wait] = useState("");
  const doing = async (what, work) => {
    if (busy) return;
    wait(what);
    tell("");
    try {
      await work();
    } catch (failed) {
      tell(failed.message);
    }
    wait("");
  };
  const fill = () => doing("Reading the policy from the log …", async () => {
    const known = await json("/api/v1/policy", { at: store.world.at });
    type(known.policy);
    if (known.unknown) tell(`The policy that was in force: ${known.unknown}. Write one.`);
  });
  useEffect(() => { fill(); }, []);
  const ask = () => doing("Planning …", async () => learn(await post(`/api/v1/replan?at=${store.world.at}`, { policy: text })));
  return html`<div class="list planview replan">
    <button class="back" onClick=${onClose}>‹ All plans</button>
    <h1>What would be planned here? <small>at ${clock(time)}, sequence ${at}</small></h1>
    <p class="note">Change the policy, and see the plan that it makes at this instant, by the planner itself. Nothing is written, and no pod moves. Then move the slider, and ask again.</p>
    <label>Policy (DeschedulerPolicy, YAML)
      <textarea rows="16" spellcheck=${false} value=${text} onInput=${(event) => type(event.target.value)}></textarea></label>
    <p class="buttons"><button class="go" disabled=${!!busy || at === null} onClick=${ask}>Plan with it</button>
      <button disabled=${!!busy} onClick=${fill}>The policy in force here</button></p>
    ${busy && html`<p class="note busy" role="status">${busy}</p>`}
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${said && html`<div class=${said.at === at ? "" : "stale"} role="status">
      ${said.warnings.map((one) => html`<p class="note">${one}</p>`)}
      ${said.plans.length === 0 && html`<p class="note">It plans nothing here.</p>`}
      ${said.plans.map((plan) => html`<section key=${`${said.at} ${plan.plan}`}><h3>${plan.plugin || "Plan"} at ${clock(said.time)}, sequence ${said.at}</h3>
        <${PlanBody} store=${store} said=${plan} maps=${plan.maps} values=${plan.values} thought=${true} />
        ${Object.keys(plan.kept).length > 0 && html`<details><summary>Why others stay</summary><dl class="facts">${Object.entries(plan.kept).map(([why, count]) => html`<div><dt>${why}</dt><dd>${count}</dd></div>`)}</dl></details>`}</section>`)}
    </div>`}
  </div>`;
}
