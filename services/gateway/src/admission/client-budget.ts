import { KeyedBudget, type BudgetKeys } from '@granary/shared/concurrency/keyed-budget';

/** Whom a request is counted for: the application that it is about, where that is known, and the client's address. */
export type ClientKeys = BudgetKeys<'app' | 'address'>;
export type ClientBudget = KeyedBudget<'app' | 'address'>;

export function clientKeys(appId: string | undefined, address: string): ClientKeys {
  return appId === undefined ? { address } : { app: appId, address };
}

/** The largest single thing that is held: an answer with its envelope. It must fit what one client may hold. */
const largestBytes = 33 * 1024 ** 2;
/** Bodies and answers that make progress are not evicted: a peer that is slow for less than this is not slow. */
const evictAfterIdleMs = 1_000;

export interface MemorySettings {
  BODY_BUDGET_BYTES: number;
  APP_BUDGET_PERCENT: number;
  CLIENT_BUDGET_PERCENT: number;
  SMALL_BODY_RESERVE_PERCENT: number;
}

/** The bytes of bodies and answers that the process holds, and the part of them that only small bodies may take. */
export interface RequestMemory {
  budget: ClientBudget;
  reserveBytes: number;
}

export function createRequestMemory(settings: MemorySettings): RequestMemory {
  const total = settings.BODY_BUDGET_BYTES;
  const part = (percent: number) => Math.floor((total * percent) / 100);
  const perKey = (percent: number) => Math.min(total, Math.max(part(percent), largestBytes));
  return {
    budget: new KeyedBudget({
      total,
      perKey: { app: perKey(settings.APP_BUDGET_PERCENT), address: perKey(settings.CLIENT_BUDGET_PERCENT) },
      evictAfterIdleMs,
    }),
    reserveBytes: part(settings.SMALL_BODY_RESERVE_PERCENT),
  };
}
