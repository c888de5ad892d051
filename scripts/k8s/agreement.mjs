import path from 'node:path';
import { eventually } from './eventually.mjs';

const settledWithinMs = 60_000;

/**
 * What is stored agrees with itself: the chain of commits, the ledger, and what services know of each other by events.
 */
export async function agrees(proof, { root }) {
  const { backends, cluster, app, url } = proof;
  const environment = [`GRANARY_URL=${url}`, `GRANARY_APP=${app.id}`, `GRANARY_KEY=${app.key}`];
  const script = (file) => [process.execPath, path.join(root, file)];
  await cluster.run('env', ...environment, ...script('services/local/dist/verify/verify-main.js'));
  const finance = `${backends.primary.url}/granary_finance`;
  const ledger = await cluster.run('env', `DATABASE_URL=${finance}`, ...script('scripts/ledger-verify.mjs'));
  const sum = await backends.primary.sql(
    'select sum(credits_posted) - sum(debits_posted) from account where debits_posted + credits_posted > 0',
    'granary_finance',
  );
  if (sum !== '0') throw new Error(`the ledger sums to ${sum || 'nothing'}`);
  const applied = `select document_count from collection_generation where app_id = '${app.id}' and collection = 'traffic'`;
  const stored = String((await proof.stored()).length);
  await eventually(
    `finance knows of ${stored} documents by events`,
    async () => (await backends.primary.sql(applied, 'granary_finance')) === stored,
    settledWithinMs,
  );
  for (const name of ['finance', 'tasks', 'blobs']) {
    const dead = await backends.primary.sql('select count(*) from dead_letter', `granary_${name}`);
    if (dead !== '0') throw new Error(`${dead} events could not be applied by ${name}`);
  }
  return `${ledger.trim().split('\n').at(-1)}, the ledger sums to 0`;
}
