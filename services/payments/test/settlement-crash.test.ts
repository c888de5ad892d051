import { randomBytes, randomUUID } from 'node:crypto';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { ServiceError } from '@granary/shared/errors';
import type { ApplyRequest } from '@granary/shared/gen/granary/finance/v1/ApplyRequest';
import { createLogger } from '@granary/shared/logger';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import { newPayer, version2, type Requirement } from '@granary/testing/x402-client';
import type { SettlementNetwork } from '../src/networks/settlement-network';
import { requirementText, validSeconds } from '../src/quotes/offer';
import { offersFor } from '../src/quotes/offers';
import { setRates, storedRates } from '../src/quotes/rates';
import { assetKeyOf } from '../src/schemes/evm/assets';
import { Claims } from '../src/settlement/claims';
import { creditIncome } from '../src/settlement/income';
import { RequestPayments } from '../src/settlement/payments';
import { checkSettlement } from '../src/settlement/observe-settlement';
import { Settler } from '../src/settlement/settler';
import { SimulatedEvm } from '../src/schemes/simulated/network';
import { simulatedAddress, simulatedAsset } from '../src/schemes/simulated/token';
import { Verifier } from '../src/verify/verifier';
import { fixedQuoteKeys } from './support/quote-keys';
import { openPaymentsPool } from './support/payments-pool';
import { EvmExact } from '../src/schemes/evm/verify';
import { evmMethods } from '../src/schemes/evm/methods';

const crashesWanted = size({ run: 200, long: 50_000 });
const seed = seedOf('payments/settlement-crash');
const random = seededRandom(seed);
const crashChance = 0.1;
const clients = 8;
const ownedMs = 60;
const amountUtia = 1_001n;
const now = () => new Date();
const log = createLogger('settlement-test', 'silent');

let pool: Pool;
let offers: Parameters<typeof offersFor>[0];
const verifier = new Verifier([new EvmExact([simulatedAsset])], now);
beforeAll(async () => {
  pool = await openPaymentsPool(8);
  await setRates(pool, new Map([[assetKeyOf(simulatedAsset), 1_000_000n]]));
  const methods = evmMethods([{ network: playMoneyNetwork, address: simulatedAddress }], [simulatedAsset]);
  const rates = storedRates(pool, validSeconds);
  const networks = new Map([[playMoneyNetwork, { isOpen: () => true }]]);
  offers = { keys: fixedQuoteKeys(), methods: () => methods, rates, networks, APP_SHARE_PERCENT: 80, now };
});
afterAll(() => pool.end());

/** A ledger that applies each id once, and whose answers may be lost. */
class Ledger {
  readonly amounts = new Map<string, bigint>();
  private readonly applied = new Set<string>();

  apply({ groups }: Pick<ApplyRequest, 'groups'>) {
    for (const { id, transfer } of groups.flatMap(({ commands }) => commands)) {
      if (this.applied.has(id)) continue;
      this.applied.add(id);
      const { creditAccount, amount } = transfer!;
      this.amounts.set(creditAccount, (this.amounts.get(creditAccount) ?? 0n) + BigInt(amount));
    }
    return Promise.resolve({
      groups: groups.map(({ commands }) => ({
        results: commands.map(() => ({ outcome: 'applied' as const, reason: '', amount: '0' })),
      })),
    });
  }
}

/** Where writes are done under the tickets of their payments: again under the same one, nothing more is written. */
class Store {
  readonly written = new Set<string>();

  write(ticket: string): Promise<void> {
    this.written.add(ticket);
    return Promise.resolve();
  }
}

class ProcessEnded extends Error {
  override message = 'this process has ended';
}

let crashes = 0;

/**
 * A process of the service: any of its calls to the database, the network, the ledger and the store may be its last,
 * before or after it had its effect.
 */
class Copy {
  isDead = false;
  readonly payments: RequestPayments;
  private readonly settler: Settler;
  private readonly claims: Claims;

  constructor(
    private readonly ledger: Ledger,
    private readonly store: Store,
    private readonly chance: () => number,
    waitMs = 200,
  ) {
    this.claims = this.mortal(new Claims(pool, randomUUID(), ownedMs));
    const network: SettlementNetwork = this.mortal(new SimulatedEvm(pool, now));
    const networks = new Map([[playMoneyNetwork, network]]);
    this.settler = new Settler({ claims: this.claims, networks, log, now });
    this.payments = new RequestPayments({
      presented: { offers, verifier },
      claims: this.claims,
      settler: this.settler,
      X402_SETTLE_WAIT_MS: waitMs,
      now,
    });
  }

  async resume(): Promise<void> {
    await this.settler.resume(100, 100);
    while ((await creditIncome({ claims: this.claims, ledger: () => this.mortal(this.ledger), log })) > 0);
  }

  /** Does what an upfront payment has paid for, and says so. */
  async write(ticketId: string): Promise<void> {
    await this.mortal(this.store).write(ticketId);
    await this.payments.redeem(ticketId);
  }

  end(): Promise<void> {
    this.isDead = true;
    return this.settler.stop();
  }

  private mortal<T extends object>(target: T): T {
    return new Proxy(target, {
      get: (object, name) => {
        const value: unknown = Reflect.get(object, name);
        if (typeof value !== 'function') return value;
        return async (...given: unknown[]) => {
          this.mayDie();
          const result: unknown = await (value as (...all: unknown[]) => Promise<unknown>).apply(object, given);
          this.mayDie();
          return result;
        };
      },
    });
  }

