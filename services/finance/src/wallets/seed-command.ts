import { readConfig, type Environment } from '@granary/shared/config';
import { KeyFileError, makeSeedFile, newSeed } from '@granary/shared/keys/seed-file';
import { z } from 'zod';
import { financeConfig } from '../config';

const seedConfig = z.object({ KEY_FILE: financeConfig.shape.KEY_FILE.optional() });

/**
 * The command `seed`: makes the file that KEY_FILE names, or without KEY_FILE prints a new seed. Throws a KeyFileError
 * when there is such a file.
 */
export async function makeSeed(environment: Environment): Promise<void> {
  const { KEY_FILE: path } = readConfig(seedConfig, environment);
  if (path === undefined) process.stdout.write(newSeed());
  else if (!(await makeSeedFile(path))) throw new KeyFileError(`The key file ${path} exists: it was left as it is`);
}
