import { Ahead, concern, type Copying } from './bulk-preload';
import type { Written } from './batch-writer';
import type { DocumentIds, Waiting, Write } from './write-queue';

const writeOf = (collection: string, ids: string[] | undefined): Write => {
  const known: DocumentIds | undefined = ids && { set: new Set(ids), count: ids.length };
  return { collection, ids: () => known } as Write;
};
const written = {} as Written;

/** A bulk whose writer does as it is told. */
function fixture() {
  let copying!: Copying;
  let end!: { resolve: (written: Written | undefined) => void; reject: (error: Error) => void };
  let lost = 0;
  const bulk = { write: writeOf('films', ['a', 'b']) } as Waiting;
  const ahead = new Ahead(
    bulk,
    1n,
    (given) => {
      copying = given;
      return new Promise((resolve, reject) => (end = { resolve, reject }));
    },
    () => (lost += 1),
  );
  return { ahead, copying, end, lost: () => lost };
}

/** What a promise has come to by now. */
const stateOf = (promise: Promise<unknown>) =>
  Promise.race([
    promise.then(
      () => 'resolved',
      () => 'rejected',
    ),
    new Promise((resolve) => setImmediate(() => resolve('pending'))),
  ]);

test('one that has been copied waits for its turn, and then for its end', async () => {
  const { ahead, copying, end, lost } = fixture();
  expect(copying.begins()).toBe(true);
  expect([await stateOf(ahead.settled), await stateOf(copying.turn)]).toEqual(['pending', 'pending']);
  copying.copied();
  expect([await stateOf(ahead.settled), await stateOf(copying.turn)]).toEqual(['resolved', 'pending']);
  const committed = ahead.commit();
  expect([await stateOf(copying.turn), await stateOf(committed)]).toEqual(['resolved', 'pending']);
  end.resolve(written);
  expect(await committed).toBe(written);
  expect([ahead.isLost, lost()]).toEqual([false, 0]);
});

test.each(['resolve', 'reject'] as const)('what ends before its turn is lost once, and settled (%s)', async (how) => {
  const { ahead, end, lost } = fixture();
  if (how === 'resolve') end.resolve(undefined);
  else end.reject(new Error('lost'));
  await ahead.settled;
  expect([ahead.isLost, ahead.isSettled, lost()]).toEqual([true, true, 1]);
  expect(await stateOf(ahead.commit())).toBe(how === 'resolve' ? 'resolved' : 'rejected');
  expect(lost()).toBe(1);
});

test('one that has not begun to copy is abandoned at once, and does not begin', async () => {
  const { ahead, copying, end, lost } = fixture();
  await ahead.abandon();
  expect(copying.begins()).toBe(false);
  end.resolve(undefined);
  await ahead.settled;
  expect(lost()).toBe(1);
});

test('one that copies is out of the way when it has ended, however it ends', async () => {
  const { ahead, copying, end } = fixture();
  copying.begins();
  const abandoned = ahead.abandon();
  expect([await stateOf(copying.turn), await stateOf(abandoned)]).toEqual(['rejected', 'pending']);
  end.reject(new Error('its own'));
  await abandoned;
});

test('a turn that does not come is refused after a while', async () => {
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  try {
    const { copying } = fixture();
    copying.begins();
    copying.copied();
    jest.advanceTimersByTime(999);
    expect(await stateOf(copying.turn)).toBe('pending');
    jest.advanceTimersByTime(1);
    expect(await stateOf(copying.turn)).toBe('rejected');
  } finally {
    jest.useRealTimers();
  }
});

test('writes concern each other that have an id in common, or may have', () => {
  const one = writeOf('films', ['a', 'b']);
  expect(concern(one, writeOf('films', ['c', 'b', 'd']))).toBe(true);
  expect(concern(one, writeOf('films', ['c']))).toBe(false);
  expect(concern(one, writeOf('other', ['a']))).toBe(false);
  expect(concern(one, writeOf('films', undefined))).toBe(true);
  expect(concern(writeOf('films', undefined), one)).toBe(true);
  expect(concern(writeOf('other', undefined), one)).toBe(false);
});
