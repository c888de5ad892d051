import { z } from 'zod';
import { commonConfig } from '@granary/shared/config';

/** The environment of the tasks service. The address may be absent only when data is in the same process. */
export const tasksConfig = commonConfig.extend({
  /** Of the data service: host:port, or what gRPC can resolve. */
  DATA_ADDRESS: z.string().min(1).optional(),
});

export type TasksConfig = Readonly<z.infer<typeof tasksConfig>>;
