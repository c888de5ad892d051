import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { writeNewFile } from './new-file';

test('a file that exists is left as it is', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'granary-new-file-'));
  const file = join(directory, 'file');
  const write = () =>
    writeNewFile(file, Readable.from([Buffer.from('new')]), (chunks: AsyncIterable<Buffer>) => chunks);
  try {
    await write();
    expect(await readFile(file, 'utf8')).toBe('new');
    await writeFile(file, 'old');
    await expect(write()).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readFile(file, 'utf8')).toBe('old');
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('a write that is aborted while its source says nothing ends, and leaves neither the source open nor a file', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'granary-new-file-'));
  const silent = new Readable({ read: () => undefined });
  const aborting = new AbortController();
  try {
    const through = (chunks: AsyncIterable<Buffer>) => chunks;
    const writing = writeNewFile(join(directory, 'file'), silent, through, aborting.signal);
    aborting.abort();
    await expect(writing).rejects.toMatchObject({ name: 'AbortError' });
    expect(silent.destroyed).toBe(true);
    expect(await readdir(directory)).toEqual([]);
  } finally {
    await rm(directory, { recursive: true });
  }
});
