import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { DatabaseUrls } from './granary-databases';
import type { GranaryHost } from './granary-host';
import type { OwnGranary } from './own-granary';
import { optionsWith, type Settings, type Transport } from './granary-settings';

/**
 * Starts a Granary for one suite, with all services in the process of `host`, beside those of other suites. A restart may
 * change its url.
 */
export async function startHostedGranary(
  host: GranaryHost,
  transport: Exclude<Transport, 'stack'>,
  databaseUrls: DatabaseUrls,
  settings?: Settings,
): Promise<OwnGranary> {
  const directory = await mkdtemp(path.join(tmpdir(), 'granary-suite-'));
  const name = randomUUID();
  const options = { ...optionsWith(settings), name, databaseUrls, directory, transport };
  let { url } = await host.ask<{ url: string }>('start', options);
  return {
    get url() {
      return url;
    },
    databaseUrls,
    metricsAddresses: [],
    restart: async () => {
      ({ url } = await host.ask<{ url: string }>('restart', { name }));
    },
    stop: async () => {
      await host.ask('stop', { name });
      await rm(directory, { recursive: true, force: true });
    },
  };
}
