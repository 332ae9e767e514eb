// The public API, and nothing else: frames as typed arrays, names in chunks, the rest as JSON.

const TYPES = {
  "|u1": Uint8Array, "<u2": Uint16Array, "<u4": Uint32Array, "<i4": Int32Array, "<f8": Float64Array,
};

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const known = { run: "" };

// Slots, and so all names that are kept here, are of one run of the console: of another one everything is asked for anew.
// False where an answer is of another run.
export function ofRun(run) {
  if (known.run && run && run !== known.run) {
    location.reload();
    return false;
  }
  known.run ||= run;
  return true;
}

// Called where the console does not know, or no longer knows, who asks.
export const unknown = { heard: () => {} };

async function asked(path, query = {}, signal) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const tail = pairs.length ? "?" + new URLSearchParams(pairs) : "";
  return checked(await fetch(path + tail, { signal, credentials: "same-origin" }));
}

async function checked(answer) {
  if (!ofRun(answer.headers.get("Restow-Run"))) throw new ApiError(0, "the console was started anew");
  if (!answer.ok) {
    let reason = answer.statusText;
    try {
      reason = (await answer.json()).error ?? reason;
    } catch { /* the status says enough */ }
    if (answer.status === 401) unknown.heard();
    throw new ApiError(answer.status, reason);
  }
  return answer;
}

export async function post(path, body) {
  return (await checked(await fetch(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, credentials: "same-origin" }))).json();
}

export const json = async (path, query, signal) => (await asked(path, query, signal)).json();

// The header of a frame, and its arrays by name (`pods.node`); see console/frames.py.
export function decode(buffer) {
  const view = new DataView(buffer);
  const length = view.getUint32(4, true);
  const about = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const begin = Math.ceil((8 + length) / 8) * 8;
  const arrays = {};
  for (const one of about.arrays) {
    arrays[one.name] = new TYPES[one.type](buffer, begin + one.at, one.length);
  }
  return { about, arrays };
}

export async function frame(query, signal) {
  return decode(await (await asked("/api/v1/frame", query, signal)).arrayBuffer());
}

const CHUNK = 1000;

// Names of slots, fetched a thousand at a time when one of them is first wanted. `heard` is called when some have come.
export class Names {
  constructor(heard) {
    this.heard = heard;
    this.chunks = new Map();
  }

  // The name, or null while it is on its way.
  get(kind, slot) {
    if (slot < 0) return "";
    const known = this.chunks.get(kind + Math.floor(slot / CHUNK));
    const name = known?.names?.[slot % CHUNK];
    if (name === undefined) {
      this.fetch(kind, Math.floor(slot / CHUNK), slot);
      return null;
    }
    return name;
  }

  // Of a pod `namespace/name`, of a hold its Reservation's.
  label(kind, slot) {
    const name = this.get(kind, slot);
    return Array.isArray(name) ? name[name.length - 1] || name[0] : name;
  }

  // All names of the slots below `count`.
  async all(kind, count) {
    const chunks = [];
    for (let first = 0; first < count; first += CHUNK) {
      chunks.push(this.fetch(kind, first / CHUNK, Math.min(count, first + CHUNK) - 1));
    }
    await Promise.all(chunks);
  }

  fetch(kind, number, slot) {
    const key = kind + number;
    const known = this.chunks.get(key);
    if (known?.busy) return known.busy;
    if (known?.names && slot % CHUNK < known.names.length) return undefined;
    const first = number * CHUNK;
    const busy = json(`/api/v1/names/${kind}`, { from: first, to: first + CHUNK }).then(
      (said) => {
        this.chunks.set(key, { names: said.names });
        this.heard();
      },
      () => this.chunks.set(key, { names: known?.names }),
    );
    this.chunks.set(key, { names: known?.names, busy });
    return busy;
  }
}
