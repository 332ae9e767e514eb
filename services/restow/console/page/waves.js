// A plan's moves as a graph: a column a wave, a line from each move to those that wait for it.

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";
import { many } from "./format.js";

const html = htm.bind(h);
const [WIDE, HIGH, RADIUS] = [72, 28, 11];
const MOST = 300; // moves that are drawn

// Where each move is drawn: by wave, and in a wave in the plan's order.
function places(moves) {
  const rows = new Map();
  return new Map(moves.map((move) => {
    const row = rows.get(move.wave) ?? 0;
    rows.set(move.wave, row + 1);
    return [move.migration, { x: (move.wave - 0.5) * WIDE, y: (row + 0.5) * HIGH }];
  }));
}

export function Waves({ store, moves, marked }) {
  const waves = moves.reduce((most, move) => Math.max(most, move.wave), 0);
  if (waves < 2) return null;
  const drawn = moves.slice(0, MOST);
  const waiting = moves.filter((move) => move.after.length || move.follows).length;
  const place = places(drawn);
  const [width, height] = [waves * WIDE, Math.max(...[...place.values()].map((one) => one.y)) + HIGH / 2];
  const { lit, light, numberOf } = marked;
  const lines = drawn.flatMap((move) => [...new Set([...move.after, ...(move.follows ? [move.follows] : [])])].map((first) => [first, move.migration])).filter(([first]) => place.has(first));
  const path = ([from, to]) => `M${from.x + RADIUS} ${from.y}C${from.x + WIDE / 2} ${from.y} ${to.x - WIDE / 2} ${to.y} ${to.x - RADIUS} ${to.y}`;
  const touches = (line) => !lit || line.includes(lit);
  // The table of moves says the same in words, and is what a keyboard walks through.
  return html`<figure class="waves"><figcaption>Waves <small>${many(waiting, "move waits", "moves wait")} for others; a line leads to who waits</small></figcaption>
    <div><svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`${many(moves.length, "move")} in ${many(waves, "wave")}; the table says which wait for which`}>
      ${lines.map((line) => html`<path key=${line.join(" ")} class=${touches(line) ? "" : "dim"} d=${path(line.map((one) => place.get(one)))} />`)}
      ${drawn.map((move) => html`<g key=${move.migration} class=${`${marked.thought ? "" : move.step}${lit === move.migration ? " lit" : ""}`} transform=${`translate(${place.get(move.migration).x} ${place.get(move.migration).y})`}
        onMouseEnter=${() => light(move.migration)} onMouseLeave=${() => light("")} onClick=${() => store.select(marked.thought ? `pod/${move.pod}` : `migration/${move.migration}`)}>
        <title>${`${move.pod || move.migration}: ${move.source} → ${move.target || "nowhere"}${marked.thought ? "" : `, ${move.step.replace("_", " ")}`}`}</title><circle r=${RADIUS} /><text dy="0.36em">${numberOf.get(move.migration)}</text></g>`)}
    </svg></div>${moves.length > MOST && html`<p class="note">The first ${MOST} of ${moves.length}.</p>`}</figure>`;
}
