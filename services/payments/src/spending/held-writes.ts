import { forEachConcurrently } from '@granary/shared/concurrency/for-each';
import { isUnavailable } from '@granary/shared/errors';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Hold } from '@granary/shared/gen/granary/finance/v1/Hold';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import { newDocumentId } from '@granary/shared/ids';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { causeTime } from '@granary/shared/money/transfer-id';
import { postOf, voidOf } from './hold-endings';

/**
 * How long the hold for a write stays after the write should have ended, for it to become known whether it was done:
 * longer than data or the ledger should ever be away. What is not known by then is released.
 */
const unresolvedMs = 30 * 86_400_000;
/** Holds of one page, of writes with up to three. */
const pageMax = 600;
/** Writes that are asked about at a time. */
const concurrency = 8;
const callTimeoutMs = 10_000;

const refPrefix = 'write ';
/** The `ref` of the holds for a write in the ledger, which stores nothing else of the write. */
export const refOfWrite = (ticketId: string): string => `${refPrefix}${ticketId}`;

/** The time at which the hold for a write expires, where the write should have ended at `dueMs`. */
export const writeHoldExpiry = (dueMs: number): number => dueMs + unresolvedMs;

export interface HeldWritesOptions {
  ledger: () => Pick<Client<LedgerDefinition>, 'apply' | 'listHolds'>;
  data: () => Pick<Client<DataDefinition>, 'closeWrite'>;
  now: () => Date;
}

/** Ends the holds for writes whose gateways did not, every few seconds, in one process of the service at a time. */
export function startResolvingWrites(options: HeldWritesOptions & { pool: Pool; log: Logger; everyMs: number }): {
  stop(): Promise<void>;
} {
  const { pool, log, everyMs } = options;
  return startScheduledTask({
    pool,
    log,
    name: 'writes of unknown outcome',
    everyMs,
    run: (stopping) =>
      resolveWrites(options, stopping).catch((error: unknown) => {
        if (!isUnavailable(error)) throw error;
        // This is usual at each start, because finance and data start later; health reports a service that stays away.
        log.debug({ err: error }, 'finance or data cannot be reached: writes of unknown outcome are resolved later');
      }),
  });
}

/**
 * Ends the holds for writes that should have ended by now: moves what is held for a write that was done, and releases
 * it where the write is closed now. Each step is repeatable, and harmless beside another process that ends the same
 * hold, because the answer of data is final. Rejects with the first error, after all writes.
 */
async function resolveWrites(options: HeldWritesOptions, stopping: AbortSignal): Promise<void> {
  const errors: unknown[] = [];
  for await (const holds of dueHolds(options)) {
    await forEachConcurrently(concurrency, holds, async (ofWrite) => {
      if (!stopping.aborted) await resolveWrite(options, ofWrite).catch((error: unknown) => void errors.push(error));
    });
    if (stopping.aborted) return;
  }
  if (errors.length > 0) throw errors[0];
}

/** Pages of holds, those of a write together. */
async function* dueHolds({ ledger, now }: HeldWritesOptions): AsyncGenerator<Hold[][], void, undefined> {
  const expireByMs = String(writeHoldExpiry(now().getTime()));
  for (let after: Pick<Hold, 'expiresAtMs' | 'ref'> | undefined = { expiresAtMs: '0', ref: '' }; after !== undefined;) {
    const { expiresAtMs: afterExpiresAtMs, ref: afterRef } = after;
    const request = { refPrefix, expireByMs, afterExpiresAtMs, afterRef, limit: pageMax };
    const { holds } = await ledger().listHolds(request, newCall(newDocumentId(), callTimeoutMs));
    const writes = byRef(holds);
    const isFull = holds.length === pageMax;
    // A full page may end inside the holds of one write, so that write is left for the next page.
    if (isFull) writes.pop();
    after = isFull ? writes.at(-1)?.[0] : undefined;
    yield writes;
  }
}

/** Holds of one `ref`, which stand side by side. */
function byRef(holds: readonly Hold[]): Hold[][] {
  const groups: Hold[][] = [];
  for (const hold of holds) {
    const last = groups.at(-1);
    if (last?.[0]!.ref === hold.ref) last.push(hold);
    else groups.push([hold]);
  }
  return groups;
}

async function resolveWrite({ ledger, data }: HeldWritesOptions, holds: readonly Hold[]): Promise<void> {
  const call = () => newCall(newDocumentId(), callTimeoutMs);
  const { committed } = await data().closeWrite({ ticketId: holds[0]!.ref.slice(refPrefix.length) }, call());
  const commands = holds.map(({ id, kind, amount }) =>
    committed ? postOf(kind, id, causeTime(id), BigInt(amount)) : voidOf(kind, id, causeTime(id)),
  );
  // Refused only where somebody else has ended it.
  await ledger().apply({ groups: [{ commands }] }, call());
}
