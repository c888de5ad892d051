import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { jsonArgument } from './definition.ts';
import { allOf } from '../session/listing.ts';
import { apiPath } from '../session/paths.ts';

interface Dataset {
  name: string;
  count: number;
  bytes: number;
  updated_at: string;
}

interface PutOptions {
  lines?: boolean;
}

export function addDatasetCommands(program: Command): void {
  const datasets = program.command('datasets').description('lists of values that filters name by `inDataset`');
  datasets.command('list').description('list the data sets').action(action(list));
  datasets.command('show').description('print the values of a data set').argument('<dataset>').action(action(show));
  datasets
    .command('put')
    .description('make a data set, or replace all of its values')
    .argument('<name>')
    .argument('<file>', 'a JSON array; - for stdin')
    .option('--lines', 'each line of the file is a text')
    .action(action<PutOptions>(put));
  datasets.command('delete').description('delete a data set').argument('<dataset>').action(action(remove));
}

async function list(call: Invocation): Promise<void> {
  const app = await call.app();
  const path = apiPath('apps', app.id, 'datasets');
  const datasets = await allOf<Dataset>(app, path, 'datasets', { signal: call.signal });
  await printList(call.terminal, datasets, {
    dataset: ({ name }) => name,
    values: ({ count }) => count,
    bytes: ({ bytes }) => bytes,
    updated: (dataset) => dataset.updated_at,
  });
}

async function show(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  const app = await call.app();
  const path = apiPath('apps', app.id, 'datasets', name);
  await printObject(call.terminal, await app.request<object>('GET', path, { signal: call.signal }));
}

async function put(call: Invocation<PutOptions>): Promise<void> {
  const [name, file] = call.args<[string, string]>();
  const values = call.options.lines ? await linesOf(call, file) : await arrayOf(call, file);
  const app = await call.app();
  const path = apiPath('apps', app.id, 'datasets', name);
  const options = { jsonText: `{"values":${values}}`, signal: call.signal };
  await printObject(call.terminal, await app.request<object>('PUT', path, options));
}

/** The lines of a file that are not empty, as JSON. */
async function linesOf({ terminal }: Invocation, file: string): Promise<string> {
  const read = file === '-' ? terminal.readAll('A list of texts') : readFile(file, 'utf8');
  const text = await read.catch((error: Error) => {
    throw new UsageError(error.message);
  });
  return JSON.stringify(text.split(/\r?\n/).filter((line) => line !== ''));
}

async function arrayOf({ terminal }: Invocation, file: string): Promise<string> {
  const { text, value } = await jsonArgument(terminal, file === '-' ? file : `@${file}`);
  if (Array.isArray(value)) return text;
  throw new UsageError(`${file} has no JSON array`, 'Write ["one", 2], or give a file of lines with --lines.');
}

async function remove(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  const { terminal, signal } = call;
  const app = await call.app();
  await terminal.confirm(`This deletes the data set "${name}" of ${app.id}; filters that name it fail.`, name, signal);
  await app.request('DELETE', apiPath('apps', app.id, 'datasets', name), { signal });
  terminal.say(`The data set "${name}" is deleted.`);
}
