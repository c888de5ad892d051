import type { Command } from 'commander';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { definitionOf, definitionHelp } from './definition.ts';

interface Collection {
  name: string;
  document_count?: number;
  [member: string]: unknown;
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
    .description('change members of a collection: its schema, who may read it, how long documents are kept')
    .argument('<collection>')
    .argument('<definition>', definitionHelp)
    .action(action(change));
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
  const path = `/api/apps/${encodeURIComponent(app.id)}/collections`;
  const { collections } = await app.request<{ collections: Collection[] }>('GET', path, { signal: call.signal });
  await printList(call.terminal, collections, {
    collection: ({ name }) => name,
    documents: (one) => one.document_count,
    reads: (one) => (one['access_policy'] as { read?: string } | undefined)?.read,
  });
}

async function show(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  const app = await call.app();
  await printObject(call.terminal, await app.collection(name).definition({ signal: call.signal }));
}

async function create(call: Invocation): Promise<void> {
  const [name, text] = call.args<[string, string | undefined]>();
  const definition = await definitionOf(call.terminal, text ?? '{}');
  const app = await call.app();
  await printObject(call.terminal, await app.collection(name).create(definition, { signal: call.signal }));
}

async function change(call: Invocation): Promise<void> {
  const [name, text] = call.args<[string, string]>();
  const definition = await definitionOf(call.terminal, text);
  const app = await call.app();
  await printObject(call.terminal, await app.collection(name).change(definition, { signal: call.signal }));
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
