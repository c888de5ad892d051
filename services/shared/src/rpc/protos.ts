import { join } from 'node:path';
import { loadPackageDefinition, type ServiceDefinition } from '@grpc/grpc-js';
import { loadSync, type Options } from '@grpc/proto-loader';
// The build generates the types with the same options.
import loadOptions from './load-options.json';

/** The protos, at the root of the project. */
const protosDirectory = join(__dirname, '..', '..', '..', '..', 'protos');

/** The definition of `granary.<service>.v1.<Name>`, with its generated type. */
export function loadService<D extends ServiceDefinition>(service: string, name: string): D {
  const options: Options = {
    ...loadOptions,
    longs: String,
    enums: String,
    includeDirs: [protosDirectory],
  };
  const definition = loadSync(`${service}/v1/${service}.proto`, options);
  let node: unknown = loadPackageDefinition(definition);
  for (const step of ['granary', service, 'v1', name, 'service']) node = (node as Record<string, unknown>)[step];
  return node as D;
}
