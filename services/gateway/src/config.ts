import { z } from 'zod';
import { optionalText, publicUrl, serviceAddress, whole, wrongConfig } from '@granary/shared/config';
import { hostPorts } from '@granary/shared/host-port';
import {
  blobSettings,
  commonConfig,
  connectionSettings,
  healthSettings,
  leavingSettings,
} from '@granary/shared/service/common-config';
import { telemetrySettings } from '@granary/shared/telemetry/settings';
import { readSecret } from '@granary/shared/trust/setting-file';
import { trustSettings } from '@granary/shared/trust/settings';

/** `false`, `true`, a number of hops, or a comma-separated list of addresses and networks: Express's `trust proxy`. */
const trustProxy = z
  .string()
  .default('false')
  .transform((text) => {
    if (text === 'false') return false;
    if (text === 'true') return true;
    return /^\d{1,3}$/.test(text) ? Number(text) : text;
  });

/** An origin as browsers name it: in small letters, without the port of its scheme; undefined for text that is none. */
function originOf(text: string): string | undefined {
  // Apps have schemes of their own (capacitor://localhost), whose origin URL does not tell.
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+\/?$/i.test(text) || !URL.canParse(text)) return undefined;
  const { origin } = new URL(text);
  return origin === 'null' ? text.replace(/\/$/, '') : origin;
}

/** `*`, or origins separated by commas. */
const corsOrigins = z
  .string()
  .default('*')
  .transform((text, context): '*' | readonly string[] => {
    if (text === '*') return '*';
    const names = text.split(',').map((name) => name.trim());
    const wrong = names.find((name) => originOf(name) === undefined);
    if (wrong === undefined) return names.map((name) => originOf(name)!);
    const https = originOf(`https://${wrong}`);
    const meant = https === undefined ? '' : `; did you mean ${https}?`;
    context.addIssue(`${JSON.stringify(wrong)} is no origin, which is a scheme, a host and perhaps a port${meant}`);
    return z.NEVER;
  });

const operatorKeyLengthMin = 16;
const operatorKeyRule = `at least ${operatorKeyLengthMin} characters are needed`;

/** The settings that bound how much memory and how many connections and places in queues clients can hold. */
export const clientLimitSettings = {
  APP_BUDGET_PERCENT: whole(1, 100)
    .default(50)
    .describe('Percentage of `BODY_BUDGET_BYTES` that one app may hold, at least 33 MiB.'),
  CLIENT_BUDGET_PERCENT: whole(1, 100)
    .default(50)
    .describe('Percentage of `BODY_BUDGET_BYTES` that one client address may hold, at least 33 MiB.'),
  SMALL_BODY_RESERVE_PERCENT: whole(0, 50)
    .default(12)
    .describe('Percentage of `BODY_BUDGET_BYTES` that is reserved for bodies of up to 64 KiB.'),
  WAITING_BODIES: whole(1, 1_000_000).default(1_024).describe('Requests whose body has not arrived, in total.'),
  WAITING_BODIES_PER_APP: whole(1, 1_000_000).default(512).describe('Requests of one app whose body has not arrived.'),
  WAITING_BODIES_PER_CLIENT: whole(1, 1_000_000)
    .default(512)
    .describe('Requests of one client address whose body has not arrived.'),
  BODY_MIN_BYTES_PER_SECOND: whole(0, 1024 ** 3)
    .default(1_024)
    .describe('Minimum rate of a body, averaged over each `BODY_GRACE_MS`; 0: none.'),
  BODY_GRACE_MS: whole(250, 600_000)
    .default(5_000)
    .describe('The period over which `BODY_MIN_BYTES_PER_SECOND` is averaged.'),
  READER_MIN_BYTES_PER_SECOND: whole(0, 1024 ** 3)
    .default(4_096)
    .describe('Minimum rate at which an answer is read, averaged over each `READER_GRACE_MS`; 0: none.'),
  READER_GRACE_MS: whole(250, 600_000)
    .default(20_000)
    .describe('The period over which `READER_MIN_BYTES_PER_SECOND` is averaged.'),
  HEAD_TIMEOUT_MS: whole(1_000, 600_000).default(10_000).describe('Time in which the head of a request must arrive.'),
  CONNECTIONS: whole(16, 1_000_000)
    .default(8_192)
    .describe(
      'Open connections. When all are taken, the oldest idle one of the client that has the most is closed, or else the new one is refused with 503. Allow the process more file descriptors than that.',
    ),
  PIPELINED_REQUESTS: whole(1, 10_000)
    .default(8)
    .describe('Pipelined requests of one connection that are processed concurrently; their answers are sent in order.'),
  UNKNOWN_LOOKUPS: whole(1, 1_000)
    .default(4)
    .describe('Concurrent look-ups of apps and keys that are not known to exist.'),
};

