import { openSimulatedNode, type SimulatedNode } from '@granary/finance/simulated-chain/simulated-node';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { decoded, encoded, type Requirement } from '@granary/testing/x402-client';
import { startStandIns, type StandIn } from '../../finance/test/support/comet-stand-in';
import { financePool } from '../../finance/test/support/harness';
import { manualChain, newAddress } from '../../finance/test/support/payout-copies';
import { CometPayer } from './comet-payer';
import { send, transports, type Answer, type TestApp } from '../support/granary';
import { startGranary, type OwnGranary } from '../support/own-granary';
import { isPaymentPending, pricedFilms, pricedNotes } from '../support/priced-app';

interface Body extends Record<string, unknown> {
  accepts: Requirement[];
  status?: string;
  code?: string;
  details: { reason?: string };
}
type Headers = Record<string, string>;
type Ask = (headers?: Headers) => Promise<Answer<Body>>;

const chainId = 'mocha-5';
const network = `cosmos:${chainId}`;
const price = 250_000;
const appShare = 200_000;
/** Of each payer. */
const funds = 10_000_000n;
/** A node counts as behind the others by five blocks, so these take longer where its answers do. */
const blockMs = Math.ceil(limitMs(50));

describe.each(transports)('x402 payments with CHAIN=cosmos, on nodes of CometBFT (%s)', (transport) => {
  let chainPool: Pool;
  /** Of the chain; it may be changed at any time. */
  const behaviour = { ...manualChain, blockMs };
  let node: SimulatedNode;
  let nodes: StandIn[];
  let granary: OwnGranary;
  let app: TestApp;
  let payer: CometPayer;
  let store: Ask;
  beforeAll(async () => {
    ({ pool: chainPool } = await financePool(4));
    // Finance takes no simulated chain for a real one.
    await execute(
      chainPool,
      sql`insert into simulated_chain (chain_id, height, block_at) values (${chainId}, 1, now())`,
    );
    // Delays are as long as they can be.
    node = await openSimulatedNode({ pool: chainPool, settings: behaviour, random: () => 0.999 });
    nodes = await startStandIns(chainPool, node, 2);
    const chain = { CHAIN: 'cosmos', CHAIN_ID: chainId, CHAIN_RPC_URLS: nodes.map(({ url }) => url).join(',') };
    granary = await startGranary(transport, {
      settings: { finance: chain, payments: { X402_PAY_TO: 'wallets', X402_SETTLE_WAIT_MS: '1000' } },
    });
  });
  afterAll(async () => {
    await granary?.stop();
    await Promise.all((nodes ?? []).map((each) => each.stop()));
    await chainPool?.end();
  });
  beforeEach(async () => {
    app = await pricedFilms(granary, price);
    store = (await pricedNotes<Body>(granary, app, price)).store;
    payer = await CometPayer.open(node, nodes[1]!.url, funds);
  });
  afterEach(() => {
    makeBlocks();
    for (const { faults } of nodes) delete faults.loses;
  });

  /** No block is made until `makeBlocks`: requests are answered before their payments are in one. */
  const holdBlocks = () => (behaviour.blockMs = 0);
  const makeBlocks = () => (behaviour.blockMs = blockMs);
  const read: Ask = (headers = {}) =>
    send<Body>(granary.url, 'GET', `/api/apps/${app.appId}/collections/films/data`, { headers });
  /** As each version writes it. */
  const asked = async (version: 1 | 2, ask: Ask): Promise<Requirement> => {
    const isWanted = (each: Requirement) => each.network === network;
    return eventually(async () => {
      const { headers, body } = await ask();
      if (version === 1) return body.accepts.find(isWanted);
      return decoded<Body>(headers.get('payment-required')).accepts.find(isWanted);
    });
  };
  /** In version 1 with the quote at its top, which a transaction that is named needs there. */
  const paying = (version: 1 | 2, requirement: Requirement, payload: object): Headers => {
    if (version === 2) return { 'payment-signature': encoded({ x402Version: 2, accepted: requirement, payload }) };
    const quote = 'txHash' in payload && { quoteId: requirement.extra.quoteId };
    const payment = { x402Version: 1, scheme: 'exact', network: requirement.network, payload, ...quote };
    return { 'x-payment': encoded(payment) };
  };
  const signed = (requirement: Requirement, changes?: Partial<Transfer>) => ({
    signedTx: payer.sign(requirement, changes).toString('base64'),
    accountNumber: payer.accountNumber.toString(),
  });
  /** Sends a payment until its answer is definite. */
  const answered = (ask: Ask, headers: Headers) =>
    eventually(async () => {
      const answer = await ask(headers);
      return isPaymentPending(answer) ? undefined : answer;
    }, 60_000);
  const reasonOf = async (headers: Headers) => {
    const { status, body } = await answered(read, headers);
    return status === 402 ? body.details.reason : status;
  };
  const earned = async () => (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  /** How many transactions were sent to nodes. */
  const sends = () => nodes.flatMap(({ calls }) => calls).filter((method) => method === 'broadcast_tx_sync').length;
  const notes = async () => (await app.list('notes')).body.total;
  /** Those of the payer in blocks, in transactions that have succeeded. */
  const transfers = (): Promise<Array<{ memo: string; recipient: string }>> =>
    rows(chainPool, sql`select memo, recipient from simulated_transfer where sender = ${payer.address}`);
  /** That the money was moved for these quotes, once for each, and that the ledger has their amounts, once. */
  const expectPaid = async (quotes: readonly Requirement[], otherTransfers = 0): Promise<void> => {
    const paid = (await transfers()).filter(({ recipient }) => recipient === quotes[0]!.payTo);
    expect(paid.map(({ memo }) => memo).sort()).toEqual(quotes.map(({ extra }) => extra.quoteId).sort());
    await eventually(async () => (await earned()) === quotes.length * appShare);
    const balance = funds - BigInt(quotes.length + otherTransfers) * BigInt(price + 1_000);
    expect(await node.balance(payer.address)).toBe(balance);
  };

  type Payload = (requirement: Requirement) => Promise<object>;
  const payloads: Record<string, Payload> = {
    signedTx: (requirement) => Promise.resolve(signed(requirement)),
    transaction: (requirement) => {
      const { signedTx: transaction, accountNumber } = signed(requirement);
      return Promise.resolve({ transaction, accountNumber });
    },
    txHash: async (requirement) => ({ txHash: await payer.send(payer.sign(requirement)), sender: payer.address }),
  };

  test.each(Object.keys(payloads))('a read and a write are paid by {%s}, in both versions, once each', async (kind) => {
    const quotes: Requirement[] = [];
    for (const version of [1, 2] as const) {
      const forRead = await asked(version, read);
      const payment = paying(version, forRead, await payloads[kind]!(forRead));
      const page = await answered(read, payment);
      expect([page.status, page.text]).toEqual([200, expect.stringContaining('Alien')]);
      expect(await reasonOf(payment)).toBe('payment_already_used');
      const forWrite = await asked(version, store);
      const written = await answered(store, paying(version, forWrite, await payloads[kind]!(forWrite)));
      expect([written.status, written.body]).toEqual([
        202,
        expect.objectContaining({ ticket_id: expect.any(String) as string }),
      ]);
      quotes.push(forRead, forWrite);
    }
    await eventually(async () => (await notes()) === 2);
    await expectPaid(quotes);
  });

  test('what pays for another quote, on another chain, somebody else, or with a sequence that is used is refused with the reason', async () => {
    const [first, second] = [await asked(1, read), await asked(2, read)];
    const wrong = (changes: Partial<Transfer>) => reasonOf(paying(1, first, signed(first, changes)));
    const wrong2 = (changes: Partial<Transfer>) => reasonOf(paying(2, second, signed(second, changes)));
    const paid = (address: string, amount: number): Partial<Transfer> => ({
      outputs: [{ address, amount: BigInt(amount) }],
    });
    expect(await wrong({ memo: 'another' })).toBe('quote_invalid');
    expect(await wrong2({ memo: first.extra.quoteId })).toBe('invalid_exact_cosmos_payload_memo_mismatch');
    for (const refused of [wrong, wrong2]) {
      expect(await refused({ chainId: 'mocha-4' })).toBe('invalid_exact_cosmos_payload_signature');
      expect(await refused(paid(newAddress(), price))).toBe('invalid_exact_cosmos_payload_recipient_mismatch');
      expect(await refused(paid(first.payTo, price - 1))).toBe('invalid_exact_cosmos_payload_amount_mismatch');
      expect(await refused({ sequence: 1n })).toBe('invalid_exact_cosmos_payload_sequence');
    }
    const other = { ...first, network: 'cosmos:mocha-4' };
    expect(await reasonOf(paying(1, other, signed(first, {})))).toBe('invalid_network');
    expect(await reasonOf(paying(1, first, { txHash: 'ab'.repeat(32) }))).toBe('transaction_not_found');
    expect(await transfers()).toEqual([]);

    const replaced = paying(1, first, signed(first, {}));
    await payer.send(payer.sign({ ...first, payTo: newAddress() }));
    // While only the mempool has it, the node refuses the sequence instead.
    await eventually(async () => (await transfers()).length === 1);
    expect(await reasonOf(replaced)).toBe('payment_replaced');
    const sameSequence = paying(1, first, signed(first, {}));
    expect(await reasonOf(paying(2, second, signed(second)))).toBe(200);
    expect(await reasonOf(sameSequence)).toBe('payment_already_used');
    expect(await reasonOf(paying(1, first, signed(first)))).toBe(200);
    await expectPaid([first, second], 1);
  });

  test('a transaction that fails in its block pays nothing', async () => {
    payer = await CometPayer.open(node, nodes[1]!.url, 5_000n);
    const requirement = await asked(1, read);
    const transaction = payer.sign(requirement);
    const payload = { signedTx: transaction.toString('base64'), accountNumber: payer.accountNumber.toString() };
    expect(await reasonOf(paying(1, requirement, payload))).toBe('invalid_transaction_state');
    const again = await asked(1, read);
    const txHash = await payer.send(payer.sign(again));
    expect(await reasonOf(paying(1, again, { txHash }))).toBe('invalid_transaction_state');
    expect([await transfers(), await earned()]).toEqual([[], 0]);
  });

  test('a node that forwards nothing does not keep a payment from the other, and what all have lost is sent again', async () => {
    nodes[0]!.faults.loses = true;
    const first = await asked(1, read);
    expect(await reasonOf(paying(1, first, signed(first)))).toBe(200);
    nodes[1]!.faults.loses = true;
    const second = await asked(1, read);
    const payment = paying(1, second, signed(second));
    for (let attempt = 0; attempt < 2; attempt += 1) expect(isPaymentPending(await read(payment))).toBe(true);
    expect(await earned()).toBeLessThanOrEqual(appShare);
    delete nodes[1]!.faults.loses;
    expect(await reasonOf(payment)).toBe(200);
    expect(await reasonOf(payment)).toBe('payment_already_used');
    await expectPaid([first, second]);
  });

  test('a payment that a block has late is answered once, among many requests', async () => {
    holdBlocks();
    const [forRead, forWrite] = [await asked(1, read), await asked(2, store)];
    const payment = paying(1, forRead, signed(forRead));
    const written = paying(2, forWrite, signed(forWrite));
    const tenTimes = <T>(ask: () => Promise<T>) => Promise.all(Array.from({ length: 10 }, ask));
    const early = await Promise.all([tenTimes(() => read(payment)), tenTimes(() => store(written))]);
    expect(early.flat().every(isPaymentPending)).toBe(true);
    makeBlocks();
    const [reads, writes] = await Promise.all([
      tenTimes(() => answered(read, payment)),
      tenTimes(() => answered(store, written)),
    ]);
    expect(reads.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const { status, body } of reads) if (status !== 200) expect(body.details.reason).toBe('payment_already_used');
    expect(new Set(writes.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    await eventually(async () => (await notes()) === 1);
    await expectPaid([forRead, forWrite]);
  });

  test('payments of one payer whose requests arrive in the other order of their sequences are both taken', async () => {
    const [forRead, forWrite] = [await asked(1, read), await asked(2, store)];
    const [payment, written] = [paying(1, forRead, signed(forRead)), paying(2, forWrite, signed(forWrite))];
    const sendsBefore = sends();
    const later = answered(store, written);
    await eventually(() => sends() > sendsBefore);
    expect((await answered(read, payment)).status).toBe(200);
    expect((await later).status).toBe(202);
    await eventually(async () => (await notes()) === 1);
    await expectPaid([forRead, forWrite]);
  });

  test.each([
    ['no block has', holdBlocks, makeBlocks],
    [
      'its nodes have lost',
      () => nodes.forEach(({ faults }) => (faults.loses = true)),
      () => nodes.forEach(({ faults }) => delete faults.loses),
    ],
  ])('a restart amid payments that %s: each is granted once, and the ledger has it once', async (_, begin, end) => {
    begin();
    const [forRead, forWrite] = [await asked(1, read), await asked(2, store)];
    const [payment, written] = [paying(1, forRead, signed(forRead)), paying(2, forWrite, signed(forWrite))];
    expect((await Promise.all([read(payment), store(written)])).map(isPaymentPending)).toEqual([true, true]);
    await granary.restart();
    end();
    const pages = await Promise.all(Array.from({ length: 5 }, () => answered(read, payment)));
    expect(pages.filter(({ status }) => status === 200)).toHaveLength(1);
    expect((await answered(store, written)).status).toBe(202);
    await eventually(async () => (await notes()) === 1);
    await granary.restart();
    expect(await reasonOf(payment)).toBe('payment_already_used');
    await expectPaid([forRead, forWrite]);
    expect(await notes()).toBe(1);
  });
});
