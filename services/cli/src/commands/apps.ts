import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import { assertFree, forgetApp } from '../profiles/stored-keys.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { handOver, type IssuedKey } from './issued-key.ts';
import { allOf } from '../session/listing.ts';
import { apiPath } from '../session/paths.ts';

interface Application {
  app_id: string;
  name: string;
  description: string;
  owner_address: string | null;
  height: number;
  created_at: string;
}

interface CreateOptions {
  id?: string;
  owner?: string;
  description?: string;
  use?: boolean;
  saveAs?: string;
}

interface ChangeOptions {
  paymentNetworks?: string;
}

export function addAppCommands(program: Command): void {
  const apps = program.command('apps').description('apps of the service');
  apps.command('list').description("list the apps (operator's key)").action(action(list));
  apps.command('show').description('show an app').argument('[app]').action(action(show));
  apps
    .command('create')
    .description("make an app, with its first key, which is shown once (operator's key)")
    .argument('<name>', 'for people')
    .option('--id <app>', 'the id of the app; one is made otherwise')
    .option('--owner <address>', 'the wallet of the owner')
    .option('--description <text>', 'for people')
    .option('--use', 'store the app and its key in the present profile; the key is not printed')
    .option('--save-as <profile>', 'the same in another profile')
    .action(action<CreateOptions>(create));
  apps
    .command('change')
    .description('change on which networks the app is paid')
    .option('--payment-networks <names>', 'networks of x402 with commas between them; `all`: those of the operator')
    .action(action<ChangeOptions>(change));
  apps
    .command('delete')
    .description("delete an app with everything in it (operator's key)")
    .argument('<app>')
    .action(action(remove));
  apps.command('stats').description('show the sums over the collections of the app').action(action(stats));
}

async function list(call: Invocation): Promise<void> {
  const service = await call.operator();
  const { signal } = call;
  const applications = await allOf<Application>(service, apiPath('applications'), 'applications', { signal });
  await printList(call.terminal, applications, {
    app: ({ app_id: app }) => app,
    name: ({ name }) => name,
    height: ({ height }) => height,
    owner: (one) => one.owner_address,
    description: ({ description }) => description,
    created: (one) => one.created_at,
  });
}

async function show(call: Invocation): Promise<void> {
  const [named] = call.args<[string | undefined]>();
  const app = await call.appOrOperator(named);
  const path = apiPath('applications', app.id);
  await printObject(call.terminal, await app.request<object>('GET', path, { signal: call.signal }));
}

async function create(call: Invocation<CreateOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { id, owner, description, use, saveAs } = call.options;
  if (use && saveAs !== undefined) throw new UsageError('--use and --save-as are two places for the key: give one');
  const service = await call.operator();
  const target = await call.target();
  const profile = use ? target.profile : saveAs;
  // An id that is free now had an app that is gone, and so had its key.
  if (profile !== undefined) await assertFree(profile, target.url, id);
  const json = { name, app_id: id, owner_address: owner, description };
  const path = apiPath('applications');
  const created = await service.request<IssuedKey>('POST', path, { json, signal: call.signal });
  await handOver(call, created, target, profile);
}

async function change(call: Invocation<ChangeOptions>): Promise<void> {
  const { paymentNetworks: names } = call.options;
  if (names === undefined) throw new UsageError('Nothing is named to change', 'Name it by --payment-networks.');
  const app = await call.app();
  const json = { payment_networks: names === 'all' ? null : names.split(',').map((name) => name.trim()) };
  const path = apiPath('applications', app.id);
  await printObject(call.terminal, await app.request<object>('PATCH', path, { json, signal: call.signal }));
}

async function remove(call: Invocation): Promise<void> {
  const [id] = call.args<[string]>();
  const { terminal, signal } = call;
  const service = await call.operator();
  const path = apiPath('applications', id);
  await terminal.confirm(`This deletes the app "${id}" with everything in it, for ever.`, id, signal);
  await service.request('DELETE', path, { signal });
  terminal.say(`The app "${id}" is deleted.`);
  const { url } = await call.target();
  for (const name of await forgetApp(url, id)) terminal.say(`The profile "${name}" has no app any more.`);
}

async function stats(call: Invocation): Promise<void> {
  const app = await call.app();
  const path = apiPath('apps', app.id, 'stats');
  const all = await app.request<Record<string, unknown>>('GET', path, { signal: call.signal });
  if (!call.terminal.isForPeople) return printObject(call.terminal, all);
  // Further members are the same under other names.
  await printObject(call.terminal, {
    app: all['app_id'],
    height: all['height'],
    collections: all['collection_count'],
    documents: all['document_count'],
    'document bytes': all['size_bytes'],
    indexes: all['total_indexes'],
    'index bytes': all['index_size'],
  });
}