/** The limits of change feeds. */
export const feedSettings = {
  FEED_STREAMS: whole(1, 1_000_000)
    .default(4_096)
    .describe(
      'Open [feeds](../feed.md) and waiting pages of changes. Each is a connection, so fewer than `CONNECTIONS`.',
    ),
  FEED_STREAMS_PER_APP: whole(1, 1_000_000).default(1_024).describe('Of one app.'),
  FEED_STREAMS_PER_KEY: whole(1, 1_000_000)
    .default(256)
    .describe('By one key; the tokens that it has made count for the app only.'),
  FEED_STREAMS_PER_CLIENT: whole(1, 1_000_000).default(8).describe('Of one client address without a key.'),
  FEED_STREAM_AGE_MS: whole(1_000, 86_400_000)
    .default(1_800_000)
    .describe('Age at which a feed ends, ± 20 %, and its client connects again.'),
};

/** The limits of exports. */
export const exportSettings = {
  EXPORTS: whole(1, 10_000)
    .default(8)
    .describe('Concurrent [exports](../import-export.md), each with some 4 MiB of memory; as many again may queue.'),
  EXPORTS_PER_APP: whole(1, 10_000).default(2).describe('Of one app.'),
};

/** The limits of imports. */
export const importSettings = {
  IMPORTS: whole(1, 10_000)
    .default(8)
    .describe('Concurrent [imports](../import-export.md), each with some 6 MiB of memory; as many again may queue.'),
  IMPORTS_PER_APP: whole(1, 10_000).default(4).describe('Of one app.'),
  IMPORT_MAX_BYTES: whole(1, Number.MAX_SAFE_INTEGER)
    .default(10 * 1024 ** 3)
    .describe('Size limit of a file that is imported, in bytes, decompressed.'),
};

