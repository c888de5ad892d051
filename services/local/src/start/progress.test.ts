import { withProgress } from './progress';

beforeEach(() => jest.useFakeTimers());
afterEach(() => jest.useRealTimers());

async function linesOf(isWatched: boolean, lastsMs: number): Promise<string[]> {
  const lines: string[] = [];
  const work = () => new Promise<string>((resolve) => setTimeout(() => resolve('built'), lastsMs));
  const done = withProgress((line) => lines.push(line), 'Building', work, isWatched);
  await jest.advanceTimersByTimeAsync(lastsMs);
  expect(await done).toBe('built');
  return lines;
}

test('progress of an installation is printed every few seconds on a terminal', async () => {
  expect(await linesOf(true, 12_000)).toEqual([
    'Building …',
    'Building … 5 s',
    'Building … 10 s',
    'Building: done in 12 s',
  ]);
});

test('progress of an installation is printed once a minute to a log', async () => {
  expect(await linesOf(false, 130_000)).toEqual([
    'Building …',
    'Building … 1 min 0 s',
    'Building … 2 min 0 s',
    'Building: done in 2 min 10 s',
  ]);
});

test('progress of an installation stops when it fails', async () => {
  const lines: string[] = [];
  const work = () => Promise.reject(new Error('no network'));
  await expect(withProgress((line) => lines.push(line), 'Fetching', work, true)).rejects.toThrow('no network');
  await jest.advanceTimersByTimeAsync(60_000);
  expect(lines).toEqual(['Fetching …']);
});
