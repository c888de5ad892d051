import { z } from 'zod';
import { grpcAddress, publicUrl, whole, wrongConfig } from '@granary/shared/config';
import { hostPorts } from '@granary/shared/host-port';
import {
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

/** The environment of the gateway. An address may be absent only for a service of the same process. */
export const gatewayConfig = z.object({
  HOST: z.string().min(1).default('127.0.0.1'),
  PORT: whole(0, 65_535).default(8080),
  /** How clients reach the gateway; without it the gateway believes each request. */
  PUBLIC_URL: publicUrl.optional(),
  LOG_LEVEL: commonConfig.shape.LOG_LEVEL,
  /** The key of the operator, or the file that has it. */
  OPERATOR_KEY: z.string().min(operatorKeyLengthMin, operatorKeyRule).optional(),
  OPERATOR_KEY_FILE: z.string().min(1).optional(),
  ...trustSettings,
  ...telemetrySettings,
  ...leavingSettings,
  ...connectionSettings,
  ...healthSettings,
  DATA_ADDRESS: grpcAddress.optional(),
  BLOBS_ADDRESS: grpcAddress.optional(),
  FINANCE_ADDRESS: grpcAddress.optional(),
  PAYMENTS_ADDRESS: grpcAddress.optional(),
  TASKS_ADDRESS: grpcAddress.optional(),
  /** host:port of the internal HTTP listener of the blobs service, or several with commas between. */
  BLOBS_HTTP_ADDRESS: hostPorts,
  /** `*`, or the allowed origins separated by commas. */
  CORS_ORIGINS: corsOrigins,
  TRUST_PROXY: trustProxy,
  /** Whether answers are compressed for clients that accept it. */
  COMPRESSION: z.stringbool().default(true),
  /** Answers of which a step is compressed at once, each in a thread of Node's pool. */
  COMPRESSION_CONCURRENCY: whole(1, 128).default(2),
  MAX_BLOB_BYTES: whole(1, 1024 ** 4).default(1024 ** 3),
  /** Bytes of requests to one service that may wait to be sent; further ones are refused. */
  CALL_BUFFER_BYTES: whole(1024 ** 2, 64 * 1024 ** 3).default(64 * 1024 ** 2),
  /** Bytes of request bodies and answers that the process holds at the same time. */
  BODY_BUDGET_BYTES: whole(16 * 1024 ** 2, 64 * 1024 ** 3).default(256 * 1024 ** 2),
  /** The share of BODY_BUDGET_BYTES that one app may hold. */
  APP_BUDGET_PERCENT: whole(1, 100).default(50),
  /** The share of BODY_BUDGET_BYTES that one client address may hold. */
  CLIENT_BUDGET_PERCENT: whole(1, 100).default(50),
  /** The share of BODY_BUDGET_BYTES that is reserved for bodies of up to 64 KiB. */
  SMALL_BODY_RESERVE_PERCENT: whole(0, 50).default(12),
  /** Requests worked on at once, blobs apart; as many again may wait for `QUEUE_TIMEOUT_MS`. */
  CONCURRENCY: whole(1, 100_000).default(512),
  QUEUE_TIMEOUT_MS: whole(0, 60_000).default(1_000),
  /** Short requests of one app worked on at once while requests of other apps come too. */
  APP_CONCURRENCY: whole(1, 100_000).default(16),
  /** Uploads of blobs at the same time, and as many downloads. */
  STREAM_CONCURRENCY: whole(1, 100_000).default(256),
  /** The share of uploads, and of downloads, that one app may have. */
  STREAM_APP_PERCENT: whole(1, 100).default(75),
  /** The share of uploads, and of downloads, that one client address may have. */
  STREAM_CLIENT_PERCENT: whole(1, 100).default(25),
  /** The least rate of a transfer, measured over UPLOAD_GRACE_MS or DOWNLOAD_GRACE_MS. */
  TRANSFER_MIN_BYTES_PER_SECOND: whole(0, 1024 ** 3).default(1_024),
  UPLOAD_GRACE_MS: whole(250, 3_600_000).default(20_000),
  DOWNLOAD_GRACE_MS: whole(250, 3_600_000).default(60_000),
  REQUEST_TIMEOUT_MS: whole(100, 600_000).default(10_000),
  /** How long a request waits for the block of its payment; payments gives up earlier (X402_SETTLE_WAIT_MS). */
  PAYMENT_TIMEOUT_MS: whole(1_000, 600_000).default(60_000),
  /** Time in which the head of a request must have come. */
  HEAD_TIMEOUT_MS: whole(1_000, 600_000).default(10_000),
  /** Time in which the body of a request, blobs apart, must have come. */
  BODY_TIMEOUT_MS: whole(100, 600_000).default(30_000),
  /** The least rate of the body of a request, measured over BODY_GRACE_MS. */
  BODY_MIN_BYTES_PER_SECOND: whole(0, 1024 ** 3).default(1_024),
  BODY_GRACE_MS: whole(250, 600_000).default(5_000),
  /** Bodies that have not arrived yet: in total, for one app and for one client address. */
  WAITING_BODIES: whole(1, 1_000_000).default(1_024),
  WAITING_BODIES_PER_APP: whole(1, 1_000_000).default(512),
  WAITING_BODIES_PER_CLIENT: whole(1, 1_000_000).default(512),
  /** The least rate at which a client reads an answer, measured over READER_GRACE_MS. */
  READER_MIN_BYTES_PER_SECOND: whole(0, 1024 ** 3).default(4_096),
  READER_GRACE_MS: whole(250, 600_000).default(20_000),
  /** Connections at once; beyond, idle ones are closed first. */
  CONNECTIONS: whole(16, 1_000_000).default(8_192),
  /** Pipelined requests of one connection worked on before it is their turn to be answered. */
  PIPELINED_REQUESTS: whole(1, 10_000).default(8),
  /** Look-ups at once of apps and keys that are not known to exist. */
  UNKNOWN_LOOKUPS: whole(1, 1_000).default(4),
  UPLOAD_TIMEOUT_MS: whole(1_000, 86_400_000).default(3_600_000),
  /** A connection on which nothing moves for this long is cut. */
  IDLE_TIMEOUT_MS: whole(1_000, 3_600_000).default(60_000),
  KEEP_ALIVE_TIMEOUT_MS: whole(0, 3_600_000).default(65_000),
});

/** The operator's key of a configuration. Throws a ConfigError when there is none, or it is too short. */
export function operatorKeyOf(config: Pick<GatewayConfig, 'OPERATOR_KEY' | 'OPERATOR_KEY_FILE'>): string {
  const key = readSecret(config, 'OPERATOR_KEY');
  if (key === undefined) throw wrongConfig([['OPERATOR_KEY', 'either it or OPERATOR_KEY_FILE is needed']]);
  if (key.length < operatorKeyLengthMin) throw wrongConfig([['OPERATOR_KEY_FILE', operatorKeyRule]]);
  return key;
}

export type GatewayConfig = Readonly<z.infer<typeof gatewayConfig>>;
