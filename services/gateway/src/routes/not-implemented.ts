import { notImplemented } from '@granary/shared/errors';
import type { Access, Permission } from '../pipeline/access';
import { route, type Method, type Route } from '../pipeline/route';

const rootFirst = ['', '/api'];
const apiFirst = ['/api', ''];

/** A route that authenticates and then answers 501. */
function planned(
  method: Method,
  path: string,
  id: string,
  what: string,
  permission: Permission | undefined,
  prefixes = apiFirst,
): Route {
  const auth: Access = permission ? { kind: 'app', permission } : { kind: 'public' };
  return route({
    method,
    path,
    id,
    auth,
    prefixes,
    summary: what,
    description: 'Not implemented yet.',
    undocumented: 'planned',
    tag: 'Service',
    responses: { 501: { description: 'Not implemented yet', codes: ['NOT_IMPLEMENTED'] } },
    handle: () => Promise.reject(notImplemented(what)),
  });
}

export const plannedRoutes = [
  planned('POST', '/query/sql', 'querySql', 'SQL', 'Read', rootFirst),
  planned('POST', '/apps/{app_id}/views/sql', 'createSqlView', 'A view from SQL', 'Write', rootFirst),
  planned('PATCH', '/apps/{app_id}/collections/{collection}/sharding', 'setSharding', 'Sharding', 'Admin'),
];
