import { ServiceError } from '@granary/shared/errors';
import { rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { EvmNetwork } from '../src/schemes/evm/network';
import { describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import {
  amount,
  counted,
  newCopy,
  newNetwork,
  newPayment,
  noncesIn,
  openNetwork,
  openPlace,
  usesOf,
  type Copy,
  type Place,
} from './support/evm-payments';
import { Crashes, livingProcesses, MortalProcess, ProcessEnded } from './support/mortal-process';

const crashesWanted = size({ run: 30, long: 10_000 });
const seed = seedOf('payments/evm-crash');
const nodeFailureChance = 0.03;
const clients = 6;

describeWithAnvil(describe)('processes that end while they settle on an EVM network', () => {
  let place: Place;
  afterEach(() => place.stop());

  test(`${crashesWanted} of them by the seed ${seed}, and a node that is cut: each payment is moved once, granted once at most and only then, and nonces have no gap`, async () => {
    place = await openPlace();
    const { anvil, pool, proxy, key } = place;
    const random = seededRandom(seed);
    const crashes = new Crashes(crashesWanted, 0.08, random);
    const cut = () => !crashes.areOver && random() < nodeFailureChance;
    const network = await openNetwork(place, { depthBlocks: 1n });
    proxy.failsBefore = cut;
    proxy.failsAfter = cut;
    // Each process has its own network, because a network remembers which funds of a payer it is about to spend.
    const networks = new Map<Copy, EvmNetwork>();
    const newProcess = (): MortalProcess => {
      const ofProcess = newNetwork(place, { depthBlocks: 1n });
      const mortal = new MortalProcess(crashes, pool, ofProcess, (part, options) => newCopy(place, part, options));
      networks.set(mortal.copy, ofProcess);
      return mortal;
    };
    const processes = livingProcesses(crashes, newProcess);
    const living = processes.any;
    const watch = (copy: Copy): Promise<void> => networks.get(copy)!.watch();
    const nonces: string[] = [];
    let grants = 0;
    let minting = Promise.resolve<unknown>(undefined);

    const pay = async (): Promise<void> => {
      const made = minting.then(() => newPayment(place, newCopy(place, network)));
      minting = made;
      const { request, payload } = await made;
      const { nonce } = payload.authorization;
      nonces.push(nonce);
      for (;;) {
        const copy = living();
        try {
          const { payment } = await copy.payments.settle(request);
          if (!payment) continue;
          expect(await usesOf(anvil, nonce)).toBe(1);
          grants += 1;
          return;
        } catch (error) {
          if (error instanceof ProcessEnded) continue;
          if (!(error instanceof ServiceError)) throw error;
          const { reason } = error.details;
          // The node was cut, or the process has just begun.
          if (reason === undefined || reason === 'settlement_unavailable') {
            await watch(copy);
            continue;
          }
          // The answer that granted it was lost with its process.
          expect(reason).toBe('payment_already_used');
          return;
        }
      }
    };
    const client = async (): Promise<void> => {
      do {
        await pay();
        const copy = living();
        await copy.settler.resume(100, 100).catch(() => undefined);
        await Promise.all([watch(copy), network.watch(), network.keepNonces().catch(() => undefined), anvil.mine()]);
        // What is paid after the last crash is granted.
      } while (!crashes.areOver || grants <= nonces.length / 4);
    };
    await Promise.all(Array.from({ length: clients }, client));
    await eventually(async () => {
      const { settler } = living();
      await settler.resume(100, 100);
      await network.keepNonces();
      await anvil.mine();
      const open = await rows(pool, sql`select 1 from claim where state in ('claimed', 'settling')`);
      return open.length === 0;
    });
    await processes.stop();

    expect(await rows(pool, sql`select distinct state from claim`)).toEqual([{ state: 'granted' }]);
    expect(await anvil.tokenBalance(place.payTo)).toBe(amount * BigInt(nonces.length));
    expect(grants).toBeGreaterThan(nonces.length / 4);
    const count = await anvil.transactionCount(key.address);
    expect(await noncesIn(pool)).toEqual(counted(count));
    expect(count).toBe(nonces.length);
  });
});
