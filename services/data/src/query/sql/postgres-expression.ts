import { negated, onlyCharacter, lastCharacter, type CharSet } from '../language/regexp/char-set';
import type { Node, Place } from '../language/regexp/tree';

/** The greatest count that Postgres takes. */
const countMax = 255;

const places: Record<Place, string> = {
  textStart: '\\A',
  textEnd: '\\Z',
  lineStart: '^',
  lineEnd: '$',
  wordBoundary: '\\y',
  noWordBoundary: '\\Y',
};

/**
 * A tree as an advanced regular expression of Postgres, for the collation "C". It is written from the tree alone, with
 * every character but letters and digits escaped. Case is in the sets already, so that no option says it.
 */
export function toPostgresExpression(tree: Node): string {
  // With this option ^ and $ mean lines.
  return (hasLines(tree) ? '(?w)' : '') + write(tree);
}

function hasLines(node: Node): boolean {
  if (node.kind === 'concat' || node.kind === 'alternate') return node.parts.some(hasLines);
  if (node.kind === 'repeat') return hasLines(node.part);
  return node.kind === 'place' && (node.place === 'lineStart' || node.place === 'lineEnd');
}

function write(node: Node): string {
  switch (node.kind) {
    case 'never':
      throw new RangeError('no expression of Postgres matches nothing');
    case 'empty':
      return '(?:)';
    case 'set':
      return writeSet(node.set);
    case 'place':
      return places[node.place];
    case 'concat':
      return node.parts.map(write).join('');
    case 'alternate':
      return `(?:${node.parts.map((part) => (part.kind === 'empty' ? '' : write(part))).join('|')})`;
    case 'repeat': {
      const atom = node.part.kind === 'set' ? write(node.part) : `(?:${write(node.part)})`;
      return node.max === undefined ? writeAtLeast(atom, node.min) : writeBetween(atom, node.min, node.max);
    }
  }
}

function writeAtLeast(atom: string, min: number): string {
  if (min <= 1) return `${atom}${min === 0 ? '*' : '+'}`;
  return min <= countMax ? `${atom}{${min},}` : `${atom}{${countMax}}${writeAtLeast(atom, min - countMax)}`;
}

function writeBetween(atom: string, min: number, max: number): string {
  if (min === 0 && max === 1) return `${atom}?`;
  if (max <= countMax) return `${atom}{${min === max ? min : `${min},${max}`}}`;
  const many = `${atom}{${countMax}}`;
  if (min >= countMax) return many + writeBetween(atom, min - countMax, max - countMax);
  // One after the other, two optional counts would have too many ways between them.
  return `(?:${writeBetween(atom, min, countMax)}|${many}${writeBetween(atom, 1, max - countMax)})`;
}

function writeSet(set: CharSet): string {
  const character = onlyCharacter(set);
  if (character !== undefined) return writeCharacter(character);
  // A set that goes up to the last character is written by what it lacks, mostly little.
  const isMost = set.at(-1) === lastCharacter;
  const shown = isMost ? negated(set) : set;
  if (shown.length === 0) return '.';
  let ranges = '';
  for (let index = 0; index < shown.length; index += 2) {
    const [first, last] = [shown[index]!, shown[index + 1]!];
    ranges += writeCharacter(first);
    if (last > first) ranges += (last > first + 1 ? '-' : '') + writeCharacter(last);
  }
  return `[${isMost ? '^' : ''}${ranges}]`;
}

function writeCharacter(code: number): string {
  const character = String.fromCodePoint(code);
  if (/^[A-Za-z0-9]$/.test(character)) return character;
  const digits = code.toString(16);
  return code <= 0xffff ? `\\u${digits.padStart(4, '0')}` : `\\U${digits.padStart(8, '0')}`;
}
