import type { RunningGateway } from '@granary/gateway/service';
import { startWithData } from './support/stub-data';

const mebibyte = 1024 ** 2;
/** The process may hold 16 MiB, of which about 14 are for requests and answers that are not small. */
const settings = { BODY_BUDGET_BYTES: String(16 * mebibyte), REQUEST_TIMEOUT_MS: '60000' };

let gateway: RunningGateway;
let stored = 0;
let answerBytes = 0;
const held: Array<() => void> = [];
beforeAll(async () => {
  gateway = await startWithData(
    {
      verifyKey: () =>
        Promise.resolve({ known: true, name: 'k', keyId: 'k', appId: 'films', appNumber: '1', permissions: ['Write'] }),
      store: async ({ body }: { body: Buffer }) => {
        if (body.includes('hold')) await new Promise<void>((resolve) => held.push(resolve));
        else stored += 1;
        return { ticketId: 't', resultsJson: Buffer.from(JSON.stringify('x'.repeat(answerBytes))) };
      },
    },
    settings,
  );
});
afterAll(() => gateway.stop());

const store = (sizeBytes: number, text = '') =>
  fetch(`${gateway.url}/api/store`, {
    method: 'POST',
    headers: { 'X-App-Key': 'app_key', 'Content-Type': 'application/json' },
    body: JSON.stringify(text + 'x'.repeat(sizeBytes)),
  });

test('a write that was made is never answered as refused, when there is no memory for its answer', async () => {
  answerBytes = 0;
  const holding = [store(4.5 * mebibyte, 'hold'), store(4.5 * mebibyte, 'hold')];
  while (held.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  answerBytes = 1.5 * mebibyte;
  // Its answer takes the memory of its body.
  expect((await store(4 * mebibyte)).status).toBe(202);
  // Without an answer the client knows that the outcome is unknown.
  answerBytes = 8 * mebibyte;
  await expect(store(1)).rejects.toThrow('fetch failed');
  expect(stored).toBe(2);
  answerBytes = 0;
  for (const end of held) end();
  for (const answer of await Promise.all(holding)) expect(answer.status).toBe(202);
});
