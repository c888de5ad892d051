import type { Meaning } from './query-reference';
import type { Random } from './random';
import type { ViewJoinMeaning, ViewMeaning } from './view-reference';

const groups = ['a', 'b', 'é', '', 'a'.repeat(300), 0, 1, 2.5, -1, true, false, null, ['x', 1], { y: 1 }];
const dates = ['2024-01-01T00:00:00Z', '2024-01-01T01:00:00+01:00', '2023-06-01T12:00:00Z', 'soon', 1704067200, null];
/**
 * The sum of thousands of these and of quarters is a double without a rounding error, so that it sorts as it is
 * printed.
 */
const largest = 2 ** 40 - 1;
const numbers = [0, 1, 2, -3, 0.25, 0.5, 100, largest, 'n', true, null, [1]];
const references = [...Array.from({ length: 12 }, (_, at) => `k${at}`), 1, 2, null, ['k1']];
const fields = ['g', 'h', 'd', 'n', 'o.x', 'ref', 'id', 'gone'] as const;

const allOperators = ['count', 'count', 'count_distinct', 'sum', 'avg', 'min', 'max', 'first', 'last'];

export interface ViewOptions {
  hasJoins?: boolean;
  /** Only what a live view can do: one join at most, of `other`, and no first or last value over it. */
  isLive?: boolean;
  /** Of aggregates. */
  operators?: readonly string[];
}

export interface GeneratedView {
  view: ViewMeaning;
  query: Record<string, unknown>;
  sourceCollections: string[];
}

export interface ViewGenerator {
  makeDocument(id: string): { id: string } & Record<string, unknown>;
  /** Over the collection `base`, and with joins `other` and `third`. */
  makeView(options?: ViewOptions): GeneratedView;
}

/** Random documents and views over them. */
export function viewGenerator(random: Random): ViewGenerator {
  const pick = <T>(from: readonly T[]): T => from[random(from.length)]!;

  function makeDocument(id: string): { id: string } & Record<string, unknown> {
    const document: { id: string } & Record<string, unknown> = { id };
    const members = { g: groups, h: groups.slice(0, 3), d: dates, n: numbers, ref: references } as const;
    for (const [field, values] of Object.entries(members)) if (random(7) > 0) document[field] = pick(values);
    if (random(4) > 0) document['o'] = { x: pick(numbers), z: 1 };
    return document;
  }

  function makeJoins(): ViewJoinMeaning[] {
    return Array.from({ length: pick([0, 0, 1, 1, 2]) }, (_, at): ViewJoinMeaning => {
      const alias = pick(
        [
          ['x', 'g'],
          ['y', 'o'],
        ][at]!,
      );
      const path = pick(['id', 'ref', 'd', 'n', 'h']);
      // The alias may be the name of the field that the join goes by.
      const named = { g: ['g', 'g'], o: ['o.x', 'o.x'] }[alias] ?? [];
      const own = pick(['ref', 'd', 'id', 'h', 'n', ...named]);
      const to = at === 1 && !named.includes(own) && random(2) === 0 ? `x.${own}` : own;
      return { alias, collection: pick(['other', 'third', 'base']), isInner: random(2) === 0, on: [{ path, to }] };
    });
  }

  function makeView({
    hasJoins = true,
    isLive = false,
    operators: all = allOperators,
  }: ViewOptions = {}): GeneratedView {
    let joins = hasJoins ? makeJoins() : [];
    if (isLive) joins = joins.slice(0, 1).map((join) => ({ ...join, collection: 'other' }));
    const isPlaced = (operator: string): boolean => operator === 'first' || operator === 'last';
    const operators = isLive && joins.length > 0 ? all.filter((operator) => !isPlaced(operator)) : all;
    // A reference to an alias that is not there would be one to a field of the base.
    if (joins[0]?.alias !== 'x') joins = joins.slice(0, 1);
    const scalars = [...fields, ...joins.flatMap(({ alias }) => fields.map((field) => `${alias}.${field}`))].filter(
      (path) => !joins.some(({ alias }) => alias === path),
    );
    const paths = [...scalars, ...joins.map(({ alias }) => alias)];
    const { find, meaning } = makeFind(paths);
    const by = [...new Set(Array.from({ length: random(3) }, () => pick(scalars)))].filter(
      (path, _, all) =>
        !all.some((other) => other !== path && (other.startsWith(`${path}.`) || path.startsWith(`${other}.`))),
    );
    const aggregates = Array.from({ length: random(5) }, (_, at) => {
      const operator = pick(operators);
      return {
        alias: `c${at}`,
        operator,
        path: operator === 'count' && random(2) === 0 ? '*' : pick(/min|max/.test(operator) ? scalars : paths),
      };
    });
    const isGrouped = random(3) > 0 && by.length + aggregates.length > 0;
    // The language leaves the order of objects open.
    const ordered = aggregates.filter(({ operator, path }) => scalars.includes(path) || !/first|last/.test(operator));
    const sortable = isGrouped ? [...by, ...ordered.map(({ alias }) => alias)] : scalars;
    const sort = Array.from({ length: sortable.length === 0 ? 0 : random(3) }, () => ({
      path: pick(sortable),
      descending: random(2) === 0,
    }));
    const limit = random(3) === 0 ? 1 + random(20) : undefined;
    const view = { base: 'base', joins, meaning, groups: isGrouped ? { by, aggregates } : undefined, sort, limit };
    const query: Record<string, unknown> = {
      base: 'base',
      find,
      sort_by: sort.map(({ path, descending }) => `${descending ? '-' : ''}${path}`),
    };
    if (limit !== undefined) query['limit'] = limit;
    if (isGrouped) {
      query['group_by'] = by;
      query['aggregate'] = Object.fromEntries(
        aggregates.map(({ alias, operator, path }) => [alias, { [`$${operator}`]: path }]),
      );
    }
    if (joins.length > 0) {
      query['join'] = Object.fromEntries(
        joins.map(({ alias, collection, isInner, on }) => [
          alias,
          {
            collection,
            type: isInner ? 'inner' : 'left',
            on: Object.fromEntries(on.map(({ path, to }) => [path, `$data.${to}`])),
          },
        ]),
      );
    }
    return { view, query, sourceCollections: [...new Set(['base', ...joins.map(({ collection }) => collection)])] };
  }

  function makeFind(paths: readonly string[]): { find: Record<string, unknown>; meaning: Meaning } {
    const all: Meaning[] = [];
    const find: Record<string, unknown> = {};
    for (let part = random(3); part > 0; part -= 1) {
      const path = pick(paths);
      if (path in find) continue;
      const operator = pick(['isNot', 'isNull', 'exists', '>=', '<', 'isNotNull']);
      // A date is not compared with what is no instant.
      const isDate = path.split('.').at(-1) === 'd';
      const scalar = pick(
        isDate ? ['2024-01-01T00:00:00Z', '2023-06-01T12:00:00Z'] : [0, 1, 'a', '2024-01-01T00:00:00Z', true],
      );
      const operand = /Null|exists/.test(operator) ? random(3) === 0 : scalar;
      find[path] = { [operator === '>=' ? '$gte' : operator === '<' ? '$lt' : operator]: operand };
      all.push({ path: path.split('.'), operator, operand });
    }
    return { find, meaning: { all } };
  }

  return { makeDocument, makeView };
}
