import { execute, row, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { deliver, type Purpose } from '../outgoing/delivery';
import { stopSender, type OutgoingTransaction } from '../outgoing/outgoing-transaction';
import { signNext, transferFee, type SigningOptions } from '../outgoing/sign-next';

/** An address is swept when it has this many times the fee. */
const feesWorth = 20n;
/** Addresses that one round sweeps. */
const addressesMax = 100;
/** A round ends after this many failed addresses in a row. */
const failuresInRowMax = 3;

export interface SweepOptions extends SigningOptions {
  /** The address of the hot wallet. */
  hotWallet: string;
}

interface Unswept {
  address: string;
  index: number;
}

/**
 * What is not swept is known from the deposits, so the ledger needs nothing but the fee. After a failure nothing is
 * signed until a person resumes: each further one would cost a fee, until as good as nothing is left at the address.
 */
export const sweepPurpose: Purpose = {
  broadcast: async () => {},
  held: async () => {},
  expired: (tx, outgoing) => forget(tx, outgoing),
  included: async (tx, outgoing, { code }) => {
    if (code !== 0) await stopSender(tx, outgoing.sender, `a sweep has failed on the chain with code ${code}`);
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
   * Makes the next step of up to `addressesMax` addresses, in their order from where the last round ended, so that each
   * gets its turn. An address whose step fails does not keep others from theirs; failures in a row end the round, for
   * then it is the node or the database. Throws the first failure at the end.
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
    return rows<Unswept>(this.options.pool, unsweptAfter(this.last, minimumOf(this.options)));
  }

  private async step(unswept: Unswept): Promise<void> {
    const delivery = { ...this.options, purpose: sweepPurpose };
    if ((await deliver(delivery, unswept.address)) !== 'idle') return;
    // Sent at once: where there are many addresses, the timeout height passes before the next step of this one.
    if (await signSweep(this.options, unswept)) await deliver(delivery, unswept.address);
  }
}

/**
 * The next addresses to be swept, in their order from after `last` on, then from the first one on; at most
 * `addressesMax`. Each part is read from an index in its order, so that a round costs the same however many addresses
 * there are. The address of a transaction that is in flight gets its turn whatever is left there and whatever a fee is
 * by now.
 */
export function unsweptAfter(last: string, minimum: bigint): Sql {
  const part = (where: Sql): Sql => sql`(
    select address, address_index as index from unswept
    where amount > 0 and amount >= ${minimum} and ${where} and not exists (
      select from chain_sender where chain_sender.address = unswept.address and stopped_because is not null)
    order by address limit ${addressesMax})`;
  return sql`select address, index from (
      ${part(sql`address > ${last}`)} union ${part(sql`address <= ${last}`)}
      union
      select address, address_index from outgoing_transaction join unswept on address = sender
      where state in ('signed', 'broadcast', 'held')
    ) unswept
    order by address <= ${last}, address limit ${addressesMax}`;
}

function minimumOf({ gasPrice }: SweepOptions): bigint {
  const minimum = transferFee(1, gasPrice) * feesWorth;
  return minimum < 1n ? 1n : minimum;
}

function signSweep(options: SweepOptions, { address, index }: Unswept): Promise<boolean> {
  const { hotWallet, gasPrice } = options;
  return signNext(options, { address, key: { wallet: index } }, async (tx, balance) => {
    const unswept = await row<{ amount: bigint }>(tx, sql`select amount from unswept where address = ${address}`);
    const amount = unswept!.amount;
    // Another process may have swept it meanwhile.
    if (amount < minimumOf(options) || balance < amount) return undefined;
    return {
      outputs: [{ address: hotWallet, amount: amount - transferFee(1, gasPrice) }],
      stored: async (inTransaction, number) => {
        await execute(inTransaction, sql`insert into sweep (transaction_number, amount) values (${number}, ${amount})`);
      },
    };
  });
}
