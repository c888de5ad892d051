import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import type { PagePlan } from '../plan/page-plan';
import { indexRead, indexReadSettings } from '../sql/index-scan-sql';
import { pageTextStatement } from './read-page';

/** Planning a statement takes milliseconds; with many conditions, some hundred. */
const explainTimeoutMs = 5_000;

/** A node of a plan, as EXPLAIN (FORMAT JSON) prints it; of its members those that are used. */
export interface PostgresNode {
  'Node Type': string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'Scan Direction'?: string;
  'Startup Cost': number;
  'Total Cost': number;
  'Plan Rows': number;
  Plans?: PostgresNode[];
}

/**
 * The plans that Postgres chooses for the statement of a page: by itself, and where it may not read the whole table.
 */
export interface ExplainedPage {
  chosen: PostgresNode;
  withoutScan: PostgresNode;
}

/** Explains the statement that would run for a page, on the settings that it would run on, without running it. */
export function explainPage(pool: Pool, plan: PagePlan): Promise<ExplainedPage> {
  const read = indexRead(plan);
  const explain = async (tx: Connection): Promise<PostgresNode> => {
    // Index reads are planned once for all values; other statements for the values that they have.
    // For a scan, the statement that reads all rows is explained.
    const whole: PagePlan = plan.scan?.kind === 'head' ? { ...plan, scan: { kind: 'whole' } } : plan;
    const { text, values } = read ?? pageTextStatement(whole).compile();
    const answer = read
      ? await tx.query<ExplainRow>(`explain (format json, generic_plan) ${text}`)
      : await tx.query<ExplainRow>(`explain (format json) ${text}`, values);
    // JSON comes as text.
    const [{ Plan: root }] = JSON.parse(answer.rows[0]!['QUERY PLAN']) as [{ Plan: PostgresNode }];
    return root;
  };
  return transaction(
    pool,
    async (tx) => {
      if (read) for (const [name, value] of Object.entries(indexReadSettings)) await setLocal(tx, name, value);
      const chosen = await explain(tx);
      await setLocal(tx, 'enable_seqscan', 'off');
      return { chosen, withoutScan: await explain(tx) };
    },
    { readOnly: true, statementTimeoutMs: explainTimeoutMs },
  );
}

interface ExplainRow {
  'QUERY PLAN': string;
}

const setLocal = (tx: Connection, name: string, value: string) =>
  tx.query('select set_config($1, $2, true)', [name, value]);
