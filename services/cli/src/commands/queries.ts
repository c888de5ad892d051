import { Option, type Command } from 'commander';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { definitionHelp, namedDefinition } from './definition.ts';
import { allOf } from '../session/listing.ts';
import { addAssignment, recordLimitOption, type Values } from './options.ts';
import { apiPath } from '../session/paths.ts';
import { printRows } from './rows.ts';

interface Query {
  name: string;
  source_collection?: string;
  parameters?: Array<{ name: string; required?: boolean }>;
  description?: string;
  version: string;
  access_policy: { read: string };
}

interface VersionOptions {
  queryVersion?: string;
}

interface RunOptions extends VersionOptions {
  param?: Values;
  limit?: number;
}

/** `--version` is that of the program. */
const versionOption = (meaning: string) => new Option('--query-version <version>', meaning);

export function addQueryCommands(program: Command): void {
  const queries = program.command('queries').description('predefined queries');
  queries.command('list').description('list the queries').action(action(list));
  queries
    .command('show')
    .description('show a query')
    .argument('<query>')
    .addOption(versionOption('this version; by default the newest'))
    .action(action<VersionOptions>(show));
  queries
    .command('create')
    .description('make a query, or a new version of one')
    .argument('<name>')
    .argument('<definition>', definitionHelp)
    .action(action(create));
  queries
    .command('run')
    .description('print the records that a query finds')
    .argument('<query>')
    .addOption(
      new Option('--param <name=value>', 'the value of a parameter; may be given again').argParser(addAssignment),
    )
    .addOption(versionOption('this version; by default the newest'))
    .addOption(recordLimitOption())
    .action(action<RunOptions>(run));
  queries
    .command('delete')
    .description('delete a query')
    .argument('<query>')
    .addOption(versionOption('this version; by default all of them'))
    .action(action<VersionOptions>(remove));
}

async function list(call: Invocation): Promise<void> {
  const app = await call.app();
  const queries = await allOf<Query>(app, apiPath('apps', app.id, 'queries'), 'queries', { signal: call.signal });
  await printList(call.terminal, queries, {
    query: ({ name }) => name,
    version: ({ version }) => version,
    collection: (query) => query.source_collection,
    parameters: ({ parameters }) => parameters?.map(({ name, required }) => (required ? `${name}*` : name)).join(','),
    reads: (query) => query.access_policy.read,
    description: ({ description }) => description,
  });
}

async function show(call: Invocation<VersionOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const app = await call.app();
  const options = { query: { version: call.options.queryVersion }, signal: call.signal };
  await printObject(call.terminal, await app.request('GET', apiPath('apps', app.id, 'queries', name), options));
}

async function create(call: Invocation): Promise<void> {
  const [name, text] = call.args<[string, string]>();
  const definition = await namedDefinition(call.terminal, text, name);
  const app = await call.app();
  const options = { jsonText: definition, signal: call.signal };
  await printObject(call.terminal, await app.request('POST', apiPath('apps', app.id, 'queries'), options));
}

async function run(call: Invocation<RunOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { param, queryVersion: version, limit } = call.options;
  const app = await call.app();
  const path = apiPath('queries', app.id, name, 'data');
  await printRows(call, app, path, { values: param, query: { version }, most: limit, hasOwnPageSize: true });
}

async function remove(call: Invocation<VersionOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { terminal, signal } = call;
  const { queryVersion: version } = call.options;
  const app = await call.app();
  const what = version === undefined ? `the query "${name}"` : `version ${version} of the query "${name}"`;
  await terminal.confirm(`This deletes ${what} of ${app.id}.`, name, signal);
  await app.request('DELETE', apiPath('apps', app.id, 'queries', name), { query: { version }, signal });
  terminal.say(`${what.charAt(0).toUpperCase()}${what.slice(1)} is deleted.`);
}
