import { readBrackets, readClassEscape, readEscape } from './class-parser';
import { folded } from './case-folding';
import { anyCharacter, negated, single } from './char-set';
import { Reader, type RegexpSyntaxError } from './reader';
import { alternate, concat, oneOf, place, repeat, type Node } from './tree';

/** The greatest count of a repetition, and of nested ones together. */
export const repetitionMax = 1000;

interface Flags {
  ignoresCase: boolean;
  /** `^` and `$` also match at the ends of lines. */
  byLine: boolean;
  /** `.` matches a line feed. */
  dotMatchesNewline: boolean;
}

/** Parses an expression of RE2. Throws RegexpSyntaxError. */
export function parseExpression(characters: readonly string[], ignoresCase: boolean): Node {
  return new Parser(new Reader(characters), { ignoresCase, byLine: false, dotMatchesNewline: false }).whole();
}

/** One of the alternatives that `|` separates, as far as it is read. */
interface Branch {
  items: Item[];
  endsInRepetition: boolean;
}

/** A node, and the greatest product of nested counts in it. */
interface Item {
  node: Node;
  repetitions: number;
}

class Parser {
  private readonly names = new Set<string>();

  constructor(
    private readonly reader: Reader,
    private flags: Flags,
  ) {}

  whole(): Node {
    const { node } = this.alternation();
    if (!this.reader.isAtEnd) throw this.reader.error(this.reader.at, 'the ) has no (');
    return node;
  }

  /** Reads to the end or to the `)` that closes the group. */
  private alternation(): Item {
    const branches: Branch[] = [{ items: [], endsInRepetition: false }];
    while (!this.reader.isAtEnd && this.reader.peek() !== ')') {
      if (this.reader.take('|')) branches.push({ items: [], endsInRepetition: false });
      else this.readInto(branches.at(-1)!);
    }
    const items = branches.flatMap((branch) => branch.items);
    return {
      node: alternate(branches.map((branch) => concat(branch.items.map(({ node }) => node)))),
      repetitions: Math.max(1, ...items.map(({ repetitions }) => repetitions)),
    };
  }

  private readInto(branch: Branch): void {
    const start = this.reader.at;
    const counts = this.quantifier();
    if (counts !== undefined) {
      this.reader.take('?');
      if (branch.endsInRepetition) throw this.reader.error(start, 'a repetition cannot be repeated without a group');
      const last = branch.items.pop();
      if (last === undefined) throw this.reader.error(start, 'there is nothing to repeat');
      branch.items.push(this.repeated(last, counts, start));
    } else branch.items.push(...this.items());
    branch.endsInRepetition = counts !== undefined;
  }

  private repeated(item: Item, [min, max]: [number, number | undefined], start: number): Item {
    const count = max ?? min;
    const repetitions = item.repetitions * (count >= 2 ? count : 1);
    if (repetitions > repetitionMax && max !== 0) {
      throw this.reader.error(start, `nested repetitions may count to ${repetitionMax} together`);
    }
    return { node: repeat(item.node, min, max), repetitions: max === 0 ? 1 : repetitions };
  }

  /** Reads `*`, `+`, `?` or a count in braces; undefined where something else comes. */
  private quantifier(): [number, number | undefined] | undefined {
    if (this.reader.take('*')) return [0, undefined];
    if (this.reader.take('+')) return [1, undefined];
    if (this.reader.take('?')) return [0, 1];
    if (this.reader.peek() !== '{') return undefined;
    const start = this.reader.at;
    this.reader.at += 1;
    const inBraces = this.reader.takeThrough('}') ?? '';
    const counts = /^(0|[1-9]\d*)(?:(,)(0|[1-9]\d*)?)?$/.exec(inBraces);
    if (counts === null) {
      // Other braces are characters.
      this.reader.at = start;
      return undefined;
    }
    const min = Number(counts[1]);
    const max = counts[2] === undefined ? min : counts[3] === undefined ? undefined : Number(counts[3]);
    if (min > repetitionMax || (max ?? 0) > repetitionMax) {
      throw this.reader.error(start, `a repetition may count to ${repetitionMax}`);
    }
    if (max !== undefined && max < min) throw this.reader.error(start, 'the repetition ends before it begins');
    return [min, max];
  }

