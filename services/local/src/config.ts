import { commonConfig, whole } from '@granary/shared/config';
import { telemetrySettings } from '@granary/shared/telemetry/settings';
import { z } from 'zod';

export const localConfig = z.object({
  HOST: z.string().min(1).default('127.0.0.1'),
  PORT: whole(0, 65_535).default(8080),
  /** Absent: `.granary` in the current directory, or a place that Postgres can reach. */
  DATA_DIR: z.string().min(1).optional(),
  /** Absent: one is made and kept in the data directory. */
  OPERATOR_KEY: z.string().min(16, 'at least 16 characters are needed').optional(),
  ...telemetrySettings,
  LOG_LEVEL: commonConfig.shape.LOG_LEVEL.default('warn'),
});

export type LocalConfig = z.infer<typeof localConfig>;
