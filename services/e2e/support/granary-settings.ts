import type { ConstellationOptions } from '@granary/local/start/constellation';
import { limitMs } from '@granary/testing/speed';

/** In one process, by calls or over gRPC; or as a stack: a process for each service, on Kafka and MinIO. */
export type Transport = 'direct' | 'wire' | 'stack';

export type Settings = NonNullable<ConstellationOptions['settings']>;
export type GatewaySettings = Record<string, string>;

export const operatorKey = 'operator-key-of-the-tests';

/** The settings that several suites share, by the name under which `borrowGranary` lends a Granary with them. */
export const variants = {
  plain: {},
  /** Payments on the simulated network settle within 100 ms, and an encrypted index costs nothing. */
  simulated: {
    payments: { X402_PAY_TO: 'simulated', ENCRYPTED_INDEX_UTIA: '0' },
    finance: { SIMULATED_BLOCK_MS: '100' },
  },
} satisfies Record<string, Settings>;
export type Variant = keyof typeof variants;

/** The options of each Granary of the tests, with these settings beyond them. */
export function optionsWith(settings: Settings = {}) {
  return {
    operatorKey,
    internalSecret: 'internal-secret-of-the-tests-0123456789',
    settings: {
      ...settings,
      // On a slow machine requests may take longer, and scans without a key too, for its users as for its tests.
      gateway: {
        REQUEST_TIMEOUT_MS: String(Math.min(limitMs(10_000), 600_000)),
        QUEUE_TIMEOUT_MS: String(Math.min(limitMs(1_000), 60_000)),
        ...settings.gateway,
      },
      data: { PUBLIC_READ_TIMEOUT_MS: String(Math.min(limitMs(2_000), 60_000)), ...settings.data },
    },
  };
}
