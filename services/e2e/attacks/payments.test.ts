import { pause } from '@granary/shared/concurrency/backoff';
import { Anvil, describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { decoded, encoded, newPayer, version1, version2, type Requirement } from '@granary/testing/x402-client';
import { evmSettings, fundGas } from '../support/evm-payments';
import { pricedFilms } from '../support/priced-app';
import { openArena, type Arena } from './arena';
import { p95, type VictimReport } from './victim';

const price = 250_000;
const blockSeconds = 2;
const buyers = 4;
const measuredMs = 16_000;
const shareServedMin = 0.9;
const latencyFactorMax = 5;
const attackers = 10;
const paymentsOfEach = 100;

type Payer = Awaited<ReturnType<typeof newPayer>>;

describeWithAnvil(describe)('paid reads of others beside payers whose transfers fail', () => {
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

  /** Buyers who pay for one page after the other until so many milliseconds have passed. */
  const buy = async (payers: readonly Payer[]): Promise<VictimReport> => {
    const report: VictimReport = { statuses: [], latenciesMs: [] };
    const untilMs = performance.now() + measuredMs;
    const work = async (payer: Payer) => {
      while (performance.now() < untilMs) {
        const beganMs = performance.now();
        const requirement = await asked();
        const headers = requirement && { 'payment-signature': encoded(await version2(payer, requirement)) };
        const { status } = await fetch(url, { headers: headers ?? {} });
        report.statuses.push(status);
        report.latenciesMs.push(performance.now() - beganMs);
      }
    };
    await Promise.all(payers.map(work));
    return report;
  };

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
    const buying: Payer[] = [];
    for (let at = 0; at < buyers; at += 1) buying.push(await newRichPayer(100 * price));
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
    const quiet = await buy(buying);
    const stopped = new AbortController();
    const attacks = attacking.map(({ payer, payments }) => attack(payer, payments, stopped.signal));
    const attacked = await buy(buying);
    stopped.abort();
    await Promise.all(attacks);

    expect(quiet.statuses.every((status) => status === 200)).toBe(true);
    const served = attacked.statuses.filter((status) => status === 200).length / attacked.statuses.length;
    expect(attacked.statuses).not.toContain(500);
    expect(served).toBeGreaterThanOrEqual(shareServedMin);
    expect(p95(attacked) / p95(quiet)).toBeLessThanOrEqual(latencyFactorMax);
  });
});