/** The environment of the gateway. An address may be absent only for a service of the same process. */
export const gatewayConfig = z.object({
  HOST: z.string().min(1).default('127.0.0.1').describe('The address on which it listens.'),
  PORT: whole(0, 65_535).default(8080).describe('The port on which it listens; 0: any free one.'),
  PUBLIC_URL: publicUrl
    .optional()
    .describe(
      'The address at which clients reach it. If it is not set, the page at `/docs` uses the address of the request.',
    ),
  OPERATOR_KEY: z.string().min(operatorKeyLengthMin, operatorKeyRule).optional().meta({
    description: "The operator's key, at least 16 characters.",
    defaultText: 'required',
  }),
  OPERATOR_KEY_FILE: optionalText.describe("A file that holds the operator's key, in place of `OPERATOR_KEY`."),
  DATA_ADDRESS: serviceAddress('data, see [Replicas and rolling updates](scale.md#replicas-and-rolling-updates)'),
  BLOBS_ADDRESS: serviceAddress('blobs'),
  FINANCE_ADDRESS: serviceAddress('finance'),
  PAYMENTS_ADDRESS: serviceAddress('payments'),
  TASKS_ADDRESS: serviceAddress('tasks'),
  BLOBS_HTTP_ADDRESS: hostPorts.meta({
    description: 'host:port of the internal HTTP listener of blobs, or several, separated by commas.',
    defaultText: 'required',
  }),
  CORS_ORIGINS: corsOrigins.describe('`*`, or the allowed origins (`https://app.example.com`), separated by commas.'),
  TRUST_PROXY: trustProxy.describe(
    'The proxies whose forwarded headers count: `false`, `true`, a number of hops, or addresses and networks.',
  ),
  COMPRESSION: z
    .stringbool()
    .default(true)
    .describe('Whether answers are compressed for clients that accept `br` or `gzip`.'),
  COMPRESSION_CONCURRENCY: whole(1, 128)
    .default(2)
    .describe("Threads that compress concurrently, out of the four of Node's thread pool."),
  ...blobSettings,
  BODY_BUDGET_BYTES: whole(16 * 1024 ** 2, 64 * 1024 ** 3)
    .default(256 * 1024 ** 2)
    .describe('Request bodies and unsent answers in memory.'),
  CALL_BUFFER_BYTES: whole(1024 ** 2, 64 * 1024 ** 3)
    .default(64 * 1024 ** 2)
    .describe('Requests to one service that wait to be sent. When it is full, further ones get 429.'),
  CONCURRENCY: whole(1, 100_000)
    .default(512)
    .describe('Requests processed concurrently, transfers and feeds apart; as many again may queue.'),
  QUEUE_TIMEOUT_MS: whole(0, 60_000).default(1_000).describe('Time in the queue, then 503.'),
  APP_CONCURRENCY: whole(1, 100_000)
    .default(16)
    .describe(
      'Short requests of one app processed concurrently while other apps send requests too; fewer if its answers exceed 8 KiB.',
    ),
  STREAM_CONCURRENCY: whole(1, 100_000)
    .default(256)
    .describe('Concurrent uploads, and as many downloads; as many again may queue for `QUEUE_TIMEOUT_MS`.'),
  STREAM_APP_PERCENT: whole(1, 100)
    .default(75)
    .describe('Percentage of the uploads, and of the downloads, that one app may use.'),
  STREAM_CLIENT_PERCENT: whole(1, 100)
    .default(25)
    .describe('Percentage of the uploads, and of the downloads, that one client address may use.'),
  TRANSFER_MIN_BYTES_PER_SECOND: whole(0, 1024 ** 3)
    .default(1_024)
    .describe('A client that sends an upload or reads a download more slowly is cut off; uploads get 408. 0: none is.'),
  UPLOAD_GRACE_MS: whole(250, 3_600_000)
    .default(20_000)
    .describe('The period over which the rate of an upload is averaged.'),
  DOWNLOAD_GRACE_MS: whole(250, 3_600_000)
    .default(60_000)
    .describe('The period over which the rate of a download is averaged.'),
  ...feedSettings,
  ...exportSettings,
  ...importSettings,
  REQUEST_TIMEOUT_MS: whole(100, 600_000).default(10_000).describe('Deadline of a request, transfers of blobs apart.'),
  PAYMENT_TIMEOUT_MS: whole(1_000, 600_000)
    .default(60_000)
    .describe(
      'How long a request waits for the block of its payment, in place of `REQUEST_TIMEOUT_MS`; longer than `X402_SETTLE_WAIT_MS`.',
    ),
  BODY_TIMEOUT_MS: whole(100, 600_000)
    .default(30_000)
    .describe('Time in which the body of a request must arrive, uploads of blobs apart.'),
  UPLOAD_TIMEOUT_MS: whole(1_000, 86_400_000)
    .default(3_600_000)
    .describe('Time in which the upload of a blob must arrive; then 408.'),
  IDLE_TIMEOUT_MS: whole(1_000, 3_600_000)
    .default(60_000)
    .describe('A connection without progress for this long is cut off.'),
  KEEP_ALIVE_TIMEOUT_MS: whole(0, 3_600_000)
    .default(65_000)
    .describe('Idle time after which a kept-alive connection is closed.'),
  LOG_LEVEL: commonConfig.shape.LOG_LEVEL,
  ...clientLimitSettings,
  ...trustSettings,
  ...telemetrySettings,
  ...leavingSettings,
  ...connectionSettings,
  ...healthSettings,
});

/** The operator's key of a configuration. Throws a ConfigError when there is none, or it is too short. */
export function operatorKeyOf(config: Pick<GatewayConfig, 'OPERATOR_KEY' | 'OPERATOR_KEY_FILE'>): string {
  const key = readSecret(config, 'OPERATOR_KEY');
  if (key === undefined) throw wrongConfig([['OPERATOR_KEY', 'either it or OPERATOR_KEY_FILE is needed']]);
  if (key.length < operatorKeyLengthMin) throw wrongConfig([['OPERATOR_KEY_FILE', operatorKeyRule]]);
  return key;
}

export type GatewayConfig = Readonly<z.infer<typeof gatewayConfig>>;
