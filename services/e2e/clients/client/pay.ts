import { readFileSync } from 'node:fs';
import { granary, GranaryError } from '@granary/client';
import { x402Payments } from '@granary/client/payments';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { x402Client, x402HTTPClient } from '@x402/fetch';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { Target } from './checks.js';

/** Writes to a collection where that has a price: without a payment, with too small a purse, and with one that does. */
const { price, ...target } = JSON.parse(readFileSync(0, 'utf8')) as Target & { price: number };
const signer = privateKeyToAccount(generatePrivateKey());
const schemes = [{ network: 'eip155:*', client: new ExactEvmScheme(signer) }] as const;
// The token of the simulated network is not one that the client knows.
const client = x402Client.fromConfig({ schemes: [...schemes], spendControls: false });
const payer = new x402HTTPClient(client);

let calls = 0;
const counted: typeof fetch = (url, init) => {
  calls += 1;
  return fetch(url, init);
};
const notes = (options: object) =>
  granary<{ collections: { notes: { document: { text: string } } }; views: object; queries: object }>({
    ...target,
    ...options,
  }).collection('notes');
const refusal = (work: Promise<unknown>): Promise<GranaryError> =>
  work.then(
    () => Promise.reject(new Error('it was free')),
    (error: unknown) => error as GranaryError,
  );

const note = [{ text: 'paid' }];
const refused = await refusal(notes({}).store(note));
const tooDear = await refusal(notes({ pay: x402Payments(payer, { maxUtia: price - 1 }) }).store(note));
const { ids } = await notes({ fetch: counted, pay: x402Payments(payer, { maxUtia: price }) }).store(note);
console.log(
  JSON.stringify({
    refused: refused.code,
    offers: refused.offers.length > 0,
    tooDear: tooDear.code,
    stored: ids.length,
    calls,
  }),
);
