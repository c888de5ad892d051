import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { definitionHelp, namedDefinition, objectArgument } from './definition.ts';
import { allOf } from '../session/listing.ts';
import { apiPath } from '../session/paths.ts';

interface Collection {
  name: string;
  document_count: number;
  size_bytes: number;
  access_policy: { read: string };
  retention_days: number | null;
  schema_definition: { fields?: object | null } | null;
}

interface DropOptions {
  force?: boolean;
  cascade?: boolean;
}

export function addCollectionCommands(program: Command): void {
  const collections = program.command('collections').description('collections of documents');
  collections.command('list').description('list the collections').action(action(list));
  collections.command('show').description('show a collection').argument('<collection>').action(action(show));
  collections
    .command('create')
    .description('make a collection')
    .argument('<name>')
    .argument('[definition]', definitionHelp)
    .action(action(create));
  collections
    .command('change')
    .description('change members of a collection: its schema, who may read it, its prices')
    .argument('<collection>')
    .argument('<definition>', definitionHelp)
    .action(action(change));
  collections
    .command('retention')
    .description('set how long documents are kept that are not written: days, or `forever`')
    .argument('<collection>')
    .argument('<days>')
    .action(action(retain));
  collections
    .command('delete')
    .description('delete a collection')
    .argument('<collection>')
    .option('--force', 'with its documents')
    .option('--cascade', 'with the views and queries that read it')
    .action(action<DropOptions>(drop));
}

async function list(call: Invocation): Promise<void> {
  const app = await call.app();
  const path = apiPath('apps', app.id, 'api_collections');
  await printList(call.terminal, await allOf<Collection>(app, path, 'collections', { signal: call.signal }), {
    collection: ({ name }) => name,
    documents: (one) => one.document_count,
    bytes: (one) => one.size_bytes,
    reads: (one) => one.access_policy.read,
    'kept days': (one) => one.retention_days,
    schema: (one) => Object.keys(one.schema_definition?.fields ?? {}).join(','),
  });
}

async function show(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  const app = await call.app();
  await printObject(call.terminal, await app.collection(name).definition({ signal: call.signal }));
}

async function create(call: Invocation): Promise<void> {
  const [name, argument = '{}'] = call.args<[string, string | undefined]>();
  const definition = await namedDefinition(call.terminal, argument, name);
  const app = await call.app();
  const options = { jsonText: definition, signal: call.signal };
  await printObject(call.terminal, await app.request<object>('POST', apiPath('apps', app.id, 'collections'), options));
}

async function change(call: Invocation): Promise<void> {
  const [name, argument] = call.args<[string, string]>();
  const { text } = await objectArgument(call.terminal, argument);
  const app = await call.app();
  const path = apiPath('apps', app.id, 'collections', name);
  await printObject(call.terminal, await app.request<object>('PUT', path, { jsonText: text, signal: call.signal }));
}

async function retain(call: Invocation): Promise<void> {
  const [name, days] = call.args<[string, string]>();
  const { terminal, signal } = call;
  if (days !== 'forever' && !/^\d{1,5}$/.test(days))
    throw new UsageError(`"${days}" is not a number of days, nor "forever"`);
  const app = await call.app();
  const warning = `Documents of "${name}" in ${app.id} that are not written for ${days} days are purged, with their history.`;
  if (days !== 'forever') await terminal.confirm(warning, name, signal);
  const json = { retention_days: days === 'forever' ? null : Number(days) };
  const path = apiPath('apps', app.id, 'collections', name, 'retention');
  await printObject(terminal, await app.request<object>('POST', path, { json, signal }));
}

async function drop(call: Invocation<DropOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { terminal, signal } = call;
  const { force = false, cascade = false } = call.options;
  const app = await call.app();
  const documents = force ? ' with all its documents' : '';
  await terminal.confirm(`This deletes the collection "${name}" of ${app.id}${documents}.`, name, signal);
  await app.collection(name).drop({ force, cascade, signal });
  terminal.say(`The collection "${name}" is deleted.`);
}
