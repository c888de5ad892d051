import type { Command } from 'commander';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { withUnit } from './amounts.ts';
import { allOf } from '../session/listing.ts';
import { limitOption } from './options.ts';
import { apiPath } from '../session/paths.ts';

interface Cost {
  collection: string;
  retention_days: number | null;
  size_bytes: number;
  document_count: number;
  free_days: number;
  price_per_gib_day: number;
  monthly_cost: number;
  accrued: number;
  next_charge_at: string | null;
}

interface Entry {
  entry_id: string;
  amount: number;
  kind: string;
  reference: string;
  created_at: string;
}

const balances = [
  'balance',
  'locked_balance',
  'pending_payouts',
  'available_balance',
  'total_earned',
  'total_spent',
  'total_paid_out',
];

export function addWalletCommands(program: Command): void {
  const wallet = program.command('wallet').description('money of the app, in utia (1 TIA is 1,000,000 utia)');
  wallet.command('show').description('show the wallet').action(action(show));
  wallet.command('costs').description('show what keeping the documents costs').action(action(costs));
  wallet
    .command('entries')
    .description('list what came in and what went out, the newest first')
    .addOption(limitOption())
    .action(action<{ limit?: number }>(entries));
}

async function show(call: Invocation): Promise<void> {
  const app = await call.app();
  const path = apiPath('apps', app.id, 'wallet');
  const wallet = await app.request<object>('GET', path, { signal: call.signal });
  await printObject(call.terminal, withUnit(call.terminal, wallet, balances));
}

async function costs(call: Invocation): Promise<void> {
  const { terminal, signal } = call;
  const app = await call.app();
  const path = apiPath('apps', app.id, 'retention', 'cost');
  const answer = await app.request<{ collections: Cost[]; total_monthly_cost: number }>('GET', path, { signal });
  await printList(terminal, answer.collections, {
    collection: ({ collection }) => collection,
    documents: (cost) => cost.document_count,
    bytes: (cost) => cost.size_bytes,
    'kept days': (cost) => cost.retention_days,
    'free days': (cost) => cost.free_days,
    'utia per GiB and day': (cost) => cost.price_per_gib_day,
    'utia per month': (cost) => cost.monthly_cost,
    'utia owed': ({ accrued }) => accrued,
    'next charge': (cost) => cost.next_charge_at,
  });
  terminal.say(`Together ${answer.total_monthly_cost} utia per month.`);
}

async function entries(call: Invocation<{ limit?: number }>): Promise<void> {
  const app = await call.app();
  const path = apiPath('apps', app.id, 'wallet', 'entries');
  const options = { signal: call.signal, most: call.options.limit };
  await printList(call.terminal, await allOf<Entry>(app, path, 'entries', options), {
    'amount in utia': ({ amount }) => amount,
    kind: ({ kind }) => kind,
    reference: ({ reference }) => reference,
    time: (entry) => entry.created_at,
    entry: (entry) => entry.entry_id,
  });
}
