import type { TasksDefinition } from '@granary/shared/gen/granary/tasks/v1/Tasks';
import type { AccessTo } from '@granary/shared/rpc/access';

/** The methods of tasks that each service may call from another process. */
export const tasksAccess = { gateway: '*' } satisfies AccessTo<TasksDefinition>;