  /** Reads what stands for itself: a character, a class, an anchor, a group, text between \Q and \E, or only flags. */
  private items(): Item[] {
    const { reader } = this;
    const start = reader.at;
    if (reader.peek() === '\\') return this.escaped();
    const character = reader.next('', start);
    switch (character) {
      case '(':
        return this.group(start);
      case '[':
        return [itemOf(oneOf(readBrackets(reader, this.flags.ignoresCase)))];
      case '.':
        return [itemOf(oneOf(this.flags.dotMatchesNewline ? anyCharacter : negated(single(0x0a))))];
      case '^':
        return [itemOf(place(this.flags.byLine ? 'lineStart' : 'textStart'))];
      case '$':
        return [itemOf(place(this.flags.byLine ? 'lineEnd' : 'textEnd'))];
      default:
        return [this.literal(character.codePointAt(0)!)];
    }
  }

  private escaped(): Item[] {
    const { reader } = this;
    if (reader.take('\\A')) return [itemOf(place('textStart'))];
    if (reader.take('\\z')) return [itemOf(place('textEnd'))];
    if (reader.take('\\b')) return [itemOf(place('wordBoundary'))];
    if (reader.take('\\B')) return [itemOf(place('noWordBoundary'))];
    if (reader.take('\\Q')) {
      const text = reader.takeThrough('\\E') ?? this.rest();
      return [...text].map((character) => this.literal(character.codePointAt(0)!));
    }
    const set = readClassEscape(reader, this.flags.ignoresCase);
    if (set !== undefined) return [itemOf(oneOf(set))];
    reader.at += 1;
    return [this.literal(readEscape(reader))];
  }

  private rest(): string {
    const text = this.reader.characters.slice(this.reader.at).join('');
    this.reader.at = this.reader.characters.length;
    return text;
  }

  private literal(character: number): Item {
    return itemOf(oneOf(this.flags.ignoresCase ? folded(single(character)) : single(character)));
  }

  /** Its `(` has been read. Only flags, as in `(?i)`, are no item. */
  private group(start: number): Item[] {
    const { reader, flags: outside } = this;
    if (reader.take('?') && !this.name(start) && !this.groupFlags(start)) return [];
    const item = this.alternation();
    if (!reader.take(')')) throw reader.error(start, 'the group is not closed by )');
    this.flags = outside;
    return [item];
  }

  /** Reads the name of a group, `P<name>` or `<name>`; false where something else comes. */
  private name(start: number): boolean {
    const { reader } = this;
    if (/^<?[=!]$/.test((reader.peek() === '<' ? '<' + (reader.peek(1) ?? '') : reader.peek()) ?? '')) {
      throw reader.error(start, 'look-ahead and look-behind are not supported');
    }
    if (!reader.take('P<') && !reader.take('<')) return false;
    const name = reader.takeThrough('>');
    if (name === undefined || !/^\w+$/.test(name)) {
      throw reader.error(start, 'the name of a group has letters, digits and underscores between < and >');
    }
    if (this.names.has(name)) throw reader.error(start, 'two groups have the same name');
    this.names.add(name);
    return true;
  }

  /** Reads flags up to `:`, which begins a group with them: then true; or up to `)`, for the rest of this group. */
  private groupFlags(start: number): boolean {
    const { reader } = this;
    const read = /^([imsU]*)(?:-([imsU]+))?([:)])/.exec(reader.characters.slice(reader.at).join(''));
    if (read === null) throw this.unknownGroup(start);
    const [whole, on, off, end] = read;
    reader.at += whole.length;
    const flags = { ...this.flags };
    for (const [letters, value] of [
      [on ?? '', true],
      [off ?? '', false],
    ] as const) {
      // U exchanges greedy and lazy repetitions, which match the same texts.
      if (letters.includes('i')) flags.ignoresCase = value;
      if (letters.includes('m')) flags.byLine = value;
      if (letters.includes('s')) flags.dotMatchesNewline = value;
    }
    this.flags = flags;
    return end === ':';
  }

  private unknownGroup(start: number): RegexpSyntaxError {
    return this.reader.error(start, 'there is no such group; RE2 has (…), (?:…), (?<name>…) and the flags i, m, s, U');
  }
}

const itemOf = (node: Node): Item => ({ node, repetitions: 1 });
