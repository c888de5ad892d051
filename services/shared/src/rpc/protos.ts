import { join } from 'node:path';
import { loadPackageDefinition, type ServiceDefinition } from '@grpc/grpc-js';
import { loadSync, type Options } from '@grpc/proto-loader';
// The build gives the same options to proto-loader-gen-types, so that types and messages agree.
import loadOptions from './load-options.json';

/** The one copy of the protos, at the root of the project. */
const protosDirectory = join(__dirname, '..', '..', '..', '..', 'protos');

/** The definition of `granary.<service>.v1.<Name>`, with the type that the build generated for it. */
export function loadService<D extends ServiceDefinition>(service: string, name: string): D {
  const options: Options = {
    ...loadOptions,
    longs: String,
    enums: String,
    includeDirs: [protosDirectory],
  };
  const definition = loadSync(`${service}/v1/${service}.proto`, options);
  let found: unknown = loadPackageDefinition(definition);
  for (const step of ['granary', service, 'v1', name, 'service']) found = (found as Record<string, unknown>)[step];
  return found as D;
}
