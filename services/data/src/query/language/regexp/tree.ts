import { noCharacter, type CharSet } from './char-set';

export type Place = 'textStart' | 'textEnd' | 'lineStart' | 'lineEnd' | 'wordBoundary' | 'noWordBoundary';

/**
 * A regular expression as a tree. Captures and the greediness of repetitions are not part of it: neither decides
 * whether a text matches.
 */
export type Node =
  /** Matches nowhere. Only ever the whole tree. */
  | { kind: 'never' }
  | { kind: 'empty' }
  | { kind: 'set'; set: CharSet }
  /** Matches no character, but a place between two. */
  | { kind: 'place'; place: Place }
  | { kind: 'concat'; parts: readonly Node[] }
  | { kind: 'alternate'; parts: readonly Node[] }
  /** A repetition; it has no maximum where `max` is undefined. */
  | { kind: 'repeat'; part: Node; min: number; max: number | undefined };

export const never: Node = { kind: 'never' };
export const empty: Node = { kind: 'empty' };

export const oneOf = (set: CharSet): Node => (set.length === noCharacter.length ? never : { kind: 'set', set });
export const place = (at: Place): Node => ({ kind: 'place', place: at });

export function concat(parts: readonly Node[]): Node {
  const flat: Node[] = [];
  // The places since the last part that is not a place, and whether that part has matched a character.
  let places = new Set<Place>();
  let isInText = false;
  for (const part of parts.flatMap((node) => (node.kind === 'concat' ? node.parts : [node]))) {
    if (part.kind === 'place') {
      if (places.has(part.place)) continue;
      places.add(part.place);
    }
    if (part.kind === 'empty') continue;
    const isImpossible =
      (places.has('wordBoundary') && places.has('noWordBoundary')) ||
      (places.has('textStart') && isInText) ||
      (places.has('textEnd') && part.kind === 'set');
    if (part.kind === 'never' || isImpossible) return never;
    if (part.kind !== 'place') [places, isInText] = [new Set(), part.kind === 'set'];
    flat.push(part);
  }
  return flat.length === 0 ? empty : flat.length === 1 ? flat[0]! : { kind: 'concat', parts: flat };
}

export function alternate(parts: readonly Node[]): Node {
  const possible = parts.flatMap((node) => (node.kind === 'alternate' ? node.parts : [node]));
  const certain = possible.some(matchesAnywhere);
  // Beside an alternative that matches anywhere without a character, a place adds nothing.
  const left = possible.filter(
    (node) => node.kind !== 'never' && !(certain && node.kind !== 'empty' && matchesNoCharacter(node)),
  );
  return left.length === 0 ? never : left.length === 1 ? left[0]! : { kind: 'alternate', parts: left };
}

export function repeat(part: Node, min: number, max: number | undefined): Node {
  if (max === 0) return empty;
  if (part.kind === 'never') return min === 0 ? empty : never;
  // A part that matches no character matches the same once and many times.
  if (matchesNoCharacter(part)) return min === 0 ? empty : part;
  if (min === 0 && part.kind === 'alternate')
    return repeatOptional(alternate(part.parts.filter((node) => !matchesNoCharacter(node))), max);
  return min === 1 && max === 1 ? part : { kind: 'repeat', part, min, max };
}

function matchesNoCharacter(node: Node): boolean {
  if (node.kind === 'concat' || node.kind === 'alternate') return node.parts.every(matchesNoCharacter);
  return node.kind === 'empty' || node.kind === 'place';
}

const repeatOptional = (part: Node, max: number | undefined): Node => ({ kind: 'repeat', part, min: 0, max });

/** Whether a node matches at every place of every text, without a character. */
function matchesAnywhere(node: Node): boolean {
  switch (node.kind) {
    case 'empty':
      return true;
    case 'concat':
      return node.parts.every(matchesAnywhere);
    case 'alternate':
      return node.parts.some(matchesAnywhere);
    case 'repeat':
      return node.min === 0 || matchesAnywhere(node.part);
    default:
      return false;
  }
}
