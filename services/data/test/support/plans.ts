import {
  alternativePlan,
  isByIndexAlone,
  planPage,
  type PagePlan,
  type PageRequest,
} from '../../src/query/plan/page-plan';
import type { Relation } from '../../src/query/plan/relation';

/** How a page is read where the connections of index reads cannot give it. */
export function planByPool(relation: Relation, request: PageRequest): PagePlan {
  const plan = planPage(relation, request);
  return isByIndexAlone(plan.access) ? alternativePlan(plan)! : plan;
}
