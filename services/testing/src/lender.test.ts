import { Lender, type Place } from './lender';

/** A lender whose places `crash` ends one after the other, and who writes down what stops. */
function lender() {
  const stops: string[] = [];
  const crashes: Array<(how: string) => void> = [];
  const crash = async (place: number, how: string) => {
    crashes[place]!(how);
    await new Promise(setImmediate);
  };
  const opened = jest.fn<Place<string, { url: string; stop(): Promise<void> }>, []>(() => ({
    start: (what) => {
      const url = `${what} of ${crashes.length}`;
      return Promise.resolve({ url, stop: () => Promise.resolve(void stops.push(url)) });
    },
    crashed: new Promise((resolve) => crashes.push(resolve)),
    stop: () => Promise.resolve(),
  }));
  return { lends: new Lender('The lent one', idleMs, async () => opened()), opened, crash, stops };
}
const idleMs = 30_000;
const says = (url: string) =>
  expect.objectContaining({ instance: expect.objectContaining({ url }) as object }) as object;

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['setImmediate'] });
  jest.spyOn(console, 'error').mockImplementation(() => undefined);
});
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

test('what is lent starts once for all who have it', async () => {
  const { lends, opened } = lender();
  const got = await Promise.all([lends.lend('direct', 'a'), lends.lend('direct', 'b'), lends.lend('wire', 'c')]);
  expect(got).toEqual([says('direct of 1'), says('direct of 1'), says('wire of 1')]);
  expect(opened).toHaveBeenCalledTimes(1);
  for (const { id } of got) lends.takeBack(id);
});

test('whoever has it when it crashes fails and is named, the next gets another one, and after a second crash nobody', async () => {
  const { lends, crash, opened } = lender();
  const before = await lends.lend('direct', 'before');
  lends.takeBack(before.id);
  const first = [await lends.lend('direct', 'one'), await lends.lend('wire', 'two')];
  await crash(0, 'It has ended.');
  const again = await lends.lend('direct', 'three');
  const sentence = 'The lent one has crashed while these suites had it: one, two. It has ended.';
  for (const { id } of first) expect(() => lends.takeBack(id)).toThrow(sentence);
  expect(console.error).toHaveBeenCalledWith(expect.stringContaining(sentence));
  expect(again).toEqual(says('direct of 2'));
  await crash(1, 'It has ended again.');
  await expect(lends.lend('direct', 'four')).rejects.toThrow(/one, two.*three\. It has ended again/);
  expect(() => lends.takeBack(again.id)).toThrow('three');
  expect(opened).toHaveBeenCalledTimes(2);
});

test('what nobody has had for a while is stopped, and starts anew for the next', async () => {
  const { lends, stops } = lender();
  const [one, two] = [await lends.lend('direct', 'one'), await lends.lend('direct', 'two')];
  lends.takeBack(one.id);
  await jest.advanceTimersByTimeAsync(2 * idleMs);
  lends.takeBack(two.id);
  await jest.advanceTimersByTimeAsync(idleMs - 1);
  const three = await lends.lend('direct', 'three');
  await jest.advanceTimersByTimeAsync(2 * idleMs);
  expect([stops, three.instance]).toEqual([[], two.instance]);
  lends.takeBack(three.id);
  await jest.advanceTimersByTimeAsync(idleMs);
  expect(stops).toEqual(['direct of 1']);
  expect((await lends.lend('direct', 'four')).instance).not.toBe(three.instance);
  await lends.stop();
  expect(stops).toEqual(['direct of 1', 'direct of 1']);
});

test('what did not stop when nobody had it fails the end', async () => {
  const open = () =>
    Promise.resolve({
      start: () => Promise.resolve({ stop: () => Promise.reject(new Error('it hangs')) }),
      crashed: new Promise<string>(() => undefined),
      stop: () => Promise.resolve(),
    });
  const lends = new Lender('The lent one', idleMs, open);
  lends.takeBack((await lends.lend('direct', 'one')).id);
  await jest.advanceTimersByTimeAsync(idleMs);
  await expect(lends.stop()).rejects.toMatchObject({
    message: 'The lent one did not stop',
    errors: [new Error('it hangs')],
  });
});

test('what cannot start fails for each who wants it, with the reason', async () => {
  const lends = new Lender('The lent one', idleMs, () => Promise.reject(new Error('no room')));
  for (const suite of ['a', 'b']) await expect(lends.lend('direct', suite)).rejects.toThrow('no room');
  await lends.stop();
});
