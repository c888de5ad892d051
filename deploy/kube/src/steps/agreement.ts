import path from 'node:path';
import type { Proof } from '../proof/proof';
import { waitUntil } from '../waiting';
import type { StepParts } from './step';

const settledWithinMs = 60_000;

/**
 * Proves that the stored data agrees with itself: the chain of commits, the ledger, and what services know of each
 * other by events.
 */
export async function agrees(proof: Proof, { root }: Pick<StepParts, 'root'>): Promise<string> {
  const { backends, cluster, app, gateway } = proof;
  const environment = [`GRANARY_URL=${gateway.url}`, `GRANARY_APP=${app.id}`, `GRANARY_KEY=${app.key}`];
  const operator = [process.execPath, path.join(root, 'services/operator/dist/main.js')];
  await cluster.run('env', ...environment, ...operator, 'verify');
  const finance = `${backends.primary.url}/granary_finance`;
  const ledger = await cluster.run('env', `DATABASE_URL=${finance}`, ...operator, 'ledger-verify');
  const sum = await backends.primary.sql(
    'select sum(credits_posted) - sum(debits_posted) from account where debits_posted + credits_posted > 0',
    'granary_finance',
  );
  if (sum !== '0') throw new Error(`the ledger sums to ${sum || 'nothing'}`);
  const applied = `select document_count from collection_generation where app_id = '${app.id}' and collection = 'traffic'`;
  const stored = String((await proof.stored()).length);
  await waitUntil(
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
