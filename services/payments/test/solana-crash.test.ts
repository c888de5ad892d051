import { ServiceError } from '@granary/shared/errors';
import { rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { Crashes, livingProcesses, MortalProcess, ProcessEnded } from './support/mortal-process';
import {
  amount,
  newSolanaCopy,
  newSolanaPayer,
  openSolanaPlace,
  solanaPayment,
  type SolanaPlace,
} from './support/solana-payments';

const crashesWanted = size({ run: 10, long: 10_000 });
const seed = seedOf('payments/solana-crash');
const random = seededRandom(seed);
const nodeFailureChance = 0.3;
const faults = ['lost', 'refused', 'answer lost'] as const;
const clients = 6;
jest.setTimeout(sizedLimitMs(limitMs(180_000)));

type Outcome = 'granted' | 'answer lost' | 'refused';

let place: SolanaPlace;
afterEach(() => place.stop());

test(`${crashesWanted} processes that end by the seed ${seed} while they settle on Solana, and a node that fails: of two payments from the same money one is settled, once, and only that one is granted, once at most`, async () => {
  place = await openSolanaPlace();
  const { chain, network, pool, payTo } = place;
  const crashes = new Crashes(crashesWanted, 0.02, random);
  const processes = livingProcesses(
    crashes,
    () => new MortalProcess(crashes, pool, network, (mortal, options) => newSolanaCopy(place, mortal, options)),
  );
  const offering = newSolanaCopy(place, network);
  const mayFail = () => {
    if (!crashes.areOver && random() < nodeFailureChance) {
      chain.fault = faults[Math.floor(random() * faults.length)]!;
    }
  };

  /** Sends a payment to any process, again and again, until the answer is definite. */
  const settle = async (request: Awaited<ReturnType<typeof solanaPayment>>, payer: string): Promise<Outcome> => {
    for (;;) {
      mayFail();
      try {
        const { payment } = await processes.any().payments.settle(request);
        if (!payment) continue;
        expect(await chain.balanceOf(payer)).toBe(0n);
        return 'granted';
      } catch (error) {
        if (error instanceof ProcessEnded) continue;
        if (!(error instanceof ServiceError)) throw error;
        const { reason } = error.details;
        if (reason === undefined || reason === 'settlement_unavailable') continue;
        // The answer that granted it was lost with its process.
        if (reason === 'payment_already_used') return 'answer lost';
        expect(['insufficient_funds', 'invalid_transaction_state']).toContain(reason);
        return 'refused';
      }
    }
  };
  let [pairs, granted] = [0, 0];
  /** Pays twice with money for one payment. */
  const payTwice = async (): Promise<void> => {
    const payer = await newSolanaPayer(place, amount);
    const requests = await Promise.all([1, 2].map(() => solanaPayment(place, offering, payer)));
    const outcomes = await Promise.all(requests.map((request) => settle(request, payer.address)));
    pairs += 1;
    granted += outcomes.filter((outcome) => outcome === 'granted').length;
    expect(outcomes.filter((outcome) => outcome !== 'refused')).toHaveLength(1);
  };
  const resume = () => processes.any().settler.resume(100, 100);
  const client = async (): Promise<void> => {
    do {
      await payTwice();
      await resume().catch(() => undefined);
      // What is paid after the last crash is granted.
    } while (!crashes.areOver || granted <= pairs / 4);
  };
  await Promise.all(Array.from({ length: clients }, client));
  const isOpen = sql`select 1 from claim where state in ('claimed', 'settling')`;
  await eventually(async () => {
    await resume();
    return (await rows(pool, isOpen)).length === 0;
  });
  await Promise.all([processes.stop(), offering.settler.stop()]);

  const states = await rows<{ state: string; count: bigint }>(
    pool,
    sql`select state, count(*) as count from claim where state <> 'refused' group by state`,
  );
  expect(states).toEqual([{ state: 'granted', count: BigInt(pairs) }]);
  expect(await chain.balanceOf(payTo)).toBe(amount * BigInt(pairs));
  expect(granted).toBeGreaterThan(pairs / 4);
  expect(granted).toBeLessThanOrEqual(pairs);
});
