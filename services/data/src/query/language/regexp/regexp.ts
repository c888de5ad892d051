import { onlyCharacter } from './char-set';
import { boundaryPairsMax, complexityMax, costOf, rangesMax } from './cost';
import { parseExpression } from './parser';
import { RegexpSyntaxError } from './reader';
import type { Node } from './tree';

/** A parsed regular expression; plain data. */
export interface Regexp {
  tree: Node;
  /** The beginning of every text that matches; empty where the expression forces none. */
  prefix: string;
  complexity: number;
}

/** Characters of an expression, without the slashes around it. */
export const expressionLengthMax = 200;

/** An expression beyond one of the limits, which the message names. */
export class RegexpLimitError extends Error {}

/**
 * Parses an expression in RE2's syntax, as it stands or as `/…/` or `/…/i`. Throws RegexpSyntaxError, with the position
 * among the characters of `text`, and RegexpLimitError.
 */
export function parseRegexp(text: string): Regexp {
  const delimited = /^\/(.*)\/(i?)$/su.exec(text);
  const characters = [...(delimited?.[1] ?? text)];
  if (characters.length > expressionLengthMax) {
    throw new RegexpLimitError(`may have at most ${expressionLengthMax} characters`);
  }
  const tree = parseTree(characters, delimited?.[2] === 'i', delimited === null ? 0 : 1);
  const { complexity, boundaryPairs, ranges } = costOf(tree);
  if (complexity > complexityMax) {
    throw new RegexpLimitError(
      `is too complex, ${complexity} of at most ${complexityMax}: repeat less, above all repetitions in repetitions`,
    );
  }
  if (boundaryPairs > boundaryPairsMax) {
    throw new RegexpLimitError(`may have at most ${boundaryPairsMax} pairs of anchors or \\b that can meet`);
  }
  if (ranges > rangesMax)
    throw new RegexpLimitError(`may have at most ${rangesMax} ranges of characters in its classes`);
  return { tree, prefix: prefixOf(tree), complexity };
}

function parseTree(characters: readonly string[], ignoresCase: boolean, skipped: number): Node {
  try {
    return parseExpression(characters, ignoresCase);
  } catch (error) {
    throw error instanceof RegexpSyntaxError && skipped > 0
      ? new RegexpSyntaxError(error.position + skipped, error.reason)
      : error;
  }
}

function prefixOf(tree: Node): string {
  const [start, ...rest] = tree.kind === 'concat' ? tree.parts : [];
  if (start?.kind !== 'place' || start.place !== 'textStart') return '';
  let prefix = '';
  for (const part of rest) {
    const character = part.kind === 'set' ? onlyCharacter(part.set) : undefined;
    if (character === undefined) break;
    prefix += String.fromCodePoint(character);
  }
  return prefix;
}
