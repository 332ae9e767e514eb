// What is looked at, as the address's fragment: it can be copied, and never reaches a server.

import { MODES } from "./colors.js";
import { GROUPS } from "./layout.js";
import { HOUR, WHILES } from "./moves.js";

const FIELDS = { at: "at", view: "view", color: "color", group: "group", show: "selected", plan: "plan", tour: "tour", beside: "beside", within: "within" };
const ALLOWED = { view: ["map", "moves", "plans", "queues", "health"], color: Object.keys(MODES), group: Object.keys(GROUPS) };
const DEFAULTS = { view: "map", color: "workload", group: "kind", selected: "", plan: "", at: null, tour: null, beside: null, within: HOUR };

export function read(fragment) {
  const said = new URLSearchParams(fragment.replace(/^#/, ""));
  const found = { ...DEFAULTS };
  for (const [name, field] of Object.entries(FIELDS)) if (said.has(name)) found[field] = said.get(name);
  for (const [field, values] of Object.entries(ALLOWED)) if (!values.includes(found[field])) found[field] = DEFAULTS[field];
  if (!found.plan && found.selected.startsWith("plan/")) found.plan = found.selected.slice("plan/".length);
  found.tour = /^[1-9]\d?$/.test(found.tour ?? "") ? Number(found.tour) : null;
  found.beside = /^\d{1,15}$/.test(found.beside ?? "") ? Number(found.beside) : null;
  found.at = /^\d{1,15}$/.test(found.at ?? "") ? Number(found.at) : null;
  found.within = WHILES.has(Number(found.within)) ? Number(found.within) : HOUR;
  return found;
}

export function written(state) {
  const said = new URLSearchParams();
  for (const [name, field] of Object.entries(FIELDS)) {
    const value = state[field];
    if (value !== DEFAULTS[field] && value !== null && value !== undefined) said.set(name, value);
  }
  const text = said.toString();
  return text ? `#${text}` : "#";
}
