import type { App } from '@granary/client';
import { Option, type Command } from 'commander';
import { Failure, exitCodes, UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { allOf } from '../session/listing.ts';
import { choiceOption } from './options.ts';
import { apiPath } from '../session/paths.ts';
import { finishedTask } from './waiting.ts';

interface Index {
  name: string;
  collection: string;
  field_name: string;
  fields?: string[];
  index_type: string;
  unique: boolean;
  status: string;
  error: string | null;
  size_bytes: number;
  entry_count: number;
}

interface CreateOptions {
  type?: string;
  name?: string;
  unique?: boolean;
  language?: string;
  force?: boolean;
  wait?: boolean;
}

interface NamedOptions {
  collection?: string;
  wait?: boolean;
}

const types = [
  'btree',
  'string',
  'number',
  'boolean',
  'date',
  'hash',
  'price',
  'fulltext',
  'composite',
  'encrypted',
] as const;

const ofCollection = () => new Option('--collection <collection>', 'where collections have indexes of one name');

export function addIndexCommands(program: Command): void {
  const indexes = program.command('indexes').description('indexes of collections');
  indexes.command('list').description('list the indexes').argument('[collection]').action(action(list));
  indexes
    .command('show')
    .description('show an index')
    .argument('<index>')
    .addOption(ofCollection())
    .action(action<NamedOptions>(show));
  indexes
    .command('create')
    .description('make an index; a large collection is indexed by a task')
    .argument('<collection>')
    .argument('<field...>', 'with dots for one in an object; several make a composite index')
    .addOption(choiceOption('--type <type>', 'btree, or composite for several fields', types))
    .option('--unique', 'no two documents have equal values')
    .option('--name <name>', 'by default <collection>_<field>_idx')
    .option('--language <language>', 'language of the words of a full text')
    .option('--force', 'although documents have values of another type')
    .option('--wait', 'until it is built')
    .action(action<CreateOptions>(create));
  indexes
    .command('rebuild')
    .description('build an index again')
    .argument('<index>')
    .addOption(ofCollection())
    .option('--wait', 'until it is built')
    .action(action<NamedOptions>(rebuild));
  indexes
    .command('delete')
    .description('delete an index')
    .argument('<index>')
    .addOption(ofCollection())
    .action(action<NamedOptions>(remove));
}

function indexesOf(call: Invocation, app: App, collection: string | undefined): Promise<Index[]> {
  const path =
    collection === undefined
      ? apiPath('apps', app.id, 'indexes')
      : apiPath('apps', app.id, 'collections', collection, 'indexes');
  return allOf<Index>(app, path, undefined, { signal: call.signal });
}

async function list(call: Invocation): Promise<void> {
  const [collection] = call.args<[string | undefined]>();
  const indexes = await indexesOf(call, await call.app(), collection);
  await printList(call.terminal, indexes, {
    index: ({ name }) => name,
    collection: (index) => index.collection,
    fields: (index) => (index.fields ?? [index.field_name]).join(','),
    type: (index) => index.index_type,
    unique: ({ unique }) => (unique ? 'yes' : ''),
    status: ({ status }) => status,
    entries: (index) => index.entry_count,
    bytes: (index) => index.size_bytes,
    error: ({ error }) => error,
  });
}

/** The index of a name, which is unique in its collection only. */
async function namedIndex(call: Invocation<NamedOptions>, app: App): Promise<{ index: Index; path: string }> {
  const [name] = call.args<[string]>();
  const all = await indexesOf(call, app, call.options.collection);
  const indexes = all.filter((index) => index.name === name);
  const [index, another] = indexes;
  if (another) {
    const collections = indexes.map(({ collection }) => collection).join(', ');
    throw new UsageError(`${collections} have an index "${name}" each`, 'Name the collection by --collection.');
  }
  if (!index) {
    const nextStep = '`granary indexes list` shows the indexes.';
    throw new Failure(`There is no index "${name}"`, { exitCode: exitCodes.notFound, nextStep });
  }
  return { index, path: apiPath('apps', app.id, 'collections', index.collection, 'indexes', name) };
}

async function show(call: Invocation<NamedOptions>): Promise<void> {
  const { index } = await namedIndex(call, await call.app());
  await printObject(call.terminal, index);
}

async function create(call: Invocation<CreateOptions>): Promise<void> {
  const [collection, fields] = call.args<[string, string[]]>();
  const { type = fields.length > 1 ? 'composite' : 'btree', unique, language, force, wait } = call.options;
  const isComposite = type === 'composite';
  if (!isComposite && fields.length > 1) throw new UsageError(`An index of the type ${type} is over one field`);
  const app = await call.app();
  const json = {
    name: call.options.name ?? `${collection}_${fields.join('_')}_idx`,
    collection,
    ...(isComposite ? { fields } : { field_name: fields[0] }),
    index_type: type,
    options: { unique, language },
    force,
  };
  const path = apiPath('apps', app.id, 'indexes');
  const made = await app.request<Index & { ticket_id?: string }>('POST', path, { json, signal: call.signal });
  await answerBuild(call, app, made, wait);
}

/** Prints what a request has answered that a task builds an index, or, where it is waited for, the index. */
async function answerBuild(
  call: Invocation,
  app: App,
  answer: object & { ticket_id?: string },
  wait = false,
  path?: string,
): Promise<void> {
  const { ticket_id: ticket } = answer;
  if (ticket === undefined || !wait) {
    await printObject(call.terminal, answer);
    if (ticket !== undefined) call.terminal.say(`It is being built: \`granary tasks wait ${ticket}\` waits for it.`);
    return;
  }
  await finishedTask(call, app, ticket);
  const { collection, name } = answer as Index;
  const indexPath = path ?? apiPath('apps', app.id, 'collections', collection, 'indexes', name);
  await printObject(call.terminal, await app.request<object>('GET', indexPath, { signal: call.signal }));
}

async function rebuild(call: Invocation<NamedOptions>): Promise<void> {
  const app = await call.app();
  const { path } = await namedIndex(call, app);
  const answer = await app.request<{ ticket_id: string }>('POST', `${path}/rebuild`, { signal: call.signal });
  await answerBuild(call, app, answer, call.options.wait, path);
}

async function remove(call: Invocation<NamedOptions>): Promise<void> {
  const { terminal, signal } = call;
  const app = await call.app();
  const { index, path } = await namedIndex(call, app);
  const { name, collection } = index;
  await terminal.confirm(`This deletes the index "${name}" of ${collection} in ${app.id}.`, name, signal);
  await app.request('DELETE', path, { signal });
  terminal.say(`The index "${name}" of ${collection} is deleted.`);
}
