import type { Route } from './route';
import { applicationRoutes } from './routes/applications';
import { authzRoutes } from './routes/authz';
import { blobRoutes } from './routes/blobs';
import { collectionRoutes } from './routes/collections';
import { documentRoutes } from './routes/documents';
import { healthRoutes } from './routes/health';
import { indexRoutes } from './routes/indexes';
import { keyRoutes } from './routes/keys';
import { plannedRoutes } from './routes/not-implemented';
import { paymentRoutes } from './routes/payments';
import { queryRoutes } from './routes/queries';
import { skillsRoutes } from './routes/skills';
import { taskRoutes } from './routes/tasks';
import { viewRoutes } from './routes/views';
import { walletRoutes } from './routes/wallet';

/**
 * The table: everything that the gateway answers to. The first that fits is taken, so a literal step stands before a
 * parameter in the same place, and what is asked most often stands at the top.
 */
export const routes: readonly Route[] = [
  ...documentRoutes,
  ...taskRoutes,
  ...healthRoutes,
  ...plannedRoutes,
  ...viewRoutes,
  ...queryRoutes,
  ...blobRoutes,
  ...collectionRoutes,
  ...indexRoutes,
  ...keyRoutes,
  ...walletRoutes,
  ...authzRoutes,
  ...skillsRoutes,
  ...applicationRoutes,
  ...paymentRoutes,
];
