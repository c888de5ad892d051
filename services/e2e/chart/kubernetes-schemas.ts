import { readFile, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { chartToolsForTests } from '@granary/testing/stack';
import { parse } from 'yaml';

interface Kind {
  group: string;
  version: string;
  kind: string;
}

interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-group-version-kind'?: Kind[];
}

interface Definition {
  spec: {
    group: string;
    names: { kind: string };
    versions: Array<{ name: string; schema: { openAPIV3Schema: Schema } }>;
  };
}

const prefix = '#/definitions/';
const quantity = 'io.k8s.apimachinery.pkg.api.resource.Quantity';

/**
 * Writes a JSON schema of each kind of Kubernetes into the folder, and of the kinds of others that the charts use,
 * named as kubeconform looks for them; unknown members are refused.
 */
export async function writeKubernetesSchemas(folder: string): Promise<void> {
  const tools = await chartToolsForTests();
  const text = await readFile(path.join(tools, 'swagger.json'), 'utf8');
  const { definitions } = JSON.parse(text) as { definitions: Record<string, Schema> };
  const strict = Object.fromEntries(Object.entries(definitions).map(([name, one]) => [name, strictly(name, one)]));
  const write = ({ group, version, kind }: Kind, schema: object) => {
    const suffix = group === '' ? version : `${group.split('.')[0]}-${version}`;
    return writeFile(path.join(folder, `${kind.toLowerCase()}-${suffix}.json`), JSON.stringify(schema));
  };
  for (const [name, definition] of Object.entries(definitions)) {
    const kinds = definition['x-kubernetes-group-version-kind'] ?? [];
    if (kinds.length !== 1) continue;
    const needed = Object.fromEntries([...closure(strict, name)].map((each) => [each, strict[each]]));
    await write(kinds[0]!, { $ref: prefix + name, definitions: needed });
  }
  for (const file of (await readdir(tools)).filter((name) => name.endsWith('.yaml'))) {
    const { spec } = parse(await readFile(path.join(tools, file), 'utf8')) as Definition;
    for (const { name: version, schema } of spec.versions) {
      const { group, names } = spec;
      await write({ group, version, kind: names.kind }, ofResource(schema.openAPIV3Schema));
    }
  }
}

/** In a definition `metadata` is any object. */
function ofResource(schema: Schema): object {
  const { properties = {}, ...others } = schema;
  return strictly('', { ...others, properties: { ...properties, metadata: { type: 'object' } } });
}

function strictly(name: string, schema: Schema): object {
  if (name === quantity) return { type: ['string', 'number'] };
  if (schema.format === 'int-or-string' || schema['x-kubernetes-int-or-string']) return { type: ['string', 'integer'] };
  const { properties, items, additionalProperties } = schema;
  return {
    ...schema,
    ...(items && { items: strictly('', items) }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: strictly('', additionalProperties) }),
    ...(properties && {
      properties: Object.fromEntries(Object.entries(properties).map(([key, one]) => [key, strictly('', one)])),
      ...(additionalProperties === undefined &&
        !schema['x-kubernetes-preserve-unknown-fields'] && { additionalProperties: false }),
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
