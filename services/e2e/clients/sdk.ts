import { createClient, type OnChainDBClient } from '@onchaindb/sdk';
import { newApp, type Granary, type TestApp } from '../support/granary';
import { startGranary, type GranaryOptions } from '../support/own-granary';

/** Granary, and the published client `@onchaindb/sdk` as its users have it, for an app of its own. */
export interface SdkFixture {
  granary: Granary;
  app: TestApp;
  client: OnChainDBClient;
  stop(): Promise<void>;
}

export async function startSdkFixture(options?: GranaryOptions): Promise<SdkFixture> {
  // The client writes a log of its own to the console.
  for (const level of ['log', 'warn', 'error'] as const) jest.spyOn(console, level).mockImplementation(() => undefined);
  const granary = await startGranary('direct', options);
  const app = await newApp(granary);
  return {
    granary,
    app,
    client: createClient({ endpoint: granary.url, appId: app.appId, appKey: app.key }),
    stop: async () => {
      await granary.stop();
      jest.restoreAllMocks();
    },
  };
}

export interface Film extends Record<string, unknown> {
  id: string;
  title: string;
  year: number;
}

export const films: Film[] = [
  { id: 'f1', title: 'Heat', year: 1995, genre: 'crime', seen: true, studio: { city: 'Burbank' }, rating: 8.3 },
  { id: 'f2', title: 'Ronin', year: 1998, genre: 'crime', seen: false, studio: { city: 'Los Angeles' }, rating: 7.2 },
  { id: 'f3', title: 'Big', year: 1988, genre: 'comedy', seen: true, studio: { city: 'Burbank' }, rating: null },
];
