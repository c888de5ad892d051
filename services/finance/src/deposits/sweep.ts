import { execute, row, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { deliver, type Purpose } from '../outgoing/delivery';
import type { OutgoingTransaction } from '../outgoing/outgoing-transaction';
import { signNext, transferFee, type SigningOptions } from '../outgoing/sign-next';

/** An address is swept when it has this many times the fee. */
const feesWorth = 20n;
/** Addresses that one round sweeps. */
const addressesMax = 100;
/** So many addresses one after the other whose steps fail end a round. */
const failuresInRowMax = 3;

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

/** Sends what is in the addresses of wallets to the hot wallet, one step of each address at a time. */
export class Sweeps {
  /** The address of the last step. */
  private last = '';

  constructor(private readonly options: SweepOptions) {}

  /**
   * Makes the next step of up to `addressesMax` addresses, in their order from where the last round ended, so that each gets
   * its turn. An address whose step fails does not keep others from theirs; failures in a row end the round, for then it is
   * the node or the database. Throws the first failure at the end.
   */
  async advance(): Promise<void> {
    const failures: unknown[] = [];
    let inRow = 0;
    for (const unswept of await this.next()) {
      this.last = unswept.address;
      try {
        await this.step(unswept);
        inRow = 0;
      } catch (error) {
        failures.push(error);
        inRow += 1;
        if (inRow >= failuresInRowMax) break;
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  private next(): Promise<Unswept[]> {
    const { pool, gasPrice } = this.options;
    const minimum = transferFee(1, gasPrice) * feesWorth;
    return rows<Unswept>(
      pool,
      sql`select address, address_index as index from unswept
          where amount >= ${minimum < 1n ? 1n : minimum} order by address <= ${this.last}, address limit ${addressesMax}`,
    );
  }

  private async step(unswept: Unswept): Promise<void> {
    const step = await deliver({ ...this.options, purpose: sweepPurpose }, unswept.address);
    if (step === 'idle') await signSweep(this.options, unswept);
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
