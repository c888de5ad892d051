import { join, named, sql, Sql } from '@granary/shared/postgres/sql';
import type { Connection } from '@granary/shared/postgres/pool';
import { alternativePlan, type PagePlan } from '../../src/query/plan/page-plan';
import { indexRead } from '../../src/query/sql/index-scan-sql';
import { pageStatement } from '../../src/query/sql/page-sql';

/**
 * The ids of the page of each plan. The statement of each is what the service would send, with other numbers of
 * parameters: many of them are parts of one statement. As there, the alternative of a plan is read where its rows show
 * that it cannot give the page. Texts of documents begin with their ids.
 */
export async function idsOfPages(connection: Connection, plans: readonly PagePlan[]): Promise<string[][]> {
  const columns = plans.map((plan, at) => sql`(${idsOf(plan)}) as ${named('r', BigInt(at))}`);
  const { text, values } = sql`select ${join(columns, ', ')}`.compile();
  const { rows } = await connection.query<Record<string, string | null>>(text, values);
  const found = plans.map((_, at) => rows[0]![`r${at}`]);
  const repeated = plans.flatMap((plan, at) => (found[at] === null ? [{ at, plan: alternativePlan(plan)! }] : []));
  const pages = found.map((ids) => (ids ? ids.split(',') : []));
  if (repeated.length > 0) {
    const others = await idsOfPages(
      connection,
      repeated.map(({ plan }) => plan),
    );
    repeated.forEach(({ at }, number) => (pages[at] = others[number]!));
  }
  return pages;
}

/** The ids in one text; null where the plan cannot give the page. */
function idsOf(plan: PagePlan): Sql {
  const read = indexRead(plan);
  const ids = sql`coalesce(string_agg(split_part(p.body, '"', 4), ','), '')`;
  if (read)
    return sql`select case when bool_or(p.body is null) then null else ${ids} end
    from (${embedded(read)}) p (body)`;
  if (plan.access.method !== 'index_order') return sql`select ${ids} from (${pageStatement(plan)}) p`;
  return sql`select case when bool_or(p.truncated) then null else ${ids} end from (${pageStatement(plan)}) p`;
}

/** A statement with its own `$n`, as a part of another. */
function embedded({ text, values }: NonNullable<ReturnType<typeof indexRead>>): Sql {
  const pieces = text.split(/\$(\d+)/);
  const texts = pieces.filter((_, at) => at % 2 === 0);
  return new Sql(
    texts,
    pieces.filter((_, at) => at % 2 === 1).map((number) => values[Number(number) - 1]),
  );
}
