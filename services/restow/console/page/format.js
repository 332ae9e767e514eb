// Numbers and times for people. Times are UTC, as everywhere in Restow.

export const number = (value) => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export const cores = (milli) => (milli % 1000 && milli < 10000 ? (milli / 1000).toFixed(1) : number(milli / 1000));
export const devices = (milli) => (milli % 1000 ? (milli / 1000).toFixed(2).replace(/0$/, "") : number(milli / 1000));
export const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part < whole ? 1 : 0)} %` : "–");

const two = (value, digits = 2) => String(value).padStart(digits, "0");

export function clock(ms) {
  if (!ms) return "–";
  const at = new Date(ms);
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
}

export function date(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
}

export const precise = (ms) => (ms ? `${clock(ms)}.${two(new Date(ms).getUTCMilliseconds(), 3)}` : "–");

export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// Thousandths of a plan's unit.
export function amount(thousandths, sign = false) {
  if (thousandths === null || thousandths === undefined) return "–";
  const value = Math.abs(thousandths) / 1000;
  const text = value >= 100 ? number(value) : value >= 1 || !thousandths ? value.toFixed(1) : value.toFixed(value >= 0.01 ? 2 : 3);
  return (thousandths < 0 ? "−" : sign ? "+" : "") + text;
}

// Of a log, as /api/v1/log has it: there is nothing in it, as far as is known.
export const isEmpty = (log) => !!log && !log.last && !log.tail && !log.error;

export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;
