import { randomUUID } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import path from 'node:path';
import type { DatabaseUrls } from './granary-databases';
import type { GranaryHost } from './granary-host';
import type { OwnGranary } from './own-granary';
import { optionsWith, type Settings, type Transport } from './granary-settings';

export type Embedded = Exclude<Transport, 'stack'>;

/**
 * Starts a Granary with all services in the process of `host`, beside others, with its folder in that of the run. A
 * restart may change its url. The process ends when a lent one fails.
 */
export async function startHostedGranary(
  host: GranaryHost,
  transport: Embedded,
  databaseUrls: DatabaseUrls,
  settings?: Settings,
  how: 'lend' | 'start' = 'start',
): Promise<OwnGranary> {
  const directory = await mkdtemp(path.join(host.directory, 'granary-'));
  const name = randomUUID();
  const options = { ...optionsWith(settings), name, databaseUrls, directory, transport };
  let { url } = await host.ask<{ url: string }>(how, options);
  return {
    get url() {
      return url;
    },
    databaseUrls,
    metricsAddresses: [],
    restart: async () => {
      ({ url } = await host.ask<{ url: string }>('restart', { name }));
    },
    stop: () => host.ask('stop', { name }),
  };
}
