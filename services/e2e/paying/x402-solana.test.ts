import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KeyPairSigner } from '@solana/kit';
import { HTTPFacilitatorClient } from '@x402/core/server';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { ExactSvmSchemeV1 } from '@x402/svm/exact/v1/client';
import { openFeeKey } from '@granary/payments/schemes/solana/fee-key';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { eventually } from '@granary/testing/eventually';
import { SolanaChain } from '@granary/testing/solana-chain';
import {
  paySolana,
  solanaEnvelope,
  solanaRequirement,
  solanaSigner,
  solanaTest,
  startSolanaNode,
} from '@granary/testing/solana-client';
import { decoded, encoded, type Requirement } from '@granary/testing/x402-client';
import { borrowGranary, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { isPaymentPending, pricedFilms } from '../support/priced-app';

const feePayer = 'BPFLoaderUpgradeab1e11111111111111111111111';

describe.each(transports)('verification of x402 payments on Solana (%s)', (transport) => {
  let granary: Granary;
  let node: Awaited<ReturnType<typeof startSolanaNode>>;
  let payer: KeyPairSigner;
  let payTo: string;
  beforeAll(async () => {
    node = await startSolanaNode();
    [payer, payTo] = [await solanaSigner(1), (await solanaSigner(2)).address];
    const payments = { X402_SOLANA_FEE_PAYERS: feePayer, X402_SOLANA_ASSETS: 'usdc-test' };
    granary = await startGranary(transport, { settings: { payments } });
  });
  afterAll(async () => {
    await granary.stop();
    await node.stop();
  });

  const verify = async (body: object): Promise<unknown> => {
    const answer = await send(granary.url, 'POST', '/x402/verify', { body });
    expect(answer.status).toBe(200);
    return answer.body;
  };

  test('a payment of the official client is valid, in both versions, and as often as it is asked', async () => {
    for (const version of [1, 2] as const) {
      const terms = { payTo, extra: { feePayer, memo: 'a quote' } };
      const envelope = await paySolana(version, payer, node.url, terms);
      for (let n = 0; n < 2; n += 1) expect(await verify(envelope)).toEqual({ isValid: true, payer: payer.address });
      const { transaction } = envelope.paymentPayload.payload;
      const dearer = solanaRequirement(version, { ...terms, amount: '10001' });
      expect(await verify(solanaEnvelope(version, dearer, transaction))).toEqual({
        isValid: false,
        invalidReason: 'invalid_exact_svm_payload_amount_mismatch',
        invalidMessage: expect.stringMatching(/^\S.{9,}/) as string,
        payer: payer.address,
      });
      const forged = Buffer.from(transaction, 'base64');
      forged[100]! ^= 1;
      expect(
        await verify(solanaEnvelope(version, envelope.paymentRequirements, forged.toString('base64'))),
      ).toMatchObject({
        isValid: false,
        invalidReason: 'invalid_exact_svm_payload_signature_invalid',
      });
    }
  });

  test('the official client of facilitators finds who pays the fees, and verifies here', async () => {
    const facilitator = new HTTPFacilitatorClient({ url: `${granary.url}/x402` });
    const { kinds, signers } = await facilitator.getSupported();
    // It is not settled here.
    expect(kinds.filter(({ network }) => network.startsWith('solana'))).toEqual([]);
    expect(signers).toEqual({ 'solana:*': [feePayer] });
    const envelope = await paySolana(2, payer, node.url, { payTo, extra: { feePayer } });
    const found = await facilitator.verify(envelope.paymentPayload as never, envelope.paymentRequirements as never);
    expect(found).toEqual({ isValid: true, payer: payer.address });
  });

  test('without somebody who pays the fees, payments on Solana are refused and not listed', async () => {
    const without = await borrowGranary(transport);
    const body = await paySolana(2, payer, node.url, { payTo, extra: { feePayer } });
    const found = await send(without.url, 'POST', '/x402/verify', { body });
    expect([found.status, found.body]).toMatchObject([200, { isValid: false, invalidReason: 'invalid_network' }]);
    const { body: supported } = await send<{ kinds: Array<{ network: string }> }>(
      without.url,
      'GET',
      '/x402/supported',
    );
    expect(supported.kinds.filter(({ network }) => network.startsWith('solana'))).toEqual([]);
    await without.stop();
  });
});

describe.each(transports)('settlement of x402 payments on Solana (%s)', (transport) => {
  const price = 250_000;
  let granary: Granary;
  let chain: SolanaChain;
  let url: string;
  let payer: KeyPairSigner;
  let payTo: string;
  let app: TestApp;
  let directory: string;
  beforeAll(async () => {
    chain = new SolanaChain();
    url = await chain.serve();
    [payer, payTo] = [await solanaSigner(3), (await solanaSigner(4)).address];
    directory = await mkdtemp(join(tmpdir(), 'granary-fees-'));
    const keyFile = join(directory, 'seed');
    await makeSeedFile(keyFile);
    chain.airdrop((await openFeeKey(keyFile)).address);
    await chain.give(payTo, 0n);
    await chain.give(payer.address, 10_000_000n);
    granary = await startGranary(transport, {
      settings: {
        payments: {
          X402_PAY_TO: `${solanaTest.network}=${payTo}`,
          SOLANA_RPC_URLS: `${solanaTest.network}=${url}`,
          X402_KEY_FILE: keyFile,
          X402_RATES: 'usdc-test=4000000',
        },
      },
    });
    app = await pricedFilms(granary, price);
  });
  afterAll(async () => {
    await granary?.stop();
    await chain.stop();
    await rm(directory, { recursive: true, force: true });
  });

  interface Body {
    accepts: Requirement[];
    details: { reason?: string };
  }
  const path = () => `/api/apps/${app.appId}/collections/films/data`;
  /** Again while the payment is being settled. */
  const get = (headers: Record<string, string> = {}) =>
    eventually(async () => {
      const answer = await send<Body>(granary.url, 'GET', path(), { headers });
      return isPaymentPending(answer) ? undefined : answer;
    });

  /** Payments of the official client for one quote, in version 1 and 2. */
  async function payments(): Promise<Array<Record<string, string>>> {
    const asked = await get();
    const [requirement] = asked.body.accepts;
    expect(requirement).toMatchObject({
      network: solanaTest.name,
      asset: solanaTest.mint,
      payTo,
      maxAmountRequired: '1000000',
      extra: { chainType: 'solana', tokenSymbol: 'USDC', memo: requirement!.extra.quoteId },
    });
    const accepted = decoded<{ accepts: Requirement[] }>(asked.headers.get('payment-required')).accepts[0]!;
    const first = await new ExactSvmSchemeV1(payer, { rpcUrl: url }).createPaymentPayload(1, requirement as never);
    const second = await new ExactSvmScheme(payer, { rpcUrl: url }).createPaymentPayload(2, accepted as never);
    return [{ 'x-payment': encoded(first) }, { 'payment-signature': encoded({ ...second, accepted }) }];
  }

  test('the official client pays for reads, in both versions, once each, and the money arrives', async () => {
    for (const at of [0, 1]) {
      const payment = (await payments())[at]!;
      const paid = await get(payment);
      expect([paid.status, paid.text]).toEqual([200, expect.stringContaining('Alien')]);
      expect((await get(payment)).body.details.reason).toBe('payment_already_used');
    }
    const ofOneQuote = await Promise.all((await payments()).map((payment) => get(payment)));
    expect(ofOneQuote.map(({ status }) => status).sort()).toEqual([200, 402]);
    expect([await chain.balanceOf(payTo), chain.sent.length]).toEqual([3_000_000n, 3]);
    const wallet = `/api/apps/${app.appId}/wallet`;
    const earned = 3 * price * 0.8;
    await eventually(async () => (await app.call<{ balance: number }>('GET', wallet)).body.balance === earned);
  });

  test('a payer without money is refused before anything is sent', async () => {
    const { headers } = await get();
    const accepted = decoded<{ accepts: Requirement[] }>(headers.get('payment-required')).accepts[0]!;
    const poor = await solanaSigner(9);
    await chain.give(poor.address, 5n);
    const sent = chain.sent.length;
    const payment = await new ExactSvmScheme(poor, { rpcUrl: url }).createPaymentPayload(2, accepted as never);
    const answer = await get({ 'payment-signature': encoded({ ...payment, accepted }) });
    expect([answer.status, answer.body.details.reason, chain.sent.length]).toEqual([402, 'insufficient_funds', sent]);
  });
});
