/**
 * @typedef {{ present: Set<string>, arrows: Set<string> }} Uses `present` has `package room` for each room with a file,
 * `arrows` has `package from to` for each import.
 * @typedef {{ name: string, listed: string[], height: number }} Card
 */

/** Sizes in pixels of the picture. */
const box = { width: 190, height: 24, gap: 6 };
const arcs = 74;
const card = { padding: 14, title: 26, gap: 22, width: box.width + arcs + 2 * 14 };
const columnCount = 4;
const border = 20;

/**
 * One card for each package: its rooms as boxes, the roof on top and the leaves at the bottom. An arc leads from a room
 * to one that it imports; arcs of the roof and to leaves are left out, since both are next to all. Numbers of files and
 * of imports are not drawn: nearly every change would alter the picture, and each two branches would conflict in it.
 * @param {Record<string, string[]>} rooms those of each package, from the lowest to the highest
 * @param {Uses} uses
 */
export function drawRooms(rooms, uses) {
  const cards = Object.entries(rooms).map(([name, floors]) => {
    const listed = ['roof', ...floors.toReversed(), 'leaves'].filter((room) => uses.present.has(`${name} ${room}`));
    const height = card.title + listed.length * (box.height + box.gap) + 2 * card.padding;
    return { name, listed, height };
  });
  /** @type {{ height: number, cards: (Card & { y: number })[] }[]} */
  const columns = Array.from({ length: columnCount }, () => ({ height: border, cards: [] }));
  for (const each of cards.toSorted((a, b) => b.height - a.height || (a.name < b.name ? -1 : 1))) {
    const column = columns.reduce((least, other) => (other.height < least.height ? other : least));
    column.cards.push({ ...each, y: column.height });
    column.height += each.height + card.gap;
  }
  const width = border * 2 + columnCount * card.width + (columnCount - 1) * card.gap;
  const height = Math.max(...columns.map((column) => column.height)) - card.gap + border;
  const drawn = columns.flatMap((column, index) =>
    column.cards.map((each) => drawCard(each, border + index * (card.width + card.gap), uses.arrows)),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="The rooms of each package and the imports between them, which all go downward">
<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 6 3 0 6z" fill="#475569"/></marker></defs>
<rect width="${width}" height="${height}" fill="#ffffff"/>
${drawn.join('\n')}
</svg>
`;
}

/** @param {Card & { y: number }} card @param {number} x @param {Set<string>} arrows */
function drawCard({ name, listed, height, y }, x, arrows) {
  const left = x + card.padding;
  const top = (/** @type {number} */ at) => y + card.padding + card.title + at * (box.height + box.gap);
  const boxes = listed.map((room, index) => drawBox(room, left, top(index)));
  const lines = listed.flatMap((from, index) =>
    listed.flatMap((to, below) => {
      if (!arrows.has(`${name} ${from} ${to}`) || from === 'roof' || to === 'leaves') return [];
      return drawArc(left + box.width, top(index) + box.height / 2, top(below) + box.height / 2, listed.length);
    }),
  );
  return [
    `<rect x="${x}" y="${y}" width="${card.width}" height="${height}" rx="8" fill="#f8fafc" stroke="#cbd5e1"/>`,
    `<text x="${left}" y="${y + card.padding + 13}" font-weight="600" fill="#0f172a">${name}</text>`,
    ...lines,
    ...boxes,
  ].join('\n');
}

/** @param {string} room @param {number} x @param {number} y */
function drawBox(room, x, y) {
  const isOutside = room === 'roof' || room === 'leaves';
  const fill = isOutside ? '#e2e8f0' : '#dbeafe';
  return `<rect x="${x}" y="${y}" width="${box.width}" height="${box.height}" rx="4" fill="${fill}"/><text x="${x + 8}" y="${y + 16}" fill="#0f172a">${room}</text>`;
}

/**
 * From one room to one below it; the further away, the wider the arc.
 * @param {number} x @param {number} fromY @param {number} toY @param {number} roomCount
 */
function drawArc(x, fromY, toY, roomCount) {
  const distance = Math.abs(toY - fromY) / (box.height + box.gap);
  const reach = Math.round(14 + ((arcs - 18) * 4 * distance) / (3 * roomCount));
  return `<path d="M${x} ${fromY + 3} C${x + reach} ${fromY + 3} ${x + reach} ${toY - 3} ${x + 2} ${toY - 3}" fill="none" stroke="#475569" stroke-opacity="0.5" stroke-width="1.2" marker-end="url(#head)"/>`;
}
