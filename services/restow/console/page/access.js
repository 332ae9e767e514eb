// Who uses this page, and what they answer: plans that wait, the mode, a pause.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { json, post } from "./api.js";
import { clock, date, many, span } from "./format.js";

const html = htm.bind(h);
const ROLES = ["viewer", "approver", "operator"];
const LONGEST = 200; // characters of a reason

// Whether whoever uses this page has that role, or one that may more. The server decides; this is what is offered.
export const may = (me, role) => !!me?.person && ROLES.indexOf(me.person.role) >= ROLES.indexOf(role);

export function Login({ onDone, why = "" }) {
  const [token, type] = useState("");
  const [said, say] = useState("");
  const box = useRef(null);
  useEffect(() => box.current?.focus(), []);
  const send = async (event) => {
    event.preventDefault();
    try {
      await post("/api/v1/login", { token: token.trim() });
      type("");
      onDone();
    } catch (error) {
      say(error.message);
    }
  };
  return html`<form class="login" onSubmit=${send}>
    ${why && html`<p class="note">${why}</p>`}
    <label>Token <input type="password" ref=${box} value=${token} autocomplete="off" spellcheck=${false} onInput=${(event) => type(event.target.value)} /></label>
    <button class="go" disabled=${!token.trim()}>Log in</button>
    <p class="bad" role="alert">${said}</p>
  </form>`;
}

// In the page's head: who it is.
export function Who({ store }) {
  const { me } = store.state;
  const [open, show] = useState(false);
  if (!me?.login) return null;
  const { person } = me;
  const leave = async () => {
    await post("/api/v1/logout", {}).catch(() => {});
    location.reload();
  };
  return html`<div class="who">
    ${person?.name ? html`<span title=${`role ${person.role}`}>${person.name} <small>${person.role}</small></span>` : html`<button aria-expanded=${open} onClick=${() => show(!open)}>Log in</button>`}
    ${person?.how === "session" && html`<button onClick=${leave}>Log out</button>`}
    ${open && html`<div class="drop"><${Login} onDone=${() => location.reload()} /></div>`}
  </div>`;
}

// Sends something, and keeps what came of it.
function useSent() {
  const [{ busy, text, bad }, learn] = useState({ busy: false, text: "", bad: false });
  const send = async (path, body, done) => {
    learn({ busy: true, text: "", bad: false });
    try {
      await post(path, body);
      learn({ busy: false, text: done, bad: false });
      return true;
    } catch (error) {
      learn({ busy: false, text: error.message, bad: true });
      return false;
    }
  };
  return { busy, send, said: html`<p class=${bad ? "bad" : "good"} role="status">${text}</p>` };
}

