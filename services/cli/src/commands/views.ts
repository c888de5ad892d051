import type { App } from '@granary/client';
import { Option, type Command } from 'commander';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { definitionHelp, namedDefinition, objectArgument } from './definition.ts';
import { allOf } from '../session/listing.ts';
import { addAssignment, recordLimitOption, type Values } from './options.ts';
import { apiPath } from '../session/paths.ts';
import { printRows } from './rows.ts';
import { finishedTask } from './waiting.ts';

interface View {
  name: string;
  source_collections: string[];
  refresh_mode: string;
  changes: boolean;
  access_policy: { read: string };
  status: string;
  error: string | null;
  row_count: number;
  refreshed_at: string | null;
}

interface BuildOptions {
  wait?: boolean;
}

interface RowsOptions {
  var?: Values;
  find?: string;
  sort?: string;
  select?: string;
  limit?: number;
}

const waitText = 'until it has its rows';

export function addViewCommands(program: Command): void {
  const views = program.command('views').description('materialized views');
  views.command('list').description('list the views').action(action(list));
  views.command('show').description('show a view').argument('<view>').action(action(show));
  views
    .command('create')
    .description('make a view, which a task fills')
    .argument('<name>')
    .argument('<definition>', definitionHelp)
    .option('--wait', waitText)
    .action(action<BuildOptions>(create));
  views
    .command('change')
    .description('change members of a view: its query, its variables, who may read it')
    .argument('<view>')
    .argument('<definition>', definitionHelp)
    .option('--wait', waitText)
    .action(action<BuildOptions>(change));
  views
    .command('refresh')
    .description('compute the rows of a view anew')
    .argument('<view>')
    .option('--wait', waitText)
    .action(action<BuildOptions>(refresh));
  views
    .command('rows')
    .description('print the rows of a view')
    .argument('<view>')
    .addOption(new Option('--var <name=value>', 'the value of a variable; may be given again').argParser(addAssignment))
    .option('--find <json>', `a filter of rows: ${definitionHelp}`)
    .option('--sort <fields>', 'with commas between them; `-field` descends')
    .option('--select <fields>', 'with commas between them')
    .addOption(recordLimitOption())
    .action(action<RowsOptions>(rows));
  views.command('delete').description('delete a view').argument('<view>').action(action(remove));
}

async function list(call: Invocation): Promise<void> {
  const app = await call.app();
  const views = await allOf<View>(app, apiPath('apps', app.id, 'views'), 'views', { signal: call.signal });
  await printList(call.terminal, views, {
    view: ({ name }) => name,
    sources: (view) => view.source_collections.join(','),
    mode: (view) => view.refresh_mode,
    changes: ({ changes }) => (changes ? 'yes' : ''),
    reads: (view) => view.access_policy.read,
    status: ({ status }) => status,
    rows: (view) => view.row_count,
    refreshed: (view) => view.refreshed_at,
    error: ({ error }) => error,
  });
}

async function show(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  const app = await call.app();
  await printObject(call.terminal, await app.view(name).definition({ signal: call.signal }));
}

async function create(call: Invocation<BuildOptions>): Promise<void> {
  const [name, text] = call.args<[string, string]>();
  const definition = await namedDefinition(call.terminal, text, name);
  const app = await call.app();
  const options = { jsonText: definition, signal: call.signal };
  await answerBuild(call, app, name, await app.request('POST', apiPath('apps', app.id, 'views'), options));
}

async function change(call: Invocation<BuildOptions>): Promise<void> {
  const [name, argument] = call.args<[string, string]>();
  const { text } = await objectArgument(call.terminal, argument);
  const app = await call.app();
  const options = { jsonText: text, signal: call.signal };
  await answerBuild(call, app, name, await app.request('PUT', apiPath('apps', app.id, 'views', name), options));
}

async function refresh(call: Invocation<BuildOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const app = await call.app();
  await answerBuild(call, app, name, await app.view(name).refresh({ signal: call.signal }));
}

/** Prints what a request has answered that a task may be computing a view, or, where it is waited for, the view. */
async function answerBuild(
  call: Invocation<BuildOptions>,
  app: App,
  name: string,
  answer: { ticket_id?: string },
): Promise<void> {
  const { terminal, signal } = call;
  const { ticket_id: ticket } = answer;
  if (!call.options.wait) {
    await printObject(terminal, answer);
    if (ticket !== undefined) terminal.say(`It is being built: \`granary tasks wait ${ticket}\` waits for it.`);
    return;
  }
  if (ticket !== undefined) await finishedTask(call, app, ticket);
  await printObject(terminal, await app.view(name).definition({ signal }));
}

async function rows(call: Invocation<RowsOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { var: variables, find, sort, select, limit } = call.options;
  const filter = find === undefined ? undefined : (await objectArgument(call.terminal, find, '{"year": 1900}')).text;
  const app = await call.app();
  const query = { filter, sort, select };
  await printRows(call, app, apiPath('views', app.id, name, 'data'), { values: variables, query, most: limit });
}

async function remove(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  const { terminal, signal } = call;
  const app = await call.app();
  await terminal.confirm(`This deletes the view "${name}" of ${app.id}.`, name, signal);
  await app.view(name).drop({ signal });
  terminal.say(`The view "${name}" is deleted.`);
}
