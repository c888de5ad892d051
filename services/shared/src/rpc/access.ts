import type { ServiceDefinition } from '@grpc/grpc-js';
import type { Methods } from './types';
import type { ServiceName } from '../trust/services';

/** The services that may call methods of a gRPC service from another process; all others may call none. */
export type Access = Readonly<Partial<Record<ServiceName, readonly string[] | '*'>>>;

/** An `Access` that names only methods of one service: `{ … } satisfies AccessTo<DataDefinition>`. */
export type AccessTo<D extends ServiceDefinition> = Readonly<
  Partial<Record<ServiceName, ReadonlyArray<keyof Methods<D>> | '*'>>
>;

/** Conditions on the requests to a method that depend on the caller. */
export type Limits = Readonly<Record<string, (request: unknown, caller: ServiceName) => boolean>>;

/** The callers that may call each method, by its path (`/package.Service/Method`). */
export type Callers = ReadonlyMap<string, ReadonlySet<ServiceName>>;

/** Throws for a method that does not exist, because it was renamed. */
export function callersByPath(
  services: ReadonlyArray<{ definition: ServiceDefinition; access?: Access | undefined }>,
): Callers {
  const callers = new Map<string, Set<ServiceName>>();
  for (const { definition, access = {} } of services) {
    const paths = new Map(
      Object.entries(definition).map(([name, { path }]) => [name[0]!.toLowerCase() + name.slice(1), path]),
    );
    for (const path of paths.values()) callers.set(path, new Set());
    for (const [caller, methods] of Object.entries(access) as Array<[ServiceName, readonly string[] | '*']>) {
      for (const name of methods === '*' ? paths.keys() : methods) {
        const path = paths.get(name);
        if (path === undefined) throw new Error(`${caller} may call ${name}, which does not exist`);
        callers.get(path)!.add(caller);
      }
    }
  }
  return callers;
}