// The mode and the pause at the end of the log (null until they are known), and what looks at them again.
function useNow(last) {
  const [now, learn] = useState(null);
  const look = () => json("/api/v1/mode").then(learn, () => {});
  const timer = useRef(0);
  useEffect(() => {
    // Not for each of ten thousand events a second.
    timer.current ||= setTimeout(() => { timer.current = 0; look(); }, now ? 1000 : 0);
  }, [last]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return [now, look];
}

const since = (paused) => `since ${clock(paused.since)} by ${paused.by || "Restow"}${paused.reason ? `: ${paused.reason}` : ""}`;

// A plan that waits for a person: until when, and the answer. `chosen` of its moves are ticked.
export function Answer({ store, plan, chosen }) {
  const { me, log, follow } = store.state;
  const { busy, send, said } = useSent();
  const [now] = useNow(log?.last);
  const [reason, type] = useState("");
  if (!plan.waitsUntil) return html`<div class="answer">${said}</div>`;
  const all = plan.moves.length;
  const left = plan.waitsUntil - log.now;
  const until = html`<p>Waits for a person until <b>${clock(plan.waitsUntil)}</b> UTC${follow && left > 0 ? `, for ${span(left)} more` : ""}.</p>`;
  const path = `/api/v1/plans/${encodeURIComponent(plan.plan)}`;
  const approve = () => send(`${path}/approve`, { moves: chosen.length === all ? [] : chosen, reason: reason.trim() }, `${chosen.length === all ? "All" : many(chosen.length, "move")} approved.`);
  const reject = () => send(`${path}/reject`, { reason: reason.trim() }, "Rejected.");
  const offered = may(me, "approver");
  return html`<section class="answer" aria-label="Answer">
    ${until}
    ${me?.off && html`<p class="note">${me.off[0].toUpperCase() + me.off.slice(1)}. <code>restow approve ${plan.plan}</code> and <code>restow reject ${plan.plan}</code> answer it, too.</p>`}
    ${!me?.off && !follow && html`<p class="note">This is as of an earlier instant. <button onClick=${() => store.toEnd()}>Go to the end</button> to answer.</p>`}
    ${!me?.off && follow && !offered && html`<p class="note">${me?.person?.name ? `Your role is ${me.person.role}; an approver can answer.` : "Log in as an approver to answer."}</p>`}
    ${!me?.off && follow && now?.paused && html`<p class="note">Moves are <b class="bad">paused</b> ${since(now.paused)}. Nobody can approve a plan until that ends.</p>`}
    ${!me?.off && follow && offered && html`
      <label>Reason <input value=${reason} maxlength=${LONGEST} placeholder="needed for a no" onInput=${(event) => type(event.target.value)} /></label>
      <div class="buttons">
        <button class="go" disabled=${busy || (all > 0 && !chosen.length)} onClick=${approve}>${chosen.length === all ? (all > 1 ? `Approve all ${many(all, "move")}` : "Approve") : `Approve ${chosen.length} of ${many(all, "move")}`}</button>
        <button class="no" disabled=${busy || !reason.trim()} onClick=${reject}>Reject</button>
      </div>
      ${chosen.length < all && chosen.length > 0 && html`<p class="note">The others are declined: their pods stay, and are left alone for a while.</p>`}`}
    ${said}
  </section>`;
}

// What becomes of plans, and whether moves are paused, as of the end of the log; an operator sets it.
export function ModeBar({ store }) {
  const { me, log, follow } = store.state;
  const [now, look] = useNow(log?.last);
  const [reason, type] = useState("");
  const [wanted, want] = useState("");
  const { busy, send, said } = useSent();
  if (!log?.live || !follow || !now) return null;
  const { mode, paused } = now;
  const why = { reason: reason.trim() };
  const act = async (path, body, done) => {
    if (await send(path, body, done)) {
      type("");
      want("");
      look();
    }
  };
  return html`<section class="mode" aria-label="Mode">
    <p>Mode <b>${mode.name}</b>${mode.since ? ` since ${date(mode.since)} ${clock(mode.since)}, by ${mode.by || "the policy"}${mode.reason ? `: ${mode.reason}` : ""}` : ""}${paused ? html` · <b class="bad">paused</b> ${since(paused)}` : ""}</p>
    ${!me?.off && may(me, "operator") && html`<div class="buttons">
      <label class="choice"><span>Set it to</span><select value=${wanted || mode.name} disabled=${busy} onChange=${(event) => want(event.target.value)}>
        ${["observe", "propose", "automatic"].map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <button disabled=${busy || !wanted || wanted === mode.name} onClick=${() => act("/api/v1/mode", { mode: wanted, ...why }, `The mode is ${wanted}.`)}>Set</button>
      ${paused ? html`<button disabled=${busy} onClick=${() => act("/api/v1/resume", why, "Resumed.")}>Resume</button>` : html`<button disabled=${busy} onClick=${() => act("/api/v1/pause", why, "Paused.")}>Pause</button>`}
      <label>Reason <input value=${reason} maxlength=${LONGEST} onInput=${(event) => type(event.target.value)} /></label>
    </div>`}
    ${said}
  </section>`;
}
