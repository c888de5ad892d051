import { gatewayConfig } from '@granary/gateway/config';
import { optionalText } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { telemetrySettings } from '@granary/shared/telemetry/settings';
import { z } from 'zod';

/** The settings of `npm start` itself; the services read all others, see start/settings.ts. */
export const localConfig = z.object({
  HOST: gatewayConfig.shape.HOST,
  PORT: gatewayConfig.shape.PORT,
  /** Default: `.granary` in the current directory, or a directory that Postgres can reach. */
  DATA_DIR: optionalText,
  /** Default: generated and stored in the data directory. */
  OPERATOR_KEY: gatewayConfig.shape.OPERATOR_KEY,
  /** Whether the ready message includes the operator key and the key of the demo app. */
  SHOW_KEYS: z.stringbool({ error: 'true or false is expected' }).default(true),
  ...telemetrySettings,
  LOG_LEVEL: commonConfig.shape.LOG_LEVEL.default('warn'),
});

export type LocalConfig = Readonly<z.infer<typeof localConfig>>;

/** The settings of `npm run stack` itself. */
export const stackConfig = localConfig.extend({
  BUS: z.enum(['postgres', 'kafka']).default('kafka'),
  STORE: z.enum(['files', 'minio']).default('minio'),
  /** Runs Postgres, Kafka and MinIO in containers. */
  DOCKER: z.stringbool({ error: 'true or false is expected' }).default(false),
  LOG_LEVEL: commonConfig.shape.LOG_LEVEL,
});
