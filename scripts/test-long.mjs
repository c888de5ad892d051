import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { runChild } from './child.mjs';

// The suites that are larger with TEST_LONG, at that size; together they take most of a day. Among them: 300,000 events and 500
// kills on each transport of the bus, a million filters with and without indexes by every entrance, 100,000 live views under 30
// changes each, a million commands of the ledger beside its model and 1,000 kills amid transfers, 500,000 payouts by copies that
// crash, 50,000 crashes amid settlements of payments and 500 kills amid them, and 200,000 payments beside the official
// facilitator. Nothing is skipped.
const services = path.join(path.dirname(import.meta.dirname), 'services');
const suites = readdirSync(services, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .flatMap(({ name }) =>
    readdirSync(path.join(services, name), { recursive: true })
      .filter((file) => !/^(dist|node_modules)\//.test(file))
      .map((file) => `${name}/${file}`),
  )
  .filter((file) => file.endsWith('.test.ts'))
  .filter((file) => /TEST_LONG|\/case-counts'/.test(readFileSync(path.join(services, file), 'utf8')))
  .map((file) => `services/${file}`);
const { code } = await runChild(process.execPath, [path.join(import.meta.dirname, 'test.mjs'), ...suites], {
  env: { TEST_TIMEOUT_MINUTES: '2880', ...process.env, TEST_LONG: '1', REQUIRE_STACK: '1' },
  show: true,
});
process.exitCode = code;
