import path from 'node:path';
import { z } from 'zod';
import { ConfigError, optionalText, readConfig } from '@granary/shared/config';
import { chooseWalSync, walSyncMethods } from '@granary/local/postgres/wal-sync';
import { chooseDataDir, openSource } from '../backup/source';
import { defineCommand } from '../program/command';

const usage = `Tries both ways in which the bundled Postgres can make its log durable, and keeps the faster one in the data
directory, in place of a wal_sync_method that was set by hand. A first start does the same; repeat it once the data
directory is on another disk.

  npm run wal-sync [-- --data-dir <path>]

  --data-dir <path>   default: the data directory of npm start or npm run stack                 (DATA_DIR)
  -h, --help          prints this text

It takes a second. Granary may be running, and uses the result at once; what it writes meanwhile blurs the figures.`;

const config = z.object({ DATA_DIR: optionalText });

export const walSync = defineCommand({
  title: 'The trial',
  endsInOrder: true,
  usage,
  options: { 'data-dir': { type: 'string' } },
  settings: { 'data-dir': 'DATA_DIR' },
  run: async (_values, _positionals, { environment, directory, say }) => {
    const { DATA_DIR } = readConfig(config, environment);
    const source = await openSource(await chooseDataDir(DATA_DIR && path.resolve(directory, DATA_DIR)), say);
    try {
      const client = await source.connect('postgres');
      const choice = await chooseWalSync(client).finally(() => client.end());
      if (!choice) throw new ConfigError('Postgres has other defaults on this platform; nothing was tried.');
      for (const method of walSyncMethods) {
        const { commitUs, bulkUs } = choice.times[method];
        say(`${method.padEnd(13)} ${Math.round(commitUs)} µs a commit, ${Math.round(bulkUs)} µs a commit of 256 KB`);
      }
      say(`Postgres uses ${choice.method} in ${source.dataDir} from now on.`);
    } finally {
      await source.stop();
    }
  },
});
