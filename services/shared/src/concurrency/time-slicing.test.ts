import { runToCompletion, runSliced, type Task } from './time-slicing';
import { countTurns } from '@granary/testing/event-loop';

/** A clock by which each step takes a whole slice. */
const slowClock = () => {
  let ms = 0;
  return () => (ms += 1);
};

let turns: ReturnType<typeof countTurns>;
beforeEach(() => {
  turns = countTurns();
});
afterEach(() => turns.stop());

/** A work of so many steps that notes each of them with the turn of the event loop. */
function* noting(name: string, count: number, notes: Array<{ name: string; turn: number }>): Task<string> {
  for (let step = 0; step < count; step += 1) {
    notes.push({ name, turn: turns.count() });
    yield;
  }
  return `${name} has ended`;
}

/** The names of the works that had a slice, in order, with how many each had in a row. */
const inOrder = (notes: ReadonlyArray<{ name: string }>): string =>
  notes
    .map(({ name }) => name)
    .join('')
    .replace(/(.)\1*/g, (row: string, name: string) => ` ${name}${row.length}`)
    .trim();

test('a work gives its result and its error, in one go and in slices', async () => {
  function* failing(): Task<never> {
    yield;
    throw new Error('the second step');
  }
  expect(runToCompletion(noting('a', 3, []))).toBe('a has ended');
  expect(() => runToCompletion(failing())).toThrow('the second step');
  for (const priority of [false, true]) {
    expect(await runSliced(noting('a', 3, []), { priority, now: slowClock() })).toBe('a has ended');
    await expect(runSliced(failing(), { priority, now: slowClock() })).rejects.toThrow('the second step');
  }
});

test('a slice holds the steps of a millisecond', async () => {
  const notes: Array<{ name: string; turn: number }> = [];
  let looks = 0;
  await runSliced(noting('a', 12, notes), { now: () => (looks += 1) / 4 });
  const perTurn = new Map<number, number>();
  for (const { turn } of notes) perTurn.set(turn, (perTurn.get(turn) ?? 0) + 1);
  expect([...perTurn.values()]).toEqual([4, 4, 4]);
});

test('of works that begin together each turn of the event loop has one slice, and they end one after the other', async () => {
  const notes: Array<{ name: string; turn: number }> = [];
  await Promise.all(['a', 'b', 'c'].map((name) => runSliced(noting(name, 5, notes), { now: slowClock() })));
  expect(inOrder(notes)).toBe('a5 b5 c5');
  // A work ends with a slice of its own, which the next one's first does not share.
  const used = notes.map(({ turn }) => turn);
  expect(new Set(used).size).toBe(used.length);
});

test('a long work lets others go before it goes on', async () => {
  const notes: Array<{ name: string; turn: number }> = [];
  const works = [noting('a', 40, notes), noting('b', 20, notes), noting('c', 3, notes)];
  await Promise.all(works.map((work) => runSliced(work, { now: slowClock() })));
  expect(inOrder(notes)).toBe('a16 b16 c3 a16 b4 a8');
});

test('a work that goes first begins at once, and others go on after it', async () => {
  const notes: Array<{ name: string; turn: number }> = [];
  const now = slowClock();
  const works = [runSliced(noting('a', 4, notes), { now }), runSliced(noting('b', 2, notes), { now })];
  works.push(runSliced(noting('u', 3, notes), { priority: true, now }));
  await Promise.all(works);
  expect(inOrder(notes)).toBe('a1 u3 a3 b2');
});
