import type { CollectionRef } from '../../src/catalog/collection';
import type { Join } from '../../src/query/language/joins';
import type { JoinTarget } from '../../src/query/plan/join-plan';
import { isTimed } from '../../src/values/instant';
import { documentsRelation, type DocumentsOptions } from '../../src/query/plan/relation';
import { Reference, type JoinMeaning, type Meaning } from './query-reference';
import type { Random } from './random';

const head = 'x'.repeat(250);
const strings = [
  '',
  'a',
  'b',
  'é',
  '😀',
  'k1',
  'k2',
  'k3',
  '$5',
  ...['abcdef', 'abcdefg', 'abcdefh', '😀😀'].map((end) => head + end),
];
const dates = [
  '2024-01-01T00:00:00Z',
  '2024-01-01T01:00:00+01:00',
  '2023-12-31T23:59:59.9Z',
  '2024-01-01',
  'soon',
  '1970-01-01T00:00:01Z',
];
const documentCount = 24;

export const paths = ['a', 'b', 'd', 'n.x', 'id', 'tags', 'gone'];
export const comparisons: Array<readonly [string, string]> = [
  ['is', 'is'],
  ['is', '$eq'],
  ['is', 'is'],
  ['in', 'in'],
  ['in', '$in'],
  ['>', 'gt'],
  ['>=', 'gte'],
  ['<', 'lt'],
  ['<=', '$lte'],
];

const joinsMax = 16;

/** Names of joins; a field of the name gives way. */
const aliases = ['one', 'two', 'a', 'b', 'tags', 'naïve "name"\\'];

export interface JoinGenerator {
  pick: <T>(choices: readonly T[]) => T;
  /** The documents of a collection, some with ids of others, many of them with equal values. */
  makeDocuments: () => Array<Record<string, unknown>>;
  makeJoins: () => { sent: Record<string, unknown>; joins: JoinMeaning[] };
  makeSelect: () => { select: JoinMeaning['select']; selected: unknown };
}

