import { CommitUnknownError } from '@granary/shared/postgres/errors';
import { BulkPreload } from './bulk-preload';
import { conflicts, type BatchResult, type DocumentIds, type PendingWrite, type Write } from './write';

const writeOf = (collection: string, ids: string[] | undefined): Write => {
  const known: DocumentIds | undefined = ids && { set: new Set(ids), count: ids.length };
  return { collections: [collection], ids: () => known } as unknown as Write;
};
const committed: BatchResult = { outcomes: new Map(), changed: [] };

/** A preload whose transaction ends when the test says so. */
function fixture() {
  let transaction!: { resolve: (result: BatchResult | undefined) => void; reject: (error: Error) => void };
  const bulk = { write: writeOf('films', ['a', 'b']) } as PendingWrite;
  const preload = new BulkPreload(
    bulk,
    1n,
    () => new Promise((resolve, reject) => (transaction = { resolve, reject })),
  );
  return { preload, transaction };
}

/** What a promise has come to by now. */
const stateOf = (promise: Promise<unknown>) =>
  Promise.race([
    promise.then(
      (value) => (value === undefined ? 'resolved' : value),
      () => 'rejected',
    ),
    new Promise((resolve) => setImmediate(() => resolve('pending'))),
  ]);

test('a preload is copied, waits for its turn, and commits', async () => {
  const { preload, transaction } = fixture();
  expect(preload.state).toBe('queued');
  expect(preload.beginCopying()).toBe(true);
  expect([preload.state, preload.isSettled]).toEqual(['copying', false]);
  expect([await stateOf(preload.settled), await stateOf(preload.turn)]).toEqual(['pending', 'pending']);
  preload.hasCopied();
  expect([preload.state, preload.isSettled]).toEqual(['copied', true]);
  expect([await stateOf(preload.settled), await stateOf(preload.turn)]).toEqual(['resolved', 'pending']);
  const result = preload.commit();
  expect(preload.state).toBe('committing');
  expect([await stateOf(preload.turn), await stateOf(result), await stateOf(preload.ended)]).toEqual([
    'resolved',
    'pending',
    'pending',
  ]);
  transaction.resolve(committed);
  expect(await result).toBe(committed);
  await preload.ended;
  expect(preload.state).toBe('committing');
});

test.each(['queued', 'copying', 'copied'])(
  'a transaction that ends while the preload is %s abandons it, and the bulk is not written',
  async (state) => {
    for (const how of ['resolve', 'reject'] as const) {
      const { preload, transaction } = fixture();
      if (state !== 'queued') preload.beginCopying();
      if (state === 'copied') preload.hasCopied();
      if (how === 'resolve') transaction.resolve(undefined);
      else transaction.reject(new Error('its own'));
      await preload.settled;
      await preload.ended;
      expect([preload.state, preload.isSettled]).toEqual(['abandoned', true]);
      expect(await preload.commit()).toBeUndefined();
    }
  },
);

test('a commit that finds another head or catalog abandons the preload', async () => {
  const { preload, transaction } = fixture();
  preload.beginCopying();
  preload.hasCopied();
  const result = preload.commit();
  transaction.resolve(undefined);
  expect(await result).toBeUndefined();
  expect(preload.state).toBe('abandoned');
});

test('a commit with an unknown outcome is not abandoned, and rejects', async () => {
  const { preload, transaction } = fixture();
  preload.beginCopying();
  preload.hasCopied();
  const result = preload.commit();
  const abandoned = preload.abandon();
  expect(preload.state).toBe('committing');
  transaction.reject(new CommitUnknownError(new Error('no answer')));
  await expect(result).rejects.toThrow(CommitUnknownError);
  await abandoned;
  expect([preload.state, await stateOf(preload.ended)]).toEqual(['committing', 'resolved']);
});

test('a queued preload is abandoned at once and never copies', async () => {
  const { preload } = fixture();
  await preload.abandon();
  expect([preload.state, preload.beginCopying()]).toEqual(['abandoned', false]);
  expect(await preload.commit()).toBeUndefined();
});

test.each(['copying', 'copied'])(
  'a preload that is abandoned while %s is out of the way when its transaction has ended',
  async (state) => {
    for (const how of ['resolve', 'reject'] as const) {
      const { preload, transaction } = fixture();
      preload.beginCopying();
      if (state === 'copied') preload.hasCopied();
      const abandoned = preload.abandon();
      preload.hasCopied();
      expect([preload.state, await stateOf(preload.turn)]).toEqual(['abandoned', 'rejected']);
      expect(await stateOf(abandoned)).toBe('pending');
      if (how === 'resolve') transaction.resolve(undefined);
      else transaction.reject(new Error('its own'));
      await abandoned;
      expect(await preload.commit()).toBeUndefined();
    }
  },
);

test('a copied preload gives up after a second without its turn, one that commits does not', async () => {
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  try {
    const [waiting, committing] = [fixture().preload, fixture().preload];
    for (const preload of [waiting, committing]) {
      preload.beginCopying();
      preload.hasCopied();
    }
    jest.advanceTimersByTime(999);
    expect(await stateOf(waiting.turn)).toBe('pending');
    void committing.commit();
    jest.advanceTimersByTime(1);
    expect([waiting.state, await stateOf(waiting.turn)]).toEqual(['abandoned', 'rejected']);
    expect(committing.state).toBe('committing');
  } finally {
    jest.useRealTimers();
  }
});

test('transitions out of order are errors', async () => {
  const { preload } = fixture();
  expect(() => preload.hasCopied()).toThrow('a preload went from queued to copied');
  await expect(preload.commit()).rejects.toThrow('a preload went from queued to committing');
  preload.beginCopying();
  expect(() => preload.beginCopying()).toThrow('a preload went from copying to copying');
  await expect(preload.commit()).rejects.toThrow('a preload went from copying to committing');
  preload.hasCopied();
  void preload.commit();
  expect(() => preload.hasCopied()).toThrow('a preload went from committing to copied');
  await expect(preload.commit()).rejects.toThrow('a preload went from committing to committing');
});

test('a transaction that commits before its turn is a commit with an unknown outcome', async () => {
  const { preload, transaction } = fixture();
  preload.beginCopying();
  preload.hasCopied();
  transaction.resolve(committed);
  await preload.ended;
  await expect(preload.commit()).rejects.toThrow(CommitUnknownError);
});

test('writes conflict that have an id in common, or may have', () => {
  const one = writeOf('films', ['a', 'b']);
  expect(conflicts(one, writeOf('films', ['c', 'b', 'd']))).toBe(true);
  expect(conflicts(one, writeOf('films', ['c']))).toBe(false);
  expect(conflicts(one, writeOf('other', ['a']))).toBe(false);
  expect(conflicts(one, writeOf('films', undefined))).toBe(true);
  expect(conflicts(writeOf('films', undefined), one)).toBe(true);
  expect(conflicts(writeOf('other', undefined), one)).toBe(false);
});
