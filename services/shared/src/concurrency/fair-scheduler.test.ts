import { Cancellation, neverAborted } from './cancellation';
import { Presence } from './active-apps';
import { Turns, type TurnLimits } from './fair-scheduler';

let nowMs = 0;
beforeEach(() => {
  nowMs = 0;
});

/** Turns of apps whose share is their limit, and that do not rest, if nothing else is said. */
const turnsOf = (
  limits: Omit<TurnLimits, 'share' | 'restFactor'> & { share?: number; restFactor?: number },
  presence = new Presence(),
) => new Turns({ share: limits.appLimit, restFactor: 0, ...limits }, presence, () => nowMs);

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
      while (ends.length === 0) await settle();
      ends.shift()!();
      await settle();
    },
  };
}

test('an app that asks for much waits for itself, not the others for it', async () => {
  const { begun, ask, settle, endNext } = works(turnsOf({ limit: 3, appLimit: 2, waitingMax: 100 }));
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
  const turns = turnsOf({ limit: 1, appLimit: 1, waitingMax: 1 });
  for (let round = 0; round < 3; round++) {
    await expect(turns.run('a', neverAborted, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  }
  expect(await turns.run('a', neverAborted, () => Promise.resolve(1))).toBe(1);
});

test('who has gone is passed over, and who finds too many of his app waiting is told so', async () => {
  const { begun, ask, settle, endNext } = works(turnsOf({ limit: 1, appLimit: 1, waitingMax: 2 }));
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

test('while others are there an app has its share, and all that it may have once it is alone', async () => {
  const presence = new Presence();
  const { begun, ask, settle, endNext } = works(
    turnsOf({ limit: 4, appLimit: 3, share: 1, waitingMax: 100 }, presence),
  );
  presence.see('calm', 0);
  presence.see('flood', 0);
  const asked = Array.from({ length: 5 }, (_, at) => ask('flood', `flood ${at}`));
  asked.push(ask('calm', 'calm'));
  await settle();
  expect(begun).toEqual(['flood 0', 'calm']);
  await endNext();
  expect(begun.slice(2)).toEqual(['flood 1']);
  // A second after the others were seen last.
  nowMs = 1_001;
  presence.see('flood', nowMs);
  await endNext();
  expect(begun.slice(3)).toEqual(['flood 2']);
  asked.push(ask('flood', 'flood 5'));
  await settle();
  expect(begun.slice(4)).toEqual(['flood 5']);
  for (let left = 7 - 2; left > 0; left--) await endNext();
  expect((await Promise.all(asked)).sort()).toEqual([...begun].sort());
  expect(begun).toHaveLength(7);
});

test('a work that takes long does not hold up the others of its app, as far as that may have any', async () => {
  const presence = new Presence();
  const { begun, ask, settle, endNext } = works(
    turnsOf({ limit: 4, appLimit: 2, share: 1, waitingMax: 100 }, presence),
  );
  presence.see('calm', 0);
  presence.see('flood', 0);
  const asked = [ask('flood', 'slow'), ask('flood', 'flood 1'), ask('flood', 'flood 2')];
  await settle();
  expect(begun).toEqual(['slow']);
  nowMs = 250;
  presence.see('calm', nowMs);
  presence.see('flood', nowMs);
  // Turns look by the real clock.
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(begun).toEqual(['slow', 'flood 1']);
  nowMs = 500;
  presence.see('calm', nowMs);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(begun).toEqual(['slow', 'flood 1']);
  for (let left = 3; left > 0; left--) await endNext();
  expect(await Promise.all(asked)).toEqual(['slow', 'flood 1', 'flood 2']);
});

test('beside others a place rests in proportion to what its work took, for its own app, and not for ever', async () => {
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  try {
    const presence = new Presence();
    const limits = { limit: 2, appLimit: 1, restFactor: 3, waitingMax: 100 };
    const { begun, ask, settle, endNext } = works(turnsOf(limits, presence));
    presence.see('calm', 0);
    presence.see('flood', 0);
    const asked = [ask('flood', 'flood 0'), ask('flood', 'flood 1'), ask('flood', 'flood 2'), ask('calm', 'calm 0')];
    asked.push(ask('calm', 'calm 1'));
    nowMs = 10;
    await endNext();
    expect(begun).toEqual(['flood 0', 'calm 0']);
    jest.advanceTimersByTime(29);
    await settle();
    expect(begun).toEqual(['flood 0', 'calm 0']);
    jest.advanceTimersByTime(1);
    await settle();
    expect(begun.slice(2)).toEqual(['flood 1']);
    await endNext();
    // What one app rests the other does not wait for.
    nowMs = 900;
    await endNext();
    jest.advanceTimersByTime(49);
    await settle();
    expect(begun.slice(3)).toEqual(['calm 1']);
    jest.advanceTimersByTime(1);
    await settle();
    expect(begun.slice(4)).toEqual(['flood 2']);
    // Who is alone does not rest.
    nowMs = 2_000;
    presence.see('flood', nowMs);
    asked.push(ask('flood', 'flood 3'));
    await endNext();
    await endNext();
    expect(begun.slice(5)).toEqual(['flood 3']);
    await endNext();
    expect((await Promise.all(asked)).sort()).toEqual([...begun].sort());
  } finally {
    jest.useRealTimers();
  }
});
