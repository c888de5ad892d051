import { append } from '@granary/shared/bus/outbox';
import { databaseTime } from '@granary/shared/postgres/clock';
import type { Step } from '@granary/shared/postgres/pipeline';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { int4Array, textArray } from '@granary/shared/postgres/wire/binary';
import type { App } from '../catalog/app';
import type { KeptRefusal } from '../writes/change-write';
import { errorText, keptErrorsMax, type Decision } from './decision';
import { findImports, type ImportState } from './import-state';
import { endEvent } from './import-task';

/** Whether an import is open at an offset and stays so until the transaction ends, for which it is locked. */
export async function isStillAt(tx: Connection, { ticketId, offset }: ImportState): Promise<boolean> {
  const current = await row<{ is_still: boolean }>(
    tx,
    sql`select status = 'open' and position = ${offset} as is_still from import where ticket_id = ${ticketId} for update`,
  );
  return current?.is_still === true;
}

/** The import behind a batch; `height` is that of the commit, where there was one. */
export const advanced = (state: ImportState, decision: Decision, height: bigint | undefined): ImportState => ({
  ...state,
  ...decision.to,
  written: state.written + decision.accepted.length,
  skipped: state.skipped + decision.skipped,
  failed: state.failed + decision.failed.length,
  height: height ?? state.height,
});

/**
 * The statements that move an import behind a batch and keep its errors, for a transaction that has locked it. The
 * first fails, by a division by zero, where the import is elsewhere after all.
 */
export function advancing(state: ImportState, decision: Decision, height: bigint | undefined): readonly Step[] {
  const next = advanced(state, decision, height);
  const update = sql`with moved as (
      update import set position = ${next.offset}, checksum = ${next.checksum}, lines = ${next.lines},
        reader_state_text = ${JSON.stringify(next.reader)}, written = ${next.written}, skipped = ${next.skipped},
        failed = ${next.failed}, height = ${next.height}, updated_at = now(), expires_at = now() + kept_for
      where ticket_id = ${state.ticketId} and position = ${state.offset} and status = 'open'
      returning 1)
    select 1 / count(*) from moved`;
  const errors = decision.failed.slice(0, Math.max(0, keptErrorsMax - state.failed));
  return errors.length === 0 ? [update] : [update, keepingErrors(state, errors.map(errorText))];
}

function keepingErrors({ ticketId, failed }: ImportState, texts: readonly string[]): Sql {
  const numbers = int4Array(texts.map((_, index) => failed + index));
  return sql`insert into import_error (ticket_id, number, error_text)
    select ${ticketId}, number, error_text from unnest(${numbers}::int4[], ${textArray(texts)}::text[]) as e (number, error_text)`;
}

/** Moves an import behind records of which none is written. False where it is elsewhere by now. */
export function advanceAlone(pool: Pool, state: ImportState, decision: Decision): Promise<boolean> {
  return retriedTransaction(pool, async (tx) => {
    if (!(await isStillAt(tx, state))) return false;
    for (const step of advancing(state, decision, undefined)) await execute(tx, step as Sql);
    return true;
  });
}

/** Ends an import where it is, with its task; fails it where there is an error. Returns it as it is then. */
export function endImport(pool: Pool, app: App, state: ImportState, error?: KeptRefusal): Promise<ImportState> {
  return retriedTransaction(pool, async (tx) => {
    if (await isStillAt(tx, state)) {
      const ended: ImportState = {
        ...state,
        status: error ? 'failed' : 'completed',
        error,
        updatedAt: await databaseTime(tx),
      };
      await keepEnd(tx, ended);
      await append(tx, [endEvent(app.appId, ended)]);
    }
    const [current] = await findImports(tx, sql`ticket_id = ${state.ticketId}`);
    return current ?? state;
  });
}

async function keepEnd(tx: Queryable, { ticketId, status, error, updatedAt }: ImportState): Promise<void> {
  await execute(
    tx,
    sql`update import set status = ${status}, error_text = ${error ? JSON.stringify(error) : null},
          updated_at = ${updatedAt}, expires_at = ${updatedAt}::timestamptz + kept_for
        where ticket_id = ${ticketId}`,
  );
}
