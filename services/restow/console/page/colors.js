// Colours of pods and nodes, as one 32-bit number each (little-endian RGBA, as ImageData has them).

const HUES = {
  light: ["#3f7fd6", "#df8b25", "#2b9c77", "#c4577f", "#7b64c8", "#8f9a25", "#1e9cb3", "#d1623d", "#5f9040", "#a55db3", "#52719f", "#b48b30"],
  dark: ["#6ca6f2", "#eda650", "#52bf99", "#de7fa3", "#9d8ae6", "#b2bc4b", "#4fbdd2", "#e98764", "#84b463", "#c483d1", "#7f9ccb", "#d3ad56"],
};
const RAMP = {
  light: ["#cfe3d8", "#8fc6ad", "#4fa48c", "#247a75", "#12505c"],
  dark: ["#21403d", "#2c665c", "#3f917c", "#6bbf9c", "#b3e6c4"],
};

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
export const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
export const mixed = (one, other, part) => one.map((value, i) => Math.round(value + (other[i] - value) * part));
export const css = (color) => `rgb(${color & 255} ${(color >> 8) & 255} ${(color >> 16) & 255})`;

// A colour → that colour so far towards another one. There are few of them, and each is asked for often.
function towards(other, part) {
  const known = new Map();
  return (color) => {
    let found = known.get(color);
    if (found === undefined) known.set(color, (found = packed(mixed([color & 255, (color >> 8) & 255, (color >> 16) & 255], other, part))));
    return found;
  };
}

// What the style sheet says of this theme, so that both have one home.
export function theme(dark) {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => rgb(style.getPropertyValue(`--${name}`).trim());
  const ground = named("ground");
  const which = dark ? "dark" : "light";
  const hues = HUES[which].map(rgb);
  return {
    ground: packed(ground), box: packed(named("box")), empty: packed(named("empty")), line: packed(named("line")), ink: packed(named("ink")),
    bar: packed(named("bar")), barBack: packed(named("bar-back")), hold: packed(named("hold")), bad: packed(named("bad")), closed: packed(named("closed")),
    accent: packed(named("accent")), plain: packed(named("plain")), text: style.getPropertyValue("--ink"), muted: style.getPropertyValue("--muted"),
    accentText: style.getPropertyValue("--accent"),
    // Twice as many colours as hues: the second half is paler.
    hues: [...hues, ...hues.map((hue) => mixed(hue, ground, 0.4))].map(packed),
    ramp: RAMP[which].map(rgb).map(packed),
    faded: towards(ground, 0.72),
    paler: towards(ground, 0.45),
  };
}

// A word's colour is the same at every instant: neighbours in the list of words are far apart in hue.
export const hueOf = (word, colors) => colors.hues[(word * 7) % colors.hues.length];

export const MODES = { workload: "Workload", queue: "Queue", priority: "Priority", idle: "Idle devices" };

// pod → colour.
export function podColor(mode, world, colors) {
  if (mode === "queue") return (pod) => (pod.queue ? hueOf(pod.queue, colors) : colors.plain);
  if (mode === "priority") {
    const ranks = [...new Set([...world.pods.values()].map((pod) => pod.priority))].sort((a, b) => a - b);
    const step = ranks.length > 1 ? (colors.ramp.length - 1) / (ranks.length - 1) : 0;
    const of = new Map(ranks.map((priority, i) => [priority, colors.ramp[Math.round(i * step)]]));
    return (pod) => of.get(pod.priority) ?? colors.plain;
  }
  if (mode === "idle") return () => colors.plain;
  return (pod) => (pod.workload ? hueOf(pod.workload, colors) : colors.plain);
}

// Free devices of a node that is in use, by how much of it is idle: of no use to a job that needs a whole node.
export function idleColor(colors, share) {
  return share <= 0 || share >= 1 ? null : colors.ramp[Math.min(colors.ramp.length - 1, Math.floor(share * colors.ramp.length))];
}
