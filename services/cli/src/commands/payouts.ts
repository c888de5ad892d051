import { randomUUID } from 'node:crypto';
import type { App } from '@granary/client';
import type { Command } from 'commander';
import { exitCodes, Failure, isGranaryError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { withUnit } from './amounts.ts';
import { definitionHelp, objectArgument } from './definition.ts';
import { choiceOption, countOption, limitOption } from './options.ts';
import { apiPath } from '../session/paths.ts';

interface Payout {
  payout_id: string;
  amount: number;
  destination: string;
  status: string;
  error: string | null;
  created_at: string;
}

interface Info {
  settings: { payout_destination: string | null };
  available_balance: number;
}

interface ListOptions {
  status?: string;
  limit?: number;
}

interface TriggerOptions {
  amount?: number;
  to?: string;
  idempotencyKey?: string;
}

const statuses = ['pending', 'broadcast', 'confirmed', 'failed'];
const pageSize = 1_000;
const settingAmounts = ['locked_balance', 'min_payout', 'payout_threshold'];
const balances = ['balance', 'locked_balance', 'pending_payouts', 'available_balance'];

export function addPayoutCommands(program: Command): void {
  const payouts = program.command('payouts').description('payments from the wallet of the app to another one');
  payouts
    .command('list')
    .description('list the payouts, the newest first')
    .addOption(choiceOption('--status <status>', 'only those in this state', statuses))
    .addOption(limitOption())
    .action(action<ListOptions>(list));
  payouts.command('show').description('show a payout').argument('<payout>', 'its id').action(action(show));
  payouts
    .command('settings')
    .description('show the settings and the balances, or change settings')
    .argument('[definition]', definitionHelp)
    .action(action(settings));
  payouts
    .command('trigger')
    .description('pay out what is available')
    .addOption(countOption('--amount <utia>', 'this amount, in utia'))
    .option('--to <address>', 'to this address; by default to that of the settings')
    .option('--idempotency-key <text>', 'a name of this payout, which is made once under it')
    .action(action<TriggerOptions>(trigger));
}

const payoutPath = (app: App, part: string): string => apiPath('apps', app.id, 'payout', part);

/** The payouts, the newest first, page by page; one that a newer one has moved to the next page comes once. */
async function* payoutsOf(
  app: App,
  { status, limit = pageSize }: ListOptions,
  signal: AbortSignal,
): AsyncGenerator<Payout, void, undefined> {
  const seen = new Set<string>();
  for (let offset = 0; ;) {
    const query = { status, limit: Math.min(limit, pageSize), offset };
    const page = await app.request<{ payouts: Payout[]; total: number }>('GET', payoutPath(app, 'history'), {
      query,
      signal,
    });
    for (const payout of page.payouts) {
      if (seen.has(payout.payout_id)) continue;
      seen.add(payout.payout_id);
      yield payout;
    }
    offset += page.payouts.length;
    if (page.payouts.length === 0 || offset >= page.total) return;
  }
}

async function list(call: Invocation<ListOptions>): Promise<void> {
  const { terminal, options, signal } = call;
  const payouts: Payout[] = [];
  for await (const payout of payoutsOf(await call.app(), options, signal)) {
    payouts.push(payout);
    if (payouts.length === options.limit) break;
  }
  await printList(terminal, payouts, {
    payout: (payout) => payout.payout_id,
    'amount in utia': ({ amount }) => amount,
    destination: ({ destination }) => destination,
    status: ({ status }) => status,
    error: ({ error }) => error,
    created: (payout) => payout.created_at,
  });
}

async function show(call: Invocation): Promise<void> {
  const [id] = call.args<[string]>();
  for await (const payout of payoutsOf(await call.app(), {}, call.signal)) {
    if (payout.payout_id === id) return printObject(call.terminal, withUnit(call.terminal, payout, ['amount']));
  }
  const nextStep = '`granary payouts list` shows the payouts.';
  throw new Failure(`There is no payout "${id}"`, { exitCode: exitCodes.notFound, nextStep });
}

async function settings(call: Invocation): Promise<void> {
  const [argument] = call.args<[string | undefined]>();
  const { terminal, signal } = call;
  const change =
    argument === undefined ? undefined : await objectArgument(terminal, argument, '{"min_payout": 1000000}');
  const app = await call.app();
  if (change) {
    const path = payoutPath(app, 'settings');
    const answer = await app.request<Info>('POST', path, { jsonText: change.text, signal });
    return printObject(terminal, withUnit(terminal, answer.settings, settingAmounts));
  }
  const info = await app.request<Info>('GET', payoutPath(app, 'info'), { signal });
  if (!terminal.isForPeople) return printObject(terminal, info);
  const { settings: present, ...others } = info;
  await printObject(terminal, {
    ...withUnit(terminal, present, settingAmounts),
    ...withUnit(terminal, others, balances),
  });
}

/** Whether a request was refused for good. One that is being done, or came too often, may have been taken before. */
const isRefusal = (error: unknown): boolean =>
  isGranaryError(error) &&
  [400, 401, 402, 403, 404, 409, 422].includes(error.status) &&
  error.code !== 'REQUEST_IN_PROGRESS';

async function trigger(call: Invocation<TriggerOptions>): Promise<void> {
  const { terminal, signal } = call;
  const app = await call.app();
  const info = await app.request<Info>('GET', payoutPath(app, 'info'), { signal });
  const { amount = info.available_balance, to = info.settings.payout_destination } = call.options;
  if (to === null) {
    throw new Failure('No address is known to which to pay', {
      exitCode: exitCodes.conflict,
      nextStep: 'Name one by --to, or for all payouts by `granary payouts settings \'{"payout_destination": "…"}\'`.',
    });
  }
  if (amount === 0) {
    const nextStep = '`granary wallet show` shows the balance.';
    throw new Failure(`Nothing of ${app.id} can be paid out`, { exitCode: exitCodes.conflict, nextStep });
  }
  const warning = `This pays ${amount} utia of the wallet of ${app.id} to ${to}. It cannot be taken back.`;
  await terminal.confirm(warning, String(amount), signal);
  const { idempotencyKey = randomUUID() } = call.options;
  try {
    // Both are sent as they were confirmed, whatever changes meanwhile.
    const json = { amount, payout_address: to };
    const options = { json, signal, idempotencyKey };
    const payout = await app.request<Payout>('POST', payoutPath(app, 'trigger'), options);
    await printObject(terminal, withUnit(terminal, payout, ['amount']));
  } catch (error) {
    if (!isRefusal(error)) {
      const line = `granary payouts trigger --amount ${amount} --to ${to} --idempotency-key ${idempotencyKey}`;
      terminal.complain('The payout may have been started: `granary payouts list` shows whether it was.');
      terminal.complain(`This asks for the same one again, which is made once: ${line}`);
    }
    throw error;
  }
}
