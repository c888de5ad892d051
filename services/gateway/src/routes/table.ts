import type { Route } from '../pipeline/route';
import { appOpenapiRoutes } from './app-openapi';
import { applicationRoutes } from './applications';
import { authzRoutes } from './authz';
import { grantRoutes } from './grants';
import { batchRoutes } from './batch';
import { blobRoutes } from './blobs';
import { changeRoutes } from './changes';
import { collectionRoutes } from './collections';
import { commitRoutes } from './commits';
import { datasetRoutes } from './datasets';
import { documentRoutes } from './documents';
import { exportRoutes } from './exports';
import { faucetRoutes } from './faucet';
import { healthRoutes } from './health';
import { indexRoutes } from './indexes';
import { importRoutes } from './imports';
import { indexOfCollectionRoutes } from './indexes-of-collection';
import { keyRoutes } from './keys';
import { plannedRoutes } from './not-implemented';
import { paymentRoutes } from './payments';
import { payoutRoutes } from './payouts';
import { pricingRoutes } from './pricing';
import { queryRoutes } from './queries';
import { relationRoutes } from './relations';
import { singleDocumentRoutes } from './single-documents';
import { queryPlanRoutes } from './query-plans';
import { skillsRoutes } from './skills';
import { taskRoutes } from './tasks';
import { viewRoutes } from './views';
import { walletRoutes } from './wallet';

/**
 * All routes of the gateway. The first match is taken, so a literal step comes before a parameter in the same position,
 * and frequent routes come first.
 *
 * A new route states its method, its path, who may call it, the schemas of its body and answers, and its handler. The
 * path has no prefix: each route answers under `/api` and without it. Operations, parameters and members need a
 * description, bodies and answers an example; `openapi.test.ts` fails without them. An example beside the schema of a
 * body appears in the command on the page at `/docs`. `codes.test.ts` compares the reasons in `errors/codes.ts` with
 * what the code throws.
 */
export const routes: readonly Route[] = [
  ...documentRoutes,
  ...singleDocumentRoutes,
  ...batchRoutes,
  ...taskRoutes,
  ...healthRoutes,
  ...plannedRoutes,
  ...viewRoutes,
  ...queryRoutes,
  ...datasetRoutes,
  ...blobRoutes,
  ...collectionRoutes,
  ...queryPlanRoutes,
  ...indexRoutes,
  ...indexOfCollectionRoutes,
  ...relationRoutes,
  ...commitRoutes,
  ...changeRoutes,
  ...exportRoutes,
  ...importRoutes,
  ...keyRoutes,
  ...walletRoutes,
  ...payoutRoutes,
  ...faucetRoutes,
  ...authzRoutes,
  ...grantRoutes,
  ...skillsRoutes,
  ...appOpenapiRoutes,
  ...applicationRoutes,
  ...paymentRoutes,
  ...pricingRoutes,
];
