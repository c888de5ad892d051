import { readConfig, type Environment } from '@granary/shared/config';
import { makeSeedFile } from '@granary/shared/keys/seed-file';
import { z } from 'zod';
import { schemes } from './schemes/schemes';

const seedConfig = z.object({ X402_KEY_FILE: z.string({ error: 'the file of the seed is needed' }).min(1) });

/**
 * The command `seed`: makes the file that X402_KEY_FILE names unless it is there, and prints the addresses of its
 * accounts, which have to be sent what pays gas and fees. Throws a KeyFileError for a file that is there and cannot be
 * used.
 */
export async function showGasAccounts(environment: Environment): Promise<void> {
  const { X402_KEY_FILE: path } = readConfig(seedConfig, environment);
  await makeSeedFile(path);
  for (const scheme of schemes) {
    if (scheme.feeAccount) process.stdout.write(`${await scheme.feeAccount(path)}\n`);
  }
}
