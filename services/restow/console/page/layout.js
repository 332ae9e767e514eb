// Where each node is drawn: groups one below the other, in each the nodes in rows, everything in whole device pixels. Pure.

export const GROUPS = { kind: "Class", rack: "Rack", zone: "Zone", none: "No groups" };
const SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 23, 26, 30, 34, 40];
const ANCHOR = 2; // boxes are at least as wide as so many devices

// Columns and rows of devices in the boxes of a group whose largest node has so many.
function grid(devices) {
  if (devices <= 1) return [ANCHOR, 1];
  if (devices <= 2) return [2, 1];
  if (devices <= 4) return [2, 2];
  if (devices <= 8) return [4, 2];
  if (devices <= 16) return [8, 2];
  return [8, Math.ceil(devices / 8)];
}

// [{ label, nodes, most }], `most` devices on one of them, nodes sorted by name; groups by name, what has none last.
export function grouped(world, by, nameOf) {
  const groups = new Map();
  for (const node of world.nodes.values()) {
    const label = by === "none" ? "" : world.words[node[by]] ?? "";
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(node);
  }
  const order = new Intl.Collator("en", { numeric: true }).compare;
  const named = [...groups].map(([label, nodes]) => ({ label, nodes: nodes.map((node) => [nameOf(node.slot), node]) }));
  for (const group of named) {
    group.nodes.sort((a, b) => order(a[0], b[0]));
    group.nodes = group.nodes.map(([, node]) => node);
    group.most = group.nodes.reduce((most, node) => Math.max(most, node.devices.length), 1);
  }
  return named.sort((a, b) => (a.label === "") - (b.label === "") || order(a.label, b.label));
}

// How a box of a group is divided, for devices of `size` pixels.
export function box(group, size, ratio) {
  const [columns, rows] = grid(group.most);
  const pad = size <= 2 ? 0 : size <= 4 ? 1 : Math.round(2 * ratio);
  const gap = size >= 5 ? 1 : 0;
  const bar = Math.max(1, Math.round(size / 4));
  const between = size <= 2 ? 1 : Math.max(1, Math.round(size / 6));
  const header = columns * size >= 46 * ratio ? Math.round(13 * ratio) : 0;
  return {
    columns, rows, size, pad, gap, bar, between, header,
    width: columns * size + 2 * pad,
    height: header + rows * size + between + 2 * bar + Math.max(1, between - 1) + 2 * pad,
    gutter: size <= 2 ? 1 : size <= 4 ? 2 : Math.round(Math.min(6, size / 2)),
  };
}

// { bands: [{ group, y, top, box, across }], height } for a width: where each group begins, its first row, and how many nodes are in a row.
function banded(groups, width, size, ratio, heading) {
  const bands = [];
  let y = Math.round(4 * ratio);
  for (const group of groups) {
    const one = box(group, size, ratio);
    const top = y + (heading ? Math.round(20 * ratio) : 0);
    const across = Math.max(1, Math.floor((width + one.gutter) / (one.width + one.gutter)));
    bands.push({ group, y, top, box: one, across });
    y = top + Math.ceil(group.nodes.length / across) * (one.height + one.gutter) + Math.round((size <= 3 ? 2 : 8) * ratio);
  }
  return { bands, height: y };
}

// { places: [{ node, x, y, box }], headings, height } for a width.
export function laidOut(groups, width, size, ratio, heading) {
  const { bands, height } = banded(groups, width, size, ratio, heading);
  const places = [];
  for (const { group, top, box: one, across } of bands) {
    group.nodes.forEach((node, i) => {
      places.push({ node, x: (i % across) * (one.width + one.gutter), y: top + Math.floor(i / across) * (one.height + one.gutter), box: one });
    });
  }
  return { places, headings: heading ? bands : [], height, size };
}

// The largest size at which everything is in sight, so many steps larger or smaller.
export function fitted(groups, width, height, ratio, heading, steps) {
  let best = 0;
  for (let i = 0; i < SIZES.length && SIZES[i] <= 26 * ratio; i++) {
    if (banded(groups, width, SIZES[i], ratio, heading).height > height) break;
    best = i;
  }
  const chosen = Math.max(0, Math.min(SIZES.length - 1, best + steps));
  return { ...laidOut(groups, width, SIZES[chosen], ratio, heading), steps: chosen - best };
}
