import { LedgerBatches } from '@granary/finance/ledger/ledger-batches';
import { createLogger } from '@granary/shared/logger';
import { createPool } from '@granary/shared/postgres/pool';

/** What the test sends, and what it gets back once the result is definite. */
export interface Order {
  id: string;
  debitAccount: string;
  creditAccount: string;
  /** A text: messages between processes carry no bigint. */
  amount: string;
}
export interface Receipt {
  id: string;
  outcome: string;
}

/**
 * A process to be killed. It gets the URL of its database first, and then transfers, which it applies to the ledger
 * there.
 */
process.once('message', (url: string) => {
  const log = createLogger('test', 'silent');
  const pool = createPool({ url, size: 4, applicationName: 'ledger', log });
  const ledger = new LedgerBatches({ pool, log, retryMs: 120_000 });
  process.on('message', (orders: Order[]) => {
    for (const order of orders) void apply(ledger, order);
  });
});

async function apply(ledger: LedgerBatches, { id, debitAccount, creditAccount, amount }: Order): Promise<void> {
  const transfer = { id, debitAccount, creditAccount, amount: BigInt(amount), kind: 'spend', ref: '' };
  const [result] = await ledger.apply([{ type: 'transfer', ...transfer }]);
  const receipt: Receipt = { id, outcome: result!.outcome === 'refused' ? result!.reason : result!.outcome };
  process.send?.(receipt);
}
