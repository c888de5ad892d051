import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeNewFile } from './new-file';

test('a file that exists is left as it is', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'granary-new-file-'));
  const file = join(directory, 'file');
  async function* bytes(): AsyncGenerator<Buffer> {
    await Promise.resolve();
    yield Buffer.from('new');
  }
  try {
    await writeNewFile(file, bytes());
    expect(await readFile(file, 'utf8')).toBe('new');
    await writeFile(file, 'old');
    await expect(writeNewFile(file, bytes())).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readFile(file, 'utf8')).toBe('old');
  } finally {
    await rm(directory, { recursive: true });
  }
});
