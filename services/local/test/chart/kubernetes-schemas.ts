import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { chartToolsForTests } from '@granary/shared/testing/stack';

interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  'x-kubernetes-group-version-kind'?: Array<{ group: string; version: string; kind: string }>;
}

const prefix = '#/definitions/';
const quantity = 'io.k8s.apimachinery.pkg.api.resource.Quantity';

/**
 * Writes a JSON schema of each kind of Kubernetes into the folder, named as kubeconform looks for them, from the OpenAPI
 * document of Kubernetes; unknown members are refused.
 */
export async function writeKubernetesSchemas(folder: string): Promise<void> {
  const text = await readFile(path.join(await chartToolsForTests(), 'kubernetes.json'), 'utf8');
  const { definitions } = JSON.parse(text) as { definitions: Record<string, Schema> };
  const strict = Object.fromEntries(Object.entries(definitions).map(([name, one]) => [name, strictly(name, one)]));
  for (const [name, definition] of Object.entries(definitions)) {
    const kinds = definition['x-kubernetes-group-version-kind'] ?? [];
    if (kinds.length !== 1) continue;
    const { group, version, kind } = kinds[0]!;
    const suffix = group === '' ? version : `${group.split('.')[0]}-${version}`;
    const needed = Object.fromEntries([...closure(strict, name)].map((each) => [each, strict[each]]));
    const schema = { $ref: prefix + name, definitions: needed };
    await writeFile(path.join(folder, `${kind.toLowerCase()}-${suffix}.json`), JSON.stringify(schema));
  }
}

function strictly(name: string, schema: Schema): object {
  if (name === quantity) return { type: ['string', 'number'] };
  if (schema.format === 'int-or-string') return { type: ['string', 'integer'] };
  const { properties, items, additionalProperties } = schema;
  return {
    ...schema,
    ...(items && { items: strictly('', items) }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: strictly('', additionalProperties) }),
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([key, one]) => [key, strictly('', one)])),
      ...(additionalProperties === undefined && { additionalProperties: false }),
    }),
  };
}

/** The definitions that one refers to, and itself. */
function closure(definitions: Record<string, object>, name: string, found = new Set<string>()): Set<string> {
  if (found.has(name)) return found;
  found.add(name);
  for (const [, each] of JSON.stringify(definitions[name]).matchAll(/"\$ref":"#\/definitions\/([^"]+)"/g)) {
    closure(definitions, each!, found);
  }
  return found;
}
