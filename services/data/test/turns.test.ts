import { Cancellation, neverAborted } from '@granary/shared/grpc/cancellation';
import { Turns } from '../src/turns';

/** Works that end when they are told to, and the order in which they began. */
function works(turns: Turns) {
  const begun: string[] = [];
  const ends: Array<() => void> = [];
  const ask = (appId: string, name = appId, signal = neverAborted) =>
    turns.run(appId, signal, () => {
      begun.push(name);
      return new Promise<string>((resolve) => ends.push(() => resolve(name)));
    });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return {
    begun,
    ask,
    settle,
    endNext: async () => {
      ends.shift()!();
      await settle();
    },
  };
}

test('an app that asks for much waits for itself, not the others for it', async () => {
  const { begun, ask, settle, endNext } = works(new Turns({ limit: 3, appLimit: 2, waitingMax: 100 }));
  const asked = Array.from({ length: 10 }, (_, at) => ask('flood', `flood ${at}`));
  asked.push(ask('calm', 'calm 0'), ask('calm', 'calm 1'), ask('other', 'other 0'));
  await settle();
  expect(begun).toEqual(['flood 0', 'flood 1', 'calm 0']);
  await endNext();
  await endNext();
  // Whose turn was longest ago comes first.
  expect(begun.slice(3)).toEqual(['other 0', 'flood 2']);
  await endNext();
  expect(begun.slice(5)).toEqual(['calm 1']);
  for (let left = 13 - 3; left > 0; left--) await endNext();
  expect((await Promise.all(asked)).sort()).toEqual([...begun].sort());
  expect(begun).toHaveLength(13);
});

test('a place is given back by a work that fails', async () => {
  const turns = new Turns({ limit: 1, appLimit: 1, waitingMax: 1 });
  for (let round = 0; round < 3; round++) {
    await expect(turns.run('a', neverAborted, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  }
  expect(await turns.run('a', neverAborted, () => Promise.resolve(1))).toBe(1);
});

test('who has gone is passed over, and who finds too many of his app waiting is told so', async () => {
  const { begun, ask, settle, endNext } = works(new Turns({ limit: 1, appLimit: 1, waitingMax: 2 }));
  const gone = new Cancellation();
  const first = ask('a', 'first');
  const second = ask('a', 'second', gone);
  const third = ask('a', 'third');
  await expect(ask('a', 'fourth')).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'TOO_MANY_REQUESTS' });
  const other = ask('b', 'other');
  gone.abort();
  await expect(second).rejects.toMatchObject({ code: 'CANCELLED' });
  const fifth = ask('a', 'fifth');
  for (let left = 4; left > 0; left--) await endNext();
  await settle();
  expect(await Promise.all([first, third, fifth, other])).toEqual(['first', 'third', 'fifth', 'other']);
  expect(begun).toEqual(['first', 'other', 'third', 'fifth']);
  await expect(ask('a', 'late', gone)).rejects.toMatchObject({ code: 'CANCELLED' });
  expect(begun).toHaveLength(4);
});
