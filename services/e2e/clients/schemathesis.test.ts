import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describeWith, pythonForTests } from '@granary/testing/stack';
import { newApp, operatorKey, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { runProgram, withFolder } from './generated';

describeWith(describe, 'python')('requests that schemathesis makes of the OpenAPI document', () => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await startGranary('direct');
  });
  afterAll(() => granary?.stop());

  test('are all answered as the document says, 2,000 of them and more', async () => {
    const python = await pythonForTests();
    // The names are those in schemathesis.toml and hooks.py.
    const shop = await newApp(granary, 'shop');
    await shop.store('notes', [
      { id: 'first', text: 'Hello', stars: 5 },
      { id: 'second', text: 'World', stars: 3 },
    ]);
    const app = '/apps/shop';
    const permissions = ['Admin', 'Read', 'Write'];
    const key = await shop.call('POST', `${app}/regenerate-key`, { name: 'schemathesis', permissions });
    const made = await Promise.all([
      shop.call('POST', `${app}/indexes`, {
        name: 'by_stars',
        collection: 'notes',
        field_name: 'stars',
        index_type: 'number',
      }),
      shop.call('POST', `${app}/views`, {
        name: 'by_stars',
        source_collections: ['notes'],
        query: { group_by: 'stars' },
        variables: { stars: 'stars' },
      }),
      shop.call('POST', `${app}/queries`, {
        name: 'with_stars',
        source_collection: 'notes',
        base_query: {},
        parameters: [{ name: 'stars', field_path: 'stars' }],
      }),
    ]);
    expect(made.map(({ status }) => status)).toEqual([201, 202, 201]);
    const headers = [`X-App-Key: ${String(key.body['app_key'])}`, `X-Operator-Key: ${operatorKey}`];
    const said = await withFolder(async (folder) => {
      for (const file of ['schemathesis.toml', 'hooks.py']) await copyFile(join(__dirname, file), join(folder, file));
      return runProgram(
        python,
        [
          '-B',
          '-m',
          'schemathesis.cli',
          'run',
          `${granary.url}/openapi.json`,
          // One worker: with two threads its generator was seen to race inside hypothesis, and to report that as an
          // error.
          '--phases',
          'examples,coverage,fuzzing',
          '--max-examples',
          '2',
          '--workers',
          '1',
          ...headers.flatMap((header) => ['--header', header]),
        ],
        { cwd: folder, env: { NO_COLOR: '1' } },
      );
    });
    const [, generated, passed] = /^ +(\d+) generated, (\d+) passed/m.exec(said) ?? [];
    expect(passed).toBe(generated);
    expect(Number(passed)).toBeGreaterThan(2_000);
  });
});