  private mayDie(): void {
    if (!this.isDead && random() < this.chance()) {
      this.isDead = true;
      crashes += 1;
      void this.settler.stop();
    }
    if (this.isDead) throw new ProcessEnded();
  }
}

async function newRequest(isUpfront: boolean) {
  // Each has an account of its own, which has enough.
  const payer = await newPayer();
  const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia: amountUtia.toString(), isUpfront };
  const [offer] = await offersFor(offers, purchase);
  const requirement = JSON.parse(requirementText(2, offer!)) as Requirement;
  const payment = await version2(payer, requirement);
  const { nonce } = payment.payload.authorization;
  return { nonce, request: { purchase, identifier: '', paymentJson: Buffer.from(JSON.stringify(payment)) } };
}

const transferred = async (nonce: string): Promise<number> =>
  (await rows(pool, sql`select 1 from simulated_evm_transfer where nonce = ${nonce}`)).length;

test(`${crashesWanted} processes that end at any step, by the seed ${seed}: each payment is settled once, credited once, and granted once at most and only then; each paid write is done under one ticket`, async () => {
  const [ledger, store] = [new Ledger(), new Store()];
  const chance = () => (crashes < crashesWanted ? crashChance : 0);
  const newCopy = () => new Copy(ledger, store, chance);
  const copies = [newCopy(), newCopy()];
  const living = (): Copy => {
    const at = Math.floor(random() * copies.length);
    if (copies[at]!.isDead) copies[at] = newCopy();
    return copies[at]!;
  };
  const nonces: string[] = [];
  let [reads, grants, writes] = [0, 0, 0];
  /** Sends a payment again and again, to any process, until the answer is definite. */
  const repeat = async (attempt: () => Promise<boolean>): Promise<void> => {
    for (;;) {
      try {
        if (await attempt()) return;
      } catch (error) {
        if (!(error instanceof ProcessEnded)) throw error;
      }
    }
  };

  const payRead = async (): Promise<void> => {
    const { nonce, request } = await newRequest(false);
    nonces.push(nonce);
    reads += 1;
    const attempt = async () => {
      const { payment } = await living().payments.settle(request);
      if (!payment) return false;
      expect(await transferred(nonce)).toBe(1);
      grants += 1;
      // Once more it is worth nothing.
      await expect(living().payments.settle(request)).rejects.toThrow(/used before|has ended/);
      return true;
    };
    // The answer that granted it was lost with its process.
    await repeat(attempt).catch((error: unknown) => {
      if (!(error instanceof ServiceError)) throw error;
      expect(error.details['reason']).toBe('payment_already_used');
    });
  };
  const payWrite = async (): Promise<void> => {
    const { nonce, request } = await newRequest(true);
    nonces.push(nonce);
    await repeat(async () => {
      const { payment, ticketId } = await living().payments.settle(request);
      if (!payment) return false;
      expect(await transferred(nonce)).toBe(1);
      await living().write(ticketId);
      return true;
    });
    writes += 1;
  };
  const client = async (): Promise<void> => {
    do {
      await (random() < 0.5 ? payRead() : payWrite());
      await living()
        .resume()
        .catch(() => undefined);
      // What is paid after the last crash is granted.
    } while (crashes < crashesWanted || grants <= reads / 4);
  };
  await Promise.all(Array.from({ length: clients }, client));
  await eventually(async () => {
    await living().resume();
    return (await rows(pool, sql`select 1 from claim where credited_at is null`)).length === 0;
  });
  await Promise.all(copies.map((copy) => copy.end()));
  expect(await checkSettlement(pool, () => Promise.resolve(''))).toEqual({ status: 'HEALTHY' });
  const late = sql`update claim set credited_at = null, settled_at = now() - interval '11 minutes' where id = (select min(id::text)::uuid from claim)`;
  await execute(pool, late);
  expect(await checkSettlement(pool, () => Promise.resolve(''))).toMatchObject({
    status: 'DEGRADED',
    message: expect.stringContaining(': 1') as string,
  });

  const claims = await rows<{ state: string; transfers: bigint }>(
    pool,
    sql`select state, (select count(*) from simulated_evm_transfer where hash = transaction_hash) as transfers from claim`,
  );
  expect(claims).toEqual(nonces.map(() => ({ state: 'granted', transfers: 1n })));
  expect((await rows(pool, sql`select 1 from simulated_evm_transfer`)).length).toBe(nonces.length);
  expect(grants).toBeGreaterThan(reads / 4);
  expect(grants).toBeLessThanOrEqual(reads);
  expect([store.written.size, reads + writes]).toEqual([writes, nonces.length]);
  const paid = await rows<{ ticket: string }>(pool, sql`select ticket_id as ticket from claim`);
  expect(paid.map(({ ticket }) => ticket)).toEqual(expect.arrayContaining([...store.written]));
  const count = BigInt(nonces.length);
  expect(Object.fromEntries(ledger.amounts)).toEqual({
    'app:films': count * 800n,
    'platform:fees': count * 201n,
    [`asset:${assetKeyOf(simulatedAsset)}`]: count * amountUtia,
  });
});

test('what nobody waits for any more is settled and not granted, and the same request goes on', async () => {
  const copy = new Copy(new Ledger(), new Store(), () => 0, limitMs(60_000));
  const { nonce, request } = await newRequest(false);
  const gone = new Cancellation();
  gone.abort();
  await expect(copy.payments.settle(request, gone)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  await eventually(async () => (await transferred(nonce)) === 1);
  expect((await copy.payments.settle(request)).payment).toBeDefined();
  await copy.end();
});
