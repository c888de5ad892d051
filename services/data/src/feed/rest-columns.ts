import { join, Sql, sql, trusted } from '@granary/shared/postgres/sql';
import { pathsOf, type Condition } from '../query/language/condition';
import { Compiler } from '../query/sql/filter-sql';
import type { Relation } from '../query/plan/relation';

/** Conditions of different SQL that one statement evaluates, at most. */
export const shapesMax = 64;
/** Comparisons that it makes for a version of a document, at most: each constant of a shape is one. */
const comparisonsMax = 4_096;

/** A condition as SQL, its parts in a row. */
interface Compiled {
  index: number;
  strings: readonly string[];
  values: readonly unknown[];
}

/** Conditions whose SQL differs in texts only. */
interface Shape {
  conditions: Compiled[];
}

/**
 * Evaluates conditions on each row of a relation. Those that differ in constants only are one column, which Postgres
 * plans once; within limits, so that the filters of some do not hold up the others.
 */
export class RestColumns {
  /** The conditions beyond the limit, which are not evaluated. */
  readonly excess: ReadonlySet<number>;
  private readonly shapes: readonly Shape[];
  private readonly compiler: Compiler;
  private readonly count: number;

  constructor(relation: Relation, conditions: readonly Condition[]) {
    this.compiler = new Compiler(relation);
    const compiled = conditions.map((condition, index) => flatten(this.compiler.condition(condition), index));
    const evaluated = withinLimits(conditions, compiled);
    this.shapes = shapesOf(compiled.filter(({ index }) => evaluated.has(index)));
    this.excess = new Set(compiled.map(({ index }) => index).filter((index) => !evaluated.has(index)));
    this.count = conditions.length;
  }

  /** A table with what the conditions need of its rows, whose alias is that of the relation. */
  records(table: Sql): Sql {
    return this.compiler.records(table);
  }

  /** A text with `t` for each condition that holds for a row; `resultsOf` puts it in their order. */
  get column(): Sql {
    if (this.shapes.length === 0) return sql`''::text`;
    return sql`concat(${join(this.shapes.map(shapeColumn), ', ')})`;
  }

  /** Whether each condition holds, in the order in which they were given. */
  resultsOf(text: string): boolean[] {
    const results = new Array<boolean>(this.count).fill(false);
    let position = 0;
    for (const { conditions } of this.shapes) {
      for (const { index } of conditions) results[index] = text[position++] === 't';
    }
    return results;
  }
}

/** A statement whose parts are values only. */
function flatten(statement: Sql, index: number): Compiled {
  const strings = [''];
  const values: unknown[] = [];
  const write = ({ strings: texts, parts }: Sql): void => {
    strings[strings.length - 1] += texts[0]!;
    for (const [place, part] of parts.entries()) {
      if (part instanceof Sql) {
        write(part);
        strings[strings.length - 1] += texts[place + 1]!;
      } else {
        values.push(part);
        strings.push(texts[place + 1]!);
      }
    }
  };
  write(statement);
  return { index, strings, values };
}

/** The first conditions, as far as their shapes and their comparisons are within the limits. */
function withinLimits(conditions: readonly Condition[], compiled: readonly Compiled[]): ReadonlySet<number> {
  const evaluated = new Set<number>();
  const shapes = new Set<string>();
  let comparisons = 0;
  for (const one of compiled) {
    const shape = shapeOf(one);
    const cost = pathsOf(conditions[one.index]!).length;
    const isWithin = comparisons + cost <= comparisonsMax && (shapes.has(shape) || shapes.size < shapesMax);
    if (!isWithin) continue;
    evaluated.add(one.index);
    shapes.add(shape);
    comparisons += cost;
  }
  return evaluated;
}

/** Conditions of one shape have the same SQL, and the same values where these are no texts. */
function shapeOf({ strings, values }: Compiled): string {
  return JSON.stringify([strings, values.map((value) => (typeof value === 'string' ? null : value))]);
}

function shapesOf(conditions: readonly Compiled[]): Shape[] {
  const shapes = new Map<string, Shape>();
  for (const condition of conditions) {
    const key = shapeOf(condition);
    const shape = shapes.get(key);
    if (shape) shape.conditions.push(condition);
    else shapes.set(key, { conditions: [condition] });
  }
  return [...shapes.values()];
}

/** A text with a letter for each condition of a shape. */
function shapeColumn({ conditions }: Shape): Sql {
  const [first, ...others] = conditions as [Compiled, ...Compiled[]];
  if (others.length === 0) return sql`(${new Sql(first.strings, first.values)}) is true`;
  const varying = first.values.flatMap((value, place) =>
    others.some((other) => other.values[place] !== value) && typeof value === 'string' ? [place] : [],
  );
  const parts = first.values.map((value, place) => (varying.includes(place) ? trusted(`p.v${place}`) : value));
  // Conditions that differ in spelling only have the same values as well.
  const isSame = sql`case when ${new Sql(first.strings, first.values)} then 't' else 'f' end`;
  if (varying.length === 0) return sql`repeat(${isSame}, ${trusted(String(conditions.length))})`;
  const columns = varying.map((place) => trusted(`v${place}`));
  const lists = varying.map((place) => sql`${conditions.map(({ values }) => values[place])}::text[]`);
  const holds = sql`case when ${new Sql(first.strings, parts)} then 't' else 'f' end`;
  return sql`(select string_agg(${holds}, '' order by p.number)
    from unnest(${join(lists, ', ')}) with ordinality as p(${join([...columns, trusted('number')], ', ')}))`;
}
