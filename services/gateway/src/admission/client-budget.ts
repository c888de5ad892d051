import { KeyedBudget, type BudgetKeys } from '@granary/shared/concurrency/keyed-budget';

/** The keys whose limits a request counts against: its application, if known, and the address of the client. */
export type ClientKeys = BudgetKeys<'app' | 'address'>;
export type ClientBudget = KeyedBudget<'app' | 'address'>;

export function clientKeys(appId: string | undefined, address: string): ClientKeys {
  return appId === undefined ? { address } : { app: appId, address };
}

/** The largest single item: an answer with its envelope. It must fit the limit of one client. */
const largestBytes = 33 * 1024 ** 2;
/** Bodies and answers that have made progress within this time are not evicted. */
const evictAfterIdleMs = 1_000;

export interface MemorySettings {
  BODY_BUDGET_BYTES: number;
  APP_BUDGET_PERCENT: number;
  CLIENT_BUDGET_PERCENT: number;
  SMALL_BODY_RESERVE_PERCENT: number;
}

/** The budget of bytes for bodies and answers, and the part of it that only small bodies may use. */
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