/** Documents, and joins of the collections `plain` and `keyed` 0 to 2, as they are sent and what they mean. */
export function joinGenerator(random: Random): JoinGenerator {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const scalar = (): unknown =>
    pick<unknown>([pick(strings), pick(strings), pick([0, 1, 2, -1.5, 1e20]), pick([0, 1, 2]), true, false]);
  const value = (): unknown => {
    const kind = random(10);
    if (kind < 6) return scalar();
    if (kind === 6) return null;
    if (kind === 7) return { x: scalar() };
    return Array.from({ length: random(4) }, () => pick([scalar(), scalar(), pick(dates), null, { x: 1 }]));
  };

  function makeDocuments(): Array<Record<string, unknown>> {
    return Array.from({ length: documentCount }, (_, at) => {
      const document: Record<string, unknown> = { id: `k${at}` };
      if (random(6) > 0) document['a'] = value();
      if (random(6) > 0) document['b'] = random(3) === 0 ? `k${random(documentCount)}` : value();
      if (random(4) > 0) document['d'] = random(5) === 0 ? value() : pick(dates);
      if (random(4) > 0) document['n'] = { x: value() };
      if (random(2) > 0)
        document['tags'] = Array.from({ length: random(4) }, () => pick([`k${random(documentCount)}`, scalar(), null]));
      if (random(6) === 0) document['deleted'] = true;
      return document;
    });
  }

  /** A condition with a reference or without, as it is sent and what it means. */
  function makeCondition(depth = 0): { find: Record<string, unknown>; meaning: Meaning } {
    if (depth < 2 && random(5) === 0) {
      const parts = Array.from({ length: 1 + random(2) }, () => makeCondition(depth + 1));
      const meanings = parts.map(({ meaning }) => meaning);
      const [name, meaning] = pick<[string, Meaning]>([
        ['and', { all: meanings }],
        ['or', { any: meanings }],
        ['not', { none: meanings }],
      ]);
      return { find: { [name]: parts.map(({ find }) => find) }, meaning };
    }
    const path = pick(paths);
    const [operator, spelling] = pick(comparisons);
    if (random(4) === 0) {
      // Of a date of a schema, what is no instant is refused.
      const one = () => (path === 'd' ? pick(dates.filter(isTimed)) : scalar());
      const operand = operator === 'in' ? [one(), one()] : one();
      return { find: { [path]: { [spelling]: operand } }, meaning: { path: path.split('.'), operator, operand } };
    }
    const to = pick(operator === 'in' ? ['tags', 'tags', 'a', 'n.x', 'n.x.0'] : paths);
    const operand = `${pick(['$data', '$parent'])}.${to}`;
    const meaning = { path: path.split('.'), operator, operand: new Reference(to.split('.')) };
    if (operator === 'is' && random(2) === 0) return { find: { [path]: operand }, meaning };
    return { find: { [path]: { [spelling]: operand } }, meaning };
  }

  function makeJoins(level = 1, budget = { joins: joinsMax }): { sent: Record<string, unknown>; joins: JoinMeaning[] } {
    const made: Array<{ join: JoinMeaning; sent: object; refersTo: Set<string> }> = [];
    const count = level > 4 ? 0 : level === 1 ? 1 + random(2) : random(3);
    for (let at = 0; at < count && budget.joins > 0; at += 1) {
      budget.joins -= 1;
      const alias = pick(aliases.filter((name) => made.every(({ join }) => join.alias !== name)));
      const conditions = Array.from({ length: pick(level === 1 ? [0, 1, 1, 2] : [1, 1, 2]) }, () => makeCondition());
      const [model, many] = [pick(['plain', 'keyed']) + random(3), random(3) > 0];
      const inner = makeJoins(level + 1, budget);
      const { select, selected } = makeSelect();
      const meaning = { all: conditions.map((one) => one.meaning) };
      const find = { ...(conditions.length === 0 ? {} : { and: conditions.map((one) => one.find) }), ...inner.sent };
      const sent = { resolve: { find, ...(selected ? { select: selected } : {}) }, model, ...(many ? {} : { many }) };
      const references = JSON.stringify(conditions.map((one) => one.find)).matchAll(/"\$(?:data|parent)\.(\w+)/g);
      const refersTo = new Set([...references].map(([, field]) => field!));
      made.push({ join: { alias, model, many, meaning, select, joins: inner.joins }, sent, refersTo });
    }
    // A reference to what another join adds is refused.
    const kept = made.filter(({ join, refersTo }) =>
      made.every((other) => other.join === join || !refersTo.has(other.join.alias)),
    );
    return {
      sent: Object.fromEntries(kept.map(({ join, sent }) => [join.alias, sent])),
      joins: kept.map(({ join }) => join),
    };
  }

  function makeSelect(): { select: JoinMeaning['select']; selected: unknown } {
    if (random(3) > 0) return { select: undefined, selected: undefined };
    const fields = ['id', 'a', 'd'].filter(() => random(2) === 0);
    if (fields.length === 0) return { select: undefined, selected: {} };
    const keeps = pick(['named', 'others'] as const);
    const object = Object.fromEntries(fields.map((field) => [field, keeps === 'named']));
    return {
      select: { keeps, fields },
      selected: keeps === 'named' ? pick<unknown>([object, fields, fields.join()]) : object,
    };
  }

  return { pick, makeDocuments, makeJoins: () => makeJoins(), makeSelect };
}

/** The joins of a query with what they read. */
export function targetsOf(
  joins: readonly Join[],
  source: (join: Join) => { handle: CollectionRef; options: DocumentsOptions },
  numbers = { last: 0 },
): JoinTarget[] {
  return joins.map((join) => {
    numbers.last += 1;
    const number = numbers.last;
    const { handle, options } = source(join);
    return {
      join,
      number,
      relation: documentsRelation(handle, options, number),
      joins: targetsOf(join.joins, source, numbers),
    };
  });
}
