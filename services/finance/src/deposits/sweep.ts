import { execute, row, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { deliver, type Purpose } from '../outgoing/delivery';
import type { OutgoingTransaction } from '../outgoing/outgoing-transaction';
import { signNext, transferFee, type SigningOptions } from '../outgoing/sign-next';

/** An address is swept when it has this many times the fee. */
const feesWorth = 20n;
/** Addresses that one round sweeps. */
const addressesMax = 100;

export interface SweepOptions extends SigningOptions {
  /** The address of the hot wallet. */
  hotWallet: string;
}

interface Unswept {
  address: string;
  index: number;
}

/** What is not swept is known from the deposits, so the ledger needs nothing but the fee. */
const sweepPurpose: Purpose = {
  broadcast: async () => {},
  held: async () => {},
  expired: (tx, outgoing) => forget(tx, outgoing),
  included: async (tx, outgoing, code) => {
    const taken =
      code === 0
        ? sql`(select amount from sweep where transaction_number = ${outgoing.number})`
        : sql`${outgoing.fee}::bigint`;
    await execute(tx, sql`update unswept set amount = amount - ${taken} where address = ${outgoing.sender}`);
    return [];
  },
};

const forget = async (tx: Connection, { number }: OutgoingTransaction): Promise<void> => {
  await execute(tx, sql`delete from sweep where transaction_number = ${number}`);
};

/** Makes the next step of each address of a wallet that has something to be sent to the hot wallet. */
export async function advanceSweeps(options: SweepOptions): Promise<void> {
  const minimum = transferFee(1, options.gasPrice) * feesWorth;
  const found = await rows<Unswept>(
    options.pool,
    sql`select address, address_index as index from unswept
        where amount >= ${minimum < 1n ? 1n : minimum} order by amount desc limit ${addressesMax}`,
  );
  for (const { address, index } of found) {
    const step = await deliver({ ...options, purpose: sweepPurpose }, address);
    if (step === 'idle') await signSweep(options, { address, index });
  }
}

function signSweep(options: SweepOptions, { address, index }: Unswept): Promise<boolean> {
  const { hotWallet, gasPrice } = options;
  return signNext(options, { address, key: { wallet: index } }, async (tx, balance) => {
    const unswept = await row<{ amount: bigint }>(tx, sql`select amount from unswept where address = ${address}`);
    const amount = unswept!.amount;
    const sent = amount - transferFee(1, gasPrice);
    if (sent <= 0n || balance < amount) return undefined;
    return {
      outputs: [{ address: hotWallet, amount: sent }],
      stored: async (inTransaction, number) => {
        await execute(inTransaction, sql`insert into sweep (transaction_number, amount) values (${number}, ${amount})`);
      },
    };
  });
}
