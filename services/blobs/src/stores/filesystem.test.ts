import fs from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openFilesystemStore } from './filesystem';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-objects-'));
});
afterEach(async () => {
  jest.restoreAllMocks();
  await rm(directory, { recursive: true, force: true });
});

/** A disk that takes a moment to create a file, as one does that others sync. */
function slowDisk(delayMs: number): void {
  const { open } = fs;
  jest.spyOn(fs, 'open').mockImplementation((...args: Parameters<typeof fs.open>) => {
    setTimeout(() => open(...args), delayMs);
  });
}

test.each([0, 5, 60])(
  'bytes whose source fails after %i ms leave no file, however slow the disk is',
  async (afterMs) => {
    const store = await openFilesystemStore(directory);
    slowDisk(30);
    async function* failing(): AsyncGenerator<Buffer> {
      yield Buffer.from('a part');
      await delay(afterMs);
      throw new Error('the client has gone');
    }
    await expect(store.receive(failing())).rejects.toThrow('the client has gone');
    await delay(60);
    expect(await readdir(join(directory, 'tmp'))).toEqual([]);
  },
);
