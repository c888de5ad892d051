import { randomBytes } from 'node:crypto';
import { pause } from '@granary/shared/concurrency/backoff';
import { Anvil, describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { describeWith } from '@granary/testing/stack';
import { decoded, encoded, newPayer, version1, version2, type Requirement } from '@granary/testing/x402-client';
import { runPython } from '../clients/generated';
import { evmSettings, fundGas, payingFetch } from '../support/evm-payments';
import { pricedFilms } from '../support/priced-app';
import { openArena, type Arena } from './arena';
import { p95, type VictimReport } from './victim';

const price = 250_000;
const blockSeconds = 2;
const measuredMs = 16_000;
const shareServedMin = 0.9;
const latencyFactorMax = 5;
const attackers = 10;
const paymentsOfEach = 100;
const presentEveryMs = { 'at once': 100, 'one after the other': 250 };

const describeWithBoth = describeWithAnvil(describeWith(describe, 'python'));

type Payer = Awaited<ReturnType<typeof newPayer>>;
type Pace = keyof typeof presentEveryMs;
interface Attacker {
  payer: Payer;
  /** Signed, as headers. */
  payments: string[];
}

describeWithBoth('paid reads of others beside payers whose transfers fail', () => {
  let anvil: Anvil;
  let arena: Arena;
  let url: string;
  // A node that mines at intervals could not give them their money one by one: it is a new one for each test.
  beforeEach(async () => {
    anvil = await Anvil.start();
    arena = await openArena(await evmSettings(anvil, (await newPayer()).address));
    await fundGas(arena, anvil);
    const { appId } = await pricedFilms(arena, price);
    url = `${arena.url}/api/apps/${appId}/collections/films/data`;
    await eventually(async () => ((await asked()) ? true : undefined));
  }, limitMs(60_000));
  afterEach(async () => {
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

  /** A buyer who pays for one page after the other, by `read`, until so many milliseconds have passed. */
  const buy = async (read: () => Promise<Response>): Promise<VictimReport> => {
    const report: VictimReport = { statuses: [], latenciesMs: [] };
    const untilMs = performance.now() + measuredMs;
    while (performance.now() < untilMs) {
      const beganMs = performance.now();
      report.statuses.push((await read()).status);
      report.latenciesMs.push(performance.now() - beganMs);
    }
    return report;
  };

  /** The client of the tests takes the price from its own first request, as others do. */
  const readWithOwnClient = (payer: Payer) => async (): Promise<Response> => {
    const requirement = await asked();
    const headers = requirement && { 'payment-signature': encoded(await version2(payer, requirement)) };
    return fetch(url, { headers: headers ?? {} });
  };

  /** Buyers with these private keys pay with the client in Python, in one process beside this one. */
  const buyWithPython = (keys: readonly string[]): Promise<VictimReport> =>
    runPython('buy.py', url, `${measuredMs / 1_000}`, ...keys);

  const newAttacker = async (requirement: Requirement, count: number): Promise<Attacker> => {
    const payer = await newRichPayer(price);
    const payments: string[] = [];
    for (let each = 0; each < count; each += 1) {
      const payment = await version1(payer, { ...requirement, network: 'base-sepolia' }, { withQuote: false });
      payments.push(encoded(payment));
    }
    return { payer, payments };
  };

  /**
   * Has its first payment sent, moves its money away before the block, and presents others that its balance does not
   * cover: all at once and then again and again, or one after the other without waiting for the answers.
   */
  const attack = async ({ payer, payments }: Attacker, pace: Pace, signal: AbortSignal): Promise<void> => {
    const present = (payment: string) =>
      fetch(url, { headers: { 'x-payment': payment }, signal })
        .then((answer) => answer.arrayBuffer())
        .catch(() => undefined);
    const [first, ...others] = payments;
    const presented = [present(first!)];
    await pause(300);
    await anvil.takeAway(payer.address, BigInt(price));
    if (pace === 'at once') await Promise.all(others.map(present));
    for (let at = 0; !signal.aborted; at += 1) {
      const answered = present(others[at % others.length]!);
      presented.push(answered);
      if (pace === 'at once') await answered;
      await pause(presentEveryMs[pace]);
    }
    await Promise.all(presented);
  };

  /** Compares what buyers get while nobody attacks with what they get beside the attack. */
  const measure = async (pace: Pace, work: () => Promise<VictimReport[]>): Promise<void> => {
    const requirement = (await asked())!;
    const count = pace === 'at once' ? paymentsOfEach : measuredMs / presentEveryMs[pace];
    const attacking: Attacker[] = [];
    for (let at = 0; at < attackers; at += 1) attacking.push(await newAttacker(requirement, count));
    await anvil.call('evm_setAutomine', false);
    await anvil.call('evm_setIntervalMining', blockSeconds);
    const quiet = joined(await work());
    // Node warns of a signal that more than 1,500 requests have used.
    const stops = attacking.map(() => new AbortController());
    const attacks = attacking.map((attacker, at) => attack(attacker, pace, stops[at]!.signal));
    const attacked = joined(await work().finally(() => stops.forEach((stop) => stop.abort())));
    await Promise.all(attacks);

    expect(new Set(quiet.statuses)).toEqual(new Set([200]));
    expect(attacked.statuses).not.toContain(500);
    // A paid read has been served by a 200 only.
    const served = attacked.statuses.filter((status) => status === 200).length / attacked.statuses.length;
    expect(served).toBeGreaterThanOrEqual(shareServedMin);
    expect(p95(attacked) / p95(quiet)).toBeLessThanOrEqual(latencyFactorMax);
  };

  test(`${attackers} payers who present ${paymentsOfEach} payments each at once leave others theirs`, async () => {
    const buyers: Payer[] = [];
    while (buyers.length < 4) buyers.push(await newRichPayer(100 * price));
    await measure('at once', () => Promise.all(buyers.map((payer) => buy(readWithOwnClient(payer)))));
  });

  test(`${attackers} payers who go on presenting payments leave those with official clients theirs`, async () => {
    const { privateKeyToAccount } = await import('viem/accounts');
    const keys = [1, 2].map(() => `0x${randomBytes(32).toString('hex')}` as const);
    for (const key of keys) await anvil.mint(privateKeyToAccount(key).address, BigInt(100 * price));
    const payers = [await newRichPayer(100 * price), await newRichPayer(100 * price)];
    const fetches = await Promise.all(payers.map((payer) => payingFetch(payer)));
    await measure('one after the other', () =>
      Promise.all([buyWithPython(keys), ...fetches.map((paying) => buy(() => paying(url)))]),
    );
  });
});

function joined(reports: readonly VictimReport[]): VictimReport {
  return {
    statuses: reports.flatMap(({ statuses }) => statuses),
    latenciesMs: reports.flatMap(({ latenciesMs }) => latenciesMs),
  };
}
