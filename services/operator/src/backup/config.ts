import { z } from 'zod';
import { optionalText } from '@granary/shared/config';

/** The environment of `npm run backup`. */
export const backupConfig = z.object({
  BACKUP_DIR: z.string({ error: 'say where to: npm run backup -- <directory>' }).min(1),
  DATA_DIR: optionalText,
  BACKUP_WITHOUT_SEED: z.stringbool().default(false),
});

/** The environment of `npm run restore`. */
export const restoreConfig = z.object({
  BACKUP_DIR: z.string({ error: 'say where from: npm run restore -- <directory>' }).min(1),
  /** Default: the data directory of `npm start`, or of `npm run stack` if the backup was taken from the stack. */
  DATA_DIR: optionalText,
  RESTORE_REPLACE: z.stringbool().default(false),
});
