import type { Task } from '@granary/shared/concurrency/time-slicing';
import { toText } from '@granary/shared/json/value';
import type { AppContent } from './content';
import { typesOf, type CollectionTypes } from './collection-types';
import { collectionOperation, queryOperation, viewOperation, type Described } from './operations';
import { toJson, type Part } from './part';
import { sharedComponents, type SharedName } from './shared-components';

/** Bytes of the document, at most; what does not fit is counted. */
export const documentBytesMax = 4 * 1024 * 1024;
/** Bytes reserved for the text around the descriptions: info, tags and shared components. */
const frameBytes = 32 * 1024;

/** Incremented when the form of the document changes, so that files of older releases are written again. */
const formVersion = 2;

/** The text with which the document of a revision begins. */
export const headOf = (revision: bigint): string =>
  `{"openapi":"3.1.0","info":{"version":"${revision}.${formVersion}",`;

/**
 * The OpenAPI document of an app. Collections, views and queries may each have their part of what is left of the bytes.
 */
export function* openapiText(content: AppContent): Task<string> {
  const types = new Map<string, CollectionTypes>();
  for (const collection of content.collections) {
    types.set(collection.name, typesOf(collection));
    yield;
  }
  const { appId, collections, views, queries } = content;
  const kinds = [
    kind('Collections', collections, (one) => collectionOperation(appId, one, types.get(one.name)!)),
    kind('Views', views, (one) => viewOperation(appId, one, types)),
    kind('Predefined queries', queries, (one) => queryOperation(appId, one, types)),
  ].filter(({ describe }) => describe.length > 0);
  let leftBytes = documentBytesMax - frameBytes;
  const paths: string[] = [];
  const schemas: string[] = [];
  const omitted: string[] = [];
  const used = new Set<SharedName>();
  for (const [index, { tag, describe }] of kinds.entries()) {
    const budgetBytes = leftBytes / (kinds.length - index);
    let spentBytes = 0;
    let count = 0;
    for (const described of describe) {
      const { path, operation, schema, shared } = described();
      const pathText = memberText(path, { get: operation });
      const schemaText = schema && memberText(schema.name, schema.value);
      spentBytes += Buffer.byteLength(pathText) + Buffer.byteLength(schemaText ?? '') + 2;
      yield;
      if (spentBytes > budgetBytes) break;
      paths.push(pathText);
      if (schemaText !== undefined) schemas.push(schemaText);
      for (const name of shared) used.add(name);
      count += 1;
    }
    leftBytes -= Math.min(spentBytes, budgetBytes);
    // Without their types, views and queries do not refer to the collections that are left out.
    if (tag === 'Collections') for (const { name } of collections.slice(count)) types.delete(name);
    if (count < describe.length) omitted.push(`${describe.length - count} ${tag.toLowerCase()}`);
  }
  const tags = kinds.map(({ tag, about }) => ({ name: tag, description: about }));
  const { schemas: sharedSchemas, ...components } = sharedComponents(used);
  schemas.push(...Object.entries(sharedSchemas).map(([name, schema]) => memberText(name, schema)));
  const componentTexts = [`"schemas":{${schemas.join(',')}}`, ...membersText(components)];
  return [
    headOf(content.revision),
    membersText(infoOf(content, omitted)).join(','),
    `},${membersText({ servers: [{ url: '/' }], tags }).join(',')},"paths":{${paths.join(',')}},`,
    `"components":{${componentTexts.join(',')}}}`,
  ].join('');
}

const abouts = {
  Collections: 'Documents, filtered by their indexed fields',
  Views: 'Rows of the materialized views',
  'Predefined queries': 'Queries that the application defines',
} as const;

interface Kind {
  tag: keyof typeof abouts;
  about: string;
  describe: ReadonlyArray<() => Described>;
}

const kind = <T>(tag: Kind['tag'], entries: readonly T[], describe: (one: T) => Described): Kind => ({
  tag,
  about: abouts[tag],
  describe: entries.map((one) => () => describe(one)),
});

function infoOf({ appId, name, description }: AppContent, omitted: readonly string[]) {
  const left = omitted.length === 0 ? [] : [`Left out, because they are too many: ${omitted.join(', ')}.`];
  const about = [
    ...(description === '' ? [] : [description]),
    `What the application \`${appId}\` offers to readers; \`/openapi.json\` describes all operations of the service.`,
    ...left,
  ];
  return {
    title: name,
    description: about.join('\n\n'),
    license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
  };
}

const memberText = (name: string, value: Part): string => `${JSON.stringify(name)}:${toText(toJson(value))}`;

const membersText = (members: { readonly [name: string]: Part }): string[] =>
  Object.entries(members).map(([name, value]) => memberText(name, value));
