import type { App } from '@granary/client';
import type { Command } from 'commander';
import { jsonText, parseAsWritten, parseExact, plainText } from '../exact-json.ts';
import { exitCodes, Failure, UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printObject } from '../terminal/table.ts';
import { visible, type Terminal } from '../terminal/terminal.ts';
import { definitionHelp, jsonArgument } from './definition.ts';

interface VersionOptions {
  ifVersion?: string;
}

interface PutOptions extends VersionOptions {
  id?: string;
  ifAbsent?: boolean;
}

interface RemoveOptions extends VersionOptions {
  erase?: boolean;
}

interface GetOptions {
  withVersion?: boolean;
}

const ifVersionHelp = 'only if this is the present version';

export function addDocumentCommands(program: Command): void {
  program
    .command('get')
    .description('print a document, byte for byte as it is stored')
    .argument('<collection>')
    .argument('<id>')
    .option('--with-version', 'print {"version": …, "document": …}')
    .action(action<GetOptions>(get));
  program
    .command('put')
    .description('write a document, in the place of the one with its id or as a new one')
    .argument('<collection>')
    .argument('[document]', `${definitionHelp}; stdin if nothing is said`)
    .option('--id <id>', 'its id, where the document does not say it')
    .option('--if-version <number>', ifVersionHelp)
    .option('--if-absent', 'only if there is no document with this id')
    .action(action<PutOptions>(put));
  program
    .command('patch')
    .description('change members of a document; those that are null are removed')
    .argument('<collection>')
    .argument('<id>')
    .argument('<changes>', definitionHelp)
    .option('--if-version <number>', ifVersionHelp)
    .action(action<VersionOptions>(patch));
  program
    .command('rm')
    .description('delete documents; their versions stay as history')
    .argument('<collection>')
    .argument('<id...>')
    .option('--erase', 'remove the texts of all versions for ever')
    .option('--if-version <number>', ifVersionHelp)
    .action(action<RemoveOptions>(remove));
}

async function get(call: Invocation<GetOptions>): Promise<void> {
  const [collection, id] = call.args<[string, string]>();
  const { terminal, options, signal } = call;
  const app = await call.app({ parse: (text) => text });
  const stored = await app.collection(collection).getVersioned(id, { signal });
  if (!stored) {
    const nextStep = `\`granary query ${collection} --deleted\` also lists documents that are deleted.`;
    throw new Failure(`There is no document "${id}" in "${collection}"`, { nextStep, exitCode: exitCodes.notFound });
  }
  // It was not parsed: the text is that of the answer.
  const text = stored.document as unknown as string;
  if (options.withVersion) return terminal.print(`{"version":${stored.version},"document":${text}}`);
  if (!terminal.isForPeople) return terminal.print(text.replace(/\n$/, ''));
  await terminal.print(colouredJson(terminal, text));
  terminal.say(terminal.styledMessage('dim', `version ${stored.version}`));
}

/** JSON on lines, with its names in colour. */
function colouredJson(terminal: Terminal, text: string): string {
  const lines = jsonText(parseAsWritten(text), 2);
  return visible(lines).replace(/^( *)("(?:[^"\\]|\\.)*")(?=: )/gm, (_, indent: string, name: string) => {
    return indent + terminal.styled('cyan', name);
  });
}

async function put(call: Invocation<PutOptions>): Promise<void> {
  const [collection, argument = '-'] = call.args<[string, string | undefined]>();
  const { terminal, options, signal } = call;
  const ifVersion = versionOf(options.ifVersion);
  const { text, value } = await jsonArgument(terminal, argument).catch((error: UsageError) => {
    throw new UsageError(error.message, `Give one document as ${definitionHelp}; \`granary import\` takes several.`);
  });
  checkObject(value, collection, argument);
  const { id: member } = parseExact(text) as { id?: unknown };
  const id = options.id ?? (member === undefined || member === null ? undefined : plainText(member));
  const app = await call.app();
  if (id !== undefined) {
    const conditions = { ifVersion, ifAbsent: options.ifAbsent };
    const write = { ...conditions, jsonText: text, signal };
    const { version } = await app.collection(collection).put({ id }, write);
    return printObject(terminal, { id, version });
  }
  if (ifVersion !== undefined || options.ifAbsent) {
    throw new UsageError('A condition needs the id of a document, and this one has none', 'Name it by --id.');
  }
  await printObject(terminal, await storeNew(app, collection, text, signal));
}

/** Stores a document whose id the service makes. */
async function storeNew(app: App, collection: string, text: string, signal: AbortSignal): Promise<object> {
  const body = `{"root":${JSON.stringify(`${app.id}::${collection}`)},"data":[${text}]}`;
  const { results } = await app.request<{ results: Array<{ id: string }> }>('POST', '/store', {
    jsonText: body,
    signal,
  });
  return { id: results[0]!.id, version: 1 };
}

function checkObject(value: unknown, collection: string, argument: string): void {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return;
  const source = argument.startsWith('@') ? ` ${argument.slice(1)}` : ' -';
  if (Array.isArray(value)) {
    throw new UsageError('One document is written, and this is a list', `\`granary import ${collection}${source}\`.`);
  }
  throw new UsageError('A document is an object of JSON', 'For example \'{"id": "emma", "year": 1815}\'.');
}

async function patch(call: Invocation<VersionOptions>): Promise<void> {
  const [collection, id, argument] = call.args<[string, string, string]>();
  const { terminal, options, signal } = call;
  const ifVersion = versionOf(options.ifVersion);
  const { text, value } = await jsonArgument(terminal, argument);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UsageError('Changes are an object of JSON', 'For example \'{"shelf": "A", "price": null}\'.');
  }
  const app = await call.app();
  const documents = app.collection<string>(collection);
  const { version } = await documents.patch(id, value, { ifVersion, jsonText: text, signal });
  await printObject(terminal, { id, version });
}

async function remove(call: Invocation<RemoveOptions>): Promise<void> {
  const [collection, ids] = call.args<[string, string[]]>();
  const { terminal, options, signal } = call;
  const ifVersion = versionOf(options.ifVersion);
  if (ifVersion !== undefined && ids.length > 1) {
    throw new UsageError('--if-version is of one document, and several are named', 'Delete them one by one.');
  }
  if (ifVersion !== undefined && options.erase) {
    throw new UsageError('--erase takes all versions, and --if-version one', 'Leave one of them out.');
  }
  const app = await call.app();
  const documents = app.collection(collection);
  if (options.erase) {
    const what = ids.length === 1 ? `the document "${ids[0]}"` : `${ids.length} documents`;
    const warning = `This removes all versions of ${what} of "${collection}" of ${app.id} for ever.`;
    await terminal.confirm(warning, ids.length === 1 ? ids[0]! : collection, signal);
  }
  for (const id of ids) {
    const answer = options.erase ? documents.erase(id, { signal }) : documents.delete(id, { ifVersion, signal });
    await printObject(terminal, await answer);
  }
}

function versionOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new UsageError(`--if-version "${text}" is not a version`, 'A version is a number, as `granary get` shows it.');
}
