import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { pause } from '@granary/shared/concurrency/backoff';
import { Anvil, describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { isSkippedWithout, pythonForTests } from '@granary/testing/stack';
import { decoded, encoded, newPayer, version1, type Requirement } from '@granary/testing/x402-client';
import { runProgram } from '../clients/generated';
import { evmSettings, fundGas, payingFetch } from '../support/evm-payments';
import { pricedFilms } from '../support/priced-app';
import { openArena, type Arena } from './arena';
import { p95, shareServed, type VictimReport } from './victim';

const price = 250_000;
const blockSeconds = 2;
/** Of each official client: that for fetch, and that in Python. */
const buyersOfEach = 2;
const measuredMs = 16_000;
const shareServedMin = 0.9;
const latencyFactorMax = 5;
const attackers = 10;
const paymentsOfEach = 100;

const describeWithBoth = isSkippedWithout('python') ? describe.skip : describeWithAnvil(describe);

type Payer = Awaited<ReturnType<typeof newPayer>>;

describeWithBoth('paid reads of others beside payers whose transfers fail', () => {
  let anvil: Anvil;
  let arena: Arena;
  let url: string;
  beforeAll(async () => {
    anvil = await Anvil.start();
    arena = await openArena(await evmSettings(anvil, (await newPayer()).address));
    await fundGas(arena, anvil);
    const { appId } = await pricedFilms(arena, price);
    url = `${arena.url}/api/apps/${appId}/collections/films/data`;
    await eventually(async () => ((await asked()) ? true : undefined));
  }, limitMs(60_000));
  afterAll(async () => {
    await arena.close();
    await anvil.stop();
  });

  const asked = async (): Promise<Requirement | undefined> => {
    const header = (await fetch(url)).headers.get('payment-required');
    return header === null ? undefined : decoded<{ accepts: Requirement[] }>(header).accepts[0];
  };
  const newRichPayer = async (units: number): Promise<Payer> => {
    const payer = await newPayer();
    await anvil.mint(payer.address, BigInt(units));
    return payer;
  };

  /** A buyer who pays for one page after the other until so many milliseconds have passed. */
  const buyWithFetch = async (payer: Payer): Promise<VictimReport> => {
    const report: VictimReport = { statuses: [], latenciesMs: [] };
    const read = await payingFetch(payer);
    const untilMs = performance.now() + measuredMs;
    while (performance.now() < untilMs) {
      const beganMs = performance.now();
      report.statuses.push((await read(url)).status);
      report.latenciesMs.push(performance.now() - beganMs);
    }
    return report;
  };

  /** The same by buyers with these private keys, in a process of their own. */
  const buyWithPython = async (keys: readonly string[]): Promise<VictimReport> => {
    const program = path.join(__dirname, '../clients/python/buy.py');
    const args = ['-B', program, url, `${measuredMs / 1_000}`, ...keys];
    const said = await runProgram(await pythonForTests(), args, { cwd: path.dirname(program) });
    return JSON.parse(said.trim().split('\n').at(-1)!) as VictimReport;
  };

  const buy = (payers: readonly Payer[], keys: readonly string[]): Promise<VictimReport[]> =>
    Promise.all([buyWithPython(keys), ...payers.map(buyWithFetch)]);

  /**
   * Has its first payment sent, moves its money away before the block, and presents others that its balance does not
   * cover.
   */
  const attack = async (payer: Payer, payments: readonly string[], signal: AbortSignal): Promise<void> => {
    const present = (payment: string) =>
      fetch(url, { headers: { 'x-payment': payment }, signal }).then(
        (answer) => answer.arrayBuffer(),
        () => undefined,
      );
    const first = present(payments[0]!);
    await pause(300);
    await anvil.takeAway(payer.address, BigInt(price));
    await Promise.all(payments.slice(1).map(present));
    for (let at = 1; !signal.aborted; at += 1) {
      await present(payments[at % payments.length]!);
      await pause(100);
    }
    await first;
  };

  test(`${attackers} payers with ${paymentsOfEach} payments each leave others theirs`, async () => {
    const { privateKeyToAccount } = await import('viem/accounts');
    const buying: Payer[] = [];
    const keys: string[] = [];
    for (let at = 0; at < buyersOfEach; at += 1) {
      buying.push(await newRichPayer(100 * price));
      const key = `0x${randomBytes(32).toString('hex')}` as const;
      await anvil.mint(privateKeyToAccount(key).address, BigInt(100 * price));
      keys.push(key);
    }
    const requirement = (await asked())!;
    const attacking: Array<{ payer: Payer; payments: string[] }> = [];
    for (let at = 0; at < attackers; at += 1) {
      const payer = await newRichPayer(price);
      const payments: string[] = [];
      for (let each = 0; each < paymentsOfEach; each += 1) {
        const payment = await version1(payer, { ...requirement, network: 'base-sepolia' }, { withQuote: false });
        payments.push(encoded(payment));
      }
      attacking.push({ payer, payments });
    }
    await anvil.call('evm_setAutomine', false);
    await anvil.call('evm_setIntervalMining', blockSeconds);
    const quiet = await buy(buying, keys);
    const stopped = new AbortController();
    const attacks = attacking.map(({ payer, payments }) => attack(payer, payments, stopped.signal));
    const attacked = await buy(buying, keys);
    stopped.abort();
    await Promise.all(attacks);

    for (const [at, { statuses }] of quiet.entries()) {
      expect(new Set(statuses)).toEqual(new Set([200]));
      const underAttack = attacked[at]!;
      expect(underAttack.statuses).not.toContain(500);
      expect(shareServed(underAttack)).toBeGreaterThanOrEqual(shareServedMin);
      expect(p95(underAttack) / p95(quiet[at]!)).toBeLessThanOrEqual(latencyFactorMax);
    }
  });
});
