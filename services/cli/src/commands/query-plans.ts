import type { Command } from 'commander';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { definitionHelp, jsonWith, objectArgument } from './definition.ts';
import { limitOption } from './options.ts';
import { apiPath } from '../session/paths.ts';

interface ExplainOptions {
  sort?: string;
  select?: string;
  limit?: number;
}

interface Explanation {
  collection: string;
  indexes_used: string[];
  cost: { total: number };
  access: {
    method: string;
    index: string | null;
    filter: string;
    order: Array<{ field: string; direction: string }>;
  };
  hints: Array<{ message: string }>;
}

interface Advice {
  document_count: number;
  recommendations: string[];
  indexes: Array<{ name: string; scans: number; last_used_at: string | null; size_bytes: number }>;
  slow_queries: Array<{
    filter: string;
    sort: string;
    count: number;
    mean_ms: number;
    max_ms: number;
    missing_index: string[] | null;
  }>;
}

export function addQueryPlanCommands(program: Command): void {
  program
    .command('explain')
    .description('show how a query of a collection would be read, and what would make it cheaper')
    .argument('<collection>')
    .argument('[find]', `the filter: ${definitionHelp}`, '{}')
    .option('--sort <fields>', 'with commas between them; `-field` descends')
    .option('--select <fields>', 'with commas between them')
    .addOption(limitOption())
    .action(action<ExplainOptions>(explain));
  program
    .command('advise')
    .description('show which indexes a collection lacks and does not need, and its slow queries')
    .argument('<collection>')
    .action(action(advise));
}

async function explain(call: Invocation<ExplainOptions>): Promise<void> {
  const [collection, find] = call.args<[string, string]>();
  const { terminal, signal } = call;
  const { text } = await objectArgument(terminal, find, '{"year": {"gte": 1900}}');
  const { limit } = call.options;
  const [sort, select] = [call.options.sort?.split(','), call.options.select?.split(',')];
  const query = jsonWith(`{"find":${text}}`, { sort, select, limit, count: 'none' });
  const app = await call.app();
  const path = apiPath('apps', app.id, 'collections', collection, 'explain');
  const explanation = await app.request<Explanation>('POST', path, { jsonText: `{"query":${query}}`, signal });
  if (!terminal.isForPeople) return printObject(terminal, explanation);
  const { access, cost, hints, indexes_used: indexes } = explanation;
  await printObject(terminal, {
    collection: explanation.collection,
    filter: access.filter,
    order: access.order.map(({ field, direction }) => `${field} ${direction}`).join(', '),
    method: access.method,
    index: access.index,
    'indexes used': indexes.join(', '),
    cost: cost.total,
  });
  for (const { message } of hints) await terminal.print(`${terminal.styled('yellow', 'hint')} ${message}`);
}

async function advise(call: Invocation): Promise<void> {
  const [collection] = call.args<[string]>();
  const { terminal } = call;
  const app = await call.app();
  const path = apiPath('apps', app.id, 'collections', collection, 'optimize');
  const advice = await app.request<Advice>('GET', path, { signal: call.signal });
  if (!terminal.isForPeople) return printObject(terminal, advice);
  for (const each of advice.recommendations) await terminal.print(each);
  if (advice.recommendations.length === 0) await terminal.print('There is nothing to recommend.');
  if (advice.indexes.length > 0) {
    await terminal.print('');
    await printList(terminal, advice.indexes, {
      index: ({ name }) => name,
      reads: ({ scans }) => scans,
      'last read': (index) => index.last_used_at,
      bytes: (index) => index.size_bytes,
    });
  }
  if (advice.slow_queries.length === 0) return;
  await terminal.print('');
  await printList(terminal, advice.slow_queries, {
    'slow query': ({ filter }) => filter,
    sort: ({ sort }) => sort,
    times: ({ count }) => count,
    'mean ms': (query) => query.mean_ms,
    'most ms': (query) => query.max_ms,
    'missing index': (query) => query.missing_index?.join(','),
  });
}
