import { randomBytes, randomUUID } from 'node:crypto';
import { forgetSignatures, useSignature } from '../src/apps/used-signatures';
import { startFixture, type Fixture } from './support/query-fixture';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

const never = new AbortController().signal;
const nowSeconds = () => Math.floor(Date.now() / 1000);
const use = (signature: Buffer, useId: string, signedAtSeconds = nowSeconds()) =>
  useSignature({ fast: fixture.pool }, { signature, signedAtSeconds: String(signedAtSeconds), useId });
const used = expect.objectContaining({ code: 'FAILED_PRECONDITION', reason: 'SIGNATURE_USED' }) as Error;
const countStored = async () =>
  Number((await fixture.pool.query<{ count: string }>('select count(*) from used_signature')).rows[0]!.count);

test('a signature is used by one request, which may ask again, of 64 at once', async () => {
  const signature = randomBytes(64);
  const ids = Array.from({ length: 32 }, () => randomUUID());
  const outcomes = await Promise.allSettled([...ids, ...ids].map((id) => use(signature, id)));
  const winners = ids.filter((_, at) => outcomes[at]!.status === 'fulfilled');
  expect(winners).toHaveLength(1);
  // The same request is answered alike both times.
  const states = outcomes.map(({ status }) => status);
  expect(states.slice(ids.length)).toEqual(states.slice(0, ids.length));
  await use(signature, winners[0]!);
  await expect(use(signature, randomUUID())).rejects.toEqual(used);
  await use(randomBytes(64), randomUUID());
});

test('signatures are forgotten only when they are refused by their age', async () => {
  const [kept, useId] = [randomBytes(64), randomUUID()];
  await use(kept, useId);
  const stored = await countStored();
  const ageMax = 900;
  const old = Array.from({ length: 2_500 }, () => randomBytes(64));
  await fixture.pool.query(
    `insert into used_signature (signature, use_id, forget_at) select decode(text, 'hex'), gen_random_uuid(), now() from unnest($1::text[]) text`,
    [old.map((signature) => signature.toString('hex'))],
  );
  await forgetSignatures(fixture.pool, never);
  expect(await countStored()).toBe(stored);
  await expect(use(kept, randomUUID())).rejects.toEqual(used);
  await expect(use(randomBytes(64), randomUUID(), nowSeconds() - ageMax - 60)).rejects.toEqual(used);
  await use(randomBytes(64), randomUUID(), nowSeconds() - ageMax + 60);
});
