import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newSecret } from '@granary/shared/ids';

/** Returns a secret that is generated at the first start and stored in a file that only its owner can read. */
export async function keptSecret(dataDir: string, name: string, prefix: string): Promise<string> {
  const path = join(dataDir, name);
  const kept = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  if (kept.trim() !== '') return kept.trim();
  const secret = newSecret(prefix);
  const file = await open(path, 'w', 0o600);
  try {
    await file.writeFile(`${secret}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  return secret;
}
