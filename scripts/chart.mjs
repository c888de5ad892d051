import { copyFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { runChild } from './child.mjs';

/** Writes the files of the charts that are made of others: callers, README, SQL. */
const root = path.dirname(import.meta.dirname);
const chart = path.join(root, 'charts/granary');

async function write() {
  const { callersOf } = await import('@granary/shared/trust/services');
  const { prepareChartTools } = await import('@granary/stack/tools/chart-tools');
  const lines = Object.entries(callersOf).map(([service, callers]) => `${service}: [${callers.join(', ')}]\n`);
  const head = '# The callers of each service. Made by `npm run chart` from services/shared/src/trust/services.ts.\n';
  writeFileSync(path.join(chart, 'files/callers.yaml'), head + lines.join(''));
  copyFileSync(path.join(root, 'deploy/postgres.sql'), path.join(root, 'charts/granary-infra/files/postgres.sql'));
  const helmDocs = path.join(await prepareChartTools(console.log), 'helm-docs');
  const { code, output } = await runChild(helmDocs, ['--chart-search-root', chart, '--log-level', 'warning']);
  if (code !== 0) throw new Error(output);
}

write().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
