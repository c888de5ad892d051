import { Client } from 'pg';
import { cloneDatabase, superuserUrl, templateDatabase, testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<{ name: string }>(text)).rows.map((row) => row.name);
  } finally {
    await client.end();
  }
}

test('clones of a template are filled once, writable and apart from one another', async () => {
  let migrations = 0;
  const migrate = async (url: string): Promise<void> => {
    migrations++;
    await query(url, 'create table t (name text)');
    await query(url, `insert into t values ('from the template')`);
  };
  const names = await Promise.all([templateDatabase('tpl_test', migrate), templateDatabase('tpl_test', migrate)]);
  expect(migrations).toBe(1);
  const [one, two] = await Promise.all([cloneDatabase(names[0]), cloneDatabase(names[1])]);
  await query(one.url, `insert into t values ('only here')`);
  expect(await query(one.url, 'select name from t order by name')).toEqual(['from the template', 'only here']);
  expect(await query(two.url, 'select name from t')).toEqual(['from the template']);
});

test('the next suite of the worker drops what this one has made, though somebody is still connected', async () => {
  const { url } = await testDatabase();
  const name = new URL(url).pathname.slice(1);
  const client = new Client({ connectionString: url });
  const errors: unknown[] = [];
  client.on('error', (error) => errors.push(error));
  await client.connect();
  // A suite loads the module anew.
  await jest.isolateModulesAsync(async () => {
    const next = await import('@granary/testing/database');
    await next.testDatabase();
  });
  const names = () => query(superuserUrl(), 'select datname as name from pg_database');
  await eventually(async () => !(await names()).includes(name));
  await eventually(() => errors.length > 0);
  expect(errors[0]).toMatchObject({ code: '57P01' });
});
