import type { IRouter, RequestHandler } from 'express';
import { answerOptions } from './cors';
import type { GatewayContext } from './gateway-context';
import { requestContextOf } from './request-context';
import type { Route } from './route';
import { serveRequest } from './serve-request';

/** The paths of the table in Express's spelling, each with its routes by method. */
export function routesByPath(routes: readonly Route[]): Map<string, { paths: string[]; byMethod: Map<string, Route> }> {
  const entriesByPath = new Map<string, { paths: string[]; byMethod: Map<string, Route> }>();
  for (const route of routes) {
    const path = expressPath(route.path);
    const entry = entriesByPath.get(path) ?? {
      paths: route.prefixes.map((prefix) => prefix + path),
      byMethod: new Map(),
    };
    if (entry.byMethod.has(route.method)) throw new Error(`${route.method} ${route.path} is in the table twice`);
    entry.byMethod.set(route.method, route);
    entriesByPath.set(path, entry);
  }
  return entriesByPath;
}

export function expressPath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ':$1');
}

/**
 * Adds all routes of the table to an application: a router of their own would cost each request a second walk. Each
 * path answers OPTIONS, and 405 for the methods that it does not have.
 */
export function addRoutes(app: IRouter, gateway: GatewayContext, routes: readonly Route[]): void {
  for (const { paths, byMethod } of routesByPath(routes).values()) app.all(paths, dispatcher(gateway, byMethod));
}

function dispatcher(gateway: GatewayContext, byMethod: ReadonlyMap<string, Route>): RequestHandler {
  const allowed = [...byMethod.keys()].flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
  allowed.push('OPTIONS');
  return (request, response, next) => {
    if (request.method === 'OPTIONS') return answerOptions(response, allowed);
    const route = byMethod.get(request.method === 'HEAD' ? 'GET' : request.method);
    if (route) {
      serveRequest(gateway, route, request, response).catch(next);
      return;
    }
    // Another route may match with a parameter in place of a literal segment: a view may have the name `sql`.
    const context = requestContextOf(response);
    context.allowedMethods ??= new Set();
    for (const method of allowed) context.allowedMethods.add(method);
    next();
  };
}
