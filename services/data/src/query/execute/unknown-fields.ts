import { nearestName, suggestion } from '@granary/shared/near-names';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import { pathsOf, type Condition, type Path } from '../language/condition';
import { isOperatorName, nearestOperator } from '../language/operators';
import { shortened } from '@granary/shared/shortened';
import { isIdPath, type Relation } from '../plan/relation';
import { valueIn } from '../sql/row-fields';

/** A field of a filter that nothing is known of: it may be misspelt. */
export interface FieldHint {
  code: 'UNKNOWN_FIELD';
  field: string;
  message: string;
}

/** Records that are looked into, and records that are passed over for those, at most. */
const sampleRows = 100;
const sampledRows = 1_000;
/** Larger records are not looked into: parsing a hundred of them would take long. */
const sampledMaxBytes = 64 * 1024;
/** Fields of one filter that hints are given for, and names that a field may have been meant to be. */
const hintsMax = 8;
const namesMax = 200;
/** Characters of a field in a hint. */
const fieldLengthMax = 200;

/**
 * A hint for each field of a filter that neither the schema nor an index nor a sample of the records has. The names of
 * fields that only records have are suggested where `mayName` says that the reader may see all of a record. One
 * statement at most, and none where the schema and the indexes know all fields.
 */
export async function hintUnknownFields(
  db: Queryable,
  source: Relation,
  find: Condition,
  mayName: boolean,
): Promise<FieldHint[]> {
  const paths = new Map(pathsOf(find).map((path) => [path.join('.'), path]));
  const unknown = [...paths.values()].filter((path) => !isKnown(source, path)).slice(0, hintsMax);
  if (unknown.length === 0) return [];
  const sample = await readSample(db, source, unknown);
  return sample.flatMap(({ isPresent, names }, index) => {
    const path = unknown[index]!;
    return isPresent ? [] : [hintOf(source, path, mayName ? names : [])];
  });
}

/** Whether the schema or an index has a field, or one inside of it. */
function isKnown(source: Relation, path: Path): boolean {
  const name = path.join('.');
  return isIdPath(source, path) || source.fieldNames.some((known) => known === name || known.startsWith(`${name}.`));
}

interface SampledField {
  isPresent: boolean;
  /** The members of the objects that the field would be one of. */
  names: readonly string[];
}

/** Looks for fields in a sample of the records. The answer is empty where there are no records. */
async function readSample(db: Queryable, source: Relation, paths: readonly Path[]): Promise<SampledField[]> {
  const { row: alias } = source.alias;
  const visible = source.visible === empty ? sql`true` : source.visible;
  const fields = paths.map((path): Sql => {
    const parent = path.length === 1 ? sql`s.j` : valueIn(sql`s.j`, path.slice(0, -1));
    return sql`json_build_object(
      'isPresent', (select coalesce(bool_or(${valueIn(sql`s.j`, path)} is not null), false) from sample s),
      'names', array(select distinct m.name from sample s cross join lateral jsonb_object_keys(
        case when jsonb_typeof(${parent}) = 'object' then ${parent} else '{}'::jsonb end) m(name)
        order by m.name limit ${namesMax}))`;
  });
  const sample = await row<{ fields: string }>(
    db,
    sql`with sample as materialized (
          select b.body::jsonb as j from (
            select ${alias}.body, ${visible} as counts from ${source.table} limit ${sampledRows}
          ) b where b.counts and octet_length(b.body) <= ${sampledMaxBytes} limit ${sampleRows}
        )
        select json_build_array(${join(fields, ', ')})::text as fields where exists (select from sample)`,
  );
  return sample ? (JSON.parse(sample.fields) as SampledField[]) : [];
}

function hintOf(source: Relation, path: Path, names: readonly string[]): FieldHint {
  const field = shortened(path.join('.'), fieldLengthMax);
  const parent = path.slice(0, -1).join('.');
  const inParent = parent === '' ? names : names.map((name) => `${parent}.${name}`);
  const nearField = nearestName(path.join('.'), [...source.fieldNames, ...inParent]);
  const near = nearField === undefined ? suffixNear(path) : shortened(nearField, fieldLengthMax);
  const where = `the schema, the indexes and ${sampleRows} records that were looked into`;
  return { code: 'UNKNOWN_FIELD', field, message: `${field} is in none of ${where}${suggestion(near)}` };
}

/** The path with its last step as an operator, where that may be meant: `minutes.$gte` for `minutes.gte`. */
function suffixNear(path: Path): string | undefined {
  const last = path.at(-1)!;
  const operator = isOperatorName(last) ? last : nearestOperator(last);
  if (path.length === 1 || operator === undefined) return undefined;
  const suffix = operator.startsWith('$') ? operator : `$${operator}`;
  return `${shortened(path.slice(0, -1).join('.'), fieldLengthMax)}.${suffix}`;
}
