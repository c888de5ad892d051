import type { z } from 'zod';
import { serviceAddress } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';

/** The environment of the tasks service. The address may be absent only if data runs in the same process. */
export const tasksConfig = commonConfig.extend({
  DATA_ADDRESS: serviceAddress('data'),
});

export type TasksConfig = Readonly<z.infer<typeof tasksConfig>>;
