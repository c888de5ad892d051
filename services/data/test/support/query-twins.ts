import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noIdempotency } from './data-service';
import { jsonSpelling } from './json-spelling';
import { countryLines } from './network-reference';
import { startFixture, type Fixture, type TestApp } from './query-fixture';
import { composites } from './query-generator';
import { datasets, learnSearches } from './query-reference';
import { searches, sentenceLists, sentences } from './query-values';
import type { Random } from './random';

/**
 * A data service that knows the networks by country of the reference, and the reference what Postgres finds in texts.
 */
export async function startTwinsFixture(): Promise<Fixture> {
  const file = join(await mkdtemp(join(tmpdir(), 'granary-networks-')), 'networks.csv');
  await writeFile(file, countryLines.join('\n'));
  const fixture = await startFixture({ COUNTRY_NETWORKS_FILE: file });
  await learnSearches(fixture.pool, [...sentences, ...sentenceLists, null], searches);
  return fixture;
}

/** The fields with an index of their own in the collection with indexes; parameters of a URL may filter by them. */
export const indexedFields = ['a', 'b', 'n.x', 'n.0', 'd', 'gone', 'e'];

/**
 * An app with the same documents twice: `keyed` has indexes over most fields, and `plain` none but for full text,
 * without which a search is refused. Their texts are spelled at random.
 */
export async function makeTwins(
  fixture: Fixture,
  documents: ReadonlyArray<Record<string, unknown>>,
  random: Random,
): Promise<TestApp> {
  const app = await fixture.newApp();
  const texts = documents.map(jsonSpelling(random));
  for (const name of ['plain', 'keyed']) {
    await app.createCollection(name);
    await app.store(name, texts);
    // The change is forced, so other text and numbers stand among the dates.
    const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
    await fixture.methods.updateCollection({ appId: app.appId, name, schemaJson, force: true });
    await app.createFullText(name, 's', 'english');
  }
  for (const [name, members] of Object.entries(datasets)) {
    const body = Buffer.from(JSON.stringify({ values: members }).replaceAll(',2.5,', ',25e-1,'));
    await fixture.methods.putDataset({ appId: app.appId, name, body, idempotency: noIdempotency });
  }
  for (const path of indexedFields) await app.createIndex('keyed', path, path === 'n.0' ? 'hash' : 'btree');
  for (const fields of composites) await app.createComposite('keyed', fields);
  return app;
}
