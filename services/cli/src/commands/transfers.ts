import type { Command } from 'commander';
import { Failure, isPassing, UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { bytesText, ProgressBar } from '../terminal/progress.ts';
import { printObject } from '../terminal/table.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { parseAsWritten } from '../exact-json.ts';
import type { CollectionFacts } from '../transfers/app-manifest.ts';
import type { ExportOptions } from '../transfers/export-request.ts';
import type { ImportOptions } from '../transfers/import-request.ts';

interface ExportFlags extends ExportOptions {
  all?: boolean;
  withoutFiles?: boolean;
  force?: boolean;
  restart?: boolean;
}

interface ImportFlags extends ImportOptions {
  all?: string;
  merge?: boolean;
  withoutFiles?: boolean;
}

const formats = ['ndjson', 'json', 'csv'];

/** A move of a whole app outlasts a restart of the service, and its definitions keep how numbers are written. */
const movingApp = { parse: parseAsWritten, retries: 12, timeoutMs: 120_000 };

export function addTransferCommands(program: Command): void {
  const out = program.command('export').description('write the documents of a collection, or a whole app, to files');
  out
    .argument('[collection]')
    .addOption(out.createOption('--format <format>', 'of the file; else by the name of --out').choices(formats))
    .option('--out <file>', 'write to this file, which is there once it is whole; with --all a folder')
    .option('--find <json>', 'only documents that meet this filter')
    .option('--select <fields>', 'only these fields, as in id,author.name')
    .option('--columns <fields>', 'the columns of a table, in their order')
    .option('--at <height>', 'the documents as they were at this height')
    .option('--history', 'every version of each document')
    .option('--deleted', 'documents that are deleted softly, too')
    .addOption(
      out
        .createOption('--formulas <way>', 'escape: texts that a spreadsheet takes for formulas get an apostrophe')
        .choices(['keep', 'escape']),
    )
    .option('--gzip', 'compress it; else by the name of --out')
    .option('--all', 'the whole app, into the folder --out')
    .option('--without-files', 'with --all: no uploaded files')
    .option('--force', 'replace the file')
    .option('--restart', 'begin anew, where an export to the file has begun')
    .action(action<ExportFlags>(exportDocuments));
  const into = program.command('import').description('store the documents of a file in a collection, or a whole app');
  into
    .argument('[collection]')
    .argument('[file]', 'the file, or - for stdin; .gz is unpacked')
    .addOption(into.createOption('--format <format>', 'of the file; else by its name').choices(formats))
    .addOption(
      into
        .createOption('--mode <mode>', 'what a document does whose id is there')
        .choices(['insert', 'upsert', 'skip'])
        .default(undefined, 'upsert'),
    )
    .addOption(
      into
        .createOption('--on-error <way>', 'what a record does that cannot be stored')
        .choices(['abort', 'continue'])
        .default(undefined, 'abort'),
    )
    .option('--dry-run', 'read and check everything, and store nothing')
    .option('--types <types>', 'the types of columns, as in year:number,sold:boolean,tags:json')
    .option('--columns <fields>', 'the columns of a table without a line of names')
    .addOption(into.createOption('--separator <text>', 'what separates cells').choices([',', ';', '|', 'tab']))
    .addOption(into.createOption('--empty <way>', 'what an empty cell is').choices(['missing', 'null', 'string']))
    .option('--errors <file>', 'write what could not be stored to this file, a line of JSON each')
    .option('--restart', 'begin anew, where an import of the file has begun')
    .option('--all <folder>', 'the whole app of a folder that `export --all` has made')
    .option('--merge', 'with --all: into an app that is not empty')
    .option('--without-files', 'with --all: neither uploaded files nor the documents that describe them')
    .action(action<ImportFlags>(importDocuments));
}

async function exportDocuments(call: Invocation<ExportFlags>): Promise<void> {
  const [collection] = call.args<[string | undefined]>();
  if (call.options.all) return exportWhole(call, collection);
  if (call.options.withoutFiles) throw new UsageError('--without-files is for --all');
  if (collection === undefined) {
    throw new UsageError('No collection is named', '`granary export <collection>`, or --all --out <folder> for all.');
  }
  const { exportRequestOf } = await import('../transfers/export-request.ts');
  const { exportToFile, exportToStream } = await import('../transfers/export-collection.ts');
  const { countText, Rate } = await import('../transfers/rate.ts');
  const { terminal, options, signal } = call;
  const request = exportRequestOf(collection, options);
  const app = await call.app();
  const bar = new ProgressBar(terminal, collection);
  const rate = new Rate();
  const onProgress = ({ records, bytes }: { records: number; bytes: number }) =>
    bar.show(0, undefined, `${countText(records, 'record')}, ${bytesText(bytes)}, ${rate.text(bytes)}`);
  const { url } = await call.target();
  const files = { isForced: options.force === true, restarts: options.restart === true };
  const exporting = { app, url, signal, onProgress };
  const { out } = options;
  const { records, height, remarks } = await (
    out === undefined
      ? exportToStream(request, (bytes) => terminal.write(bytes), exporting)
      : exportToFile(out, request, files, exporting).catch((error: unknown) => sayPart(call, out, error))
  ).finally(() => bar.end());
  for (const remark of remarks) terminal.say(remark);
  const place = out === undefined ? '' : ` ${records === 1 ? 'is' : 'are'} in ${out}`;
  terminal.say(`${countText(records, 'record')} at height ${height}${place}.`);
  terminal.say(`What changes behind them: granary tail ${collection} --since ${height}`);
}

/** Says how an export to a file goes on, where it does. */
async function sayPart({ terminal, signal }: Invocation, file: string, error: unknown): Promise<never> {
  if (!signal.aborted && !isPassing(error)) throw error;
  const { readState } = await import('../transfers/state-file.ts');
  const { partOf, stateOf } = await import('../transfers/part-file.ts');
  const { resumingCommand } = await import('../session/resumption.ts');
  const { countText } = await import('../transfers/rate.ts');
  const state = await readState<import('../transfers/part-file.ts').ExportState>(stateOf(file)).catch(() => undefined);
  if (state) {
    terminal.overwrite('');
    const { position, height } = state;
    terminal.complain(`${partOf(file)} has ${countText(position.records, 'record')} at height ${height}.`);
    terminal.complain(`The same command goes on with it: ${resumingCommand()}`);
  }
  throw error;
}

const flagsOfOne = [
  'format',
  'find',
  'select',
  'columns',
  'at',
  'history',
  'deleted',
  'formulas',
  'gzip',
  'force',
] as const;

async function exportWhole(call: Invocation<ExportFlags>, collection: string | undefined): Promise<void> {
  const { options, terminal, signal } = call;
  const { out: folder } = options;
  if (collection !== undefined)
    throw new UsageError(`--all exports more than "${collection}"`, 'Leave one of them out.');
  if (!folder) throw new UsageError('--all needs a folder', '`granary export --all --out <folder>`');
  const unfit = flagsOfOne.find((name) => options[name] !== undefined);
  if (unfit !== undefined) throw new UsageError(`--${unfit} is for the export of one collection`);
  const { exportApp } = await import('../transfers/app-export.ts');
  const { Rate } = await import('../transfers/rate.ts');
  const bar = new ProgressBar(terminal, 'export');
  const rate = new Rate();
  const app = await call.app(movingApp);
  const { url } = await call.target();
  const manifest = await exportApp(folder, {
    app,
    url,
    signal,
    restarts: options.restart === true,
    withoutFiles: options.withoutFiles === true,
    onProgress: ({ collection: name, place, of, counted, bytes }) =>
      bar.show(place - 1, of, `${name}: ${counted}, ${rate.text(bytes)}`),
  })
    .catch((error: unknown) => sayFolder(call, { folder, kind: 'export' }, error))
    .finally(() => bar.end());
  const documents = manifest.collections.reduce((sum, each) => sum + each.documents, 0);
  const { app: appId, height, left_out } = manifest;
  const collections = manifest.collections.length;
  const files = filesOf(manifest.collections);
  await printMove(terminal, { folder, app: appId, height, collections, documents, files }, { left_out });
}

const filesOf = (collections: readonly CollectionFacts[]): number =>
  collections.reduce((sum, { uploads }) => sum + (uploads?.count ?? 0), 0);

/** Says that the same command goes on with what has begun in a folder, where it does. */
async function sayFolder(
  { terminal, signal }: Invocation,
  { folder, kind }: { folder: string; kind: 'export' | 'import' },
  error: unknown,
): Promise<never> {
  if (!signal.aborted && !isPassing(error)) throw error;
  const { folderStateOf, readState } = await import('../transfers/state-file.ts');
  const { resumingCommand } = await import('../session/resumption.ts');
  const state = await readState(folderStateOf(folder, kind)).catch(() => undefined);
  if (state) {
    terminal.overwrite('');
    terminal.complain(`The ${kind} has begun, and is not whole. The same command goes on: ${resumingCommand()}`);
  }
  throw error;
}

/** Prints what was moved; to a person what was not in sentences below it. */
async function printMove(
  terminal: Terminal,
  report: object,
  { kept = [], left_out }: { kept?: string[]; left_out: string[] },
): Promise<void> {
  if (!terminal.isForPeople) return printObject(terminal, { ...report, kept, left_out });
  await printObject(terminal, report);
  for (const sentence of kept) terminal.say(`Kept: ${sentence}`);
  for (const sentence of left_out) terminal.say(`Not moved: ${sentence}`);
}

async function importDocuments(call: Invocation<ImportFlags>): Promise<void> {
  const [collection, file] = call.args<[string | undefined, string | undefined]>();
  const { options, terminal, signal } = call;
  if (options.all !== undefined) return importWhole(call, options.all, collection);
  if (options.withoutFiles) throw new UsageError('--without-files is for --all');
  if (options.merge) throw new UsageError('--merge is for --all', 'See --mode for documents that are there.');
  if (collection === undefined || file === undefined) {
    throw new UsageError(
      'A collection and a file are needed',
      '`granary import <collection> <file>`, with - for stdin.',
    );
  }
  const { importDefinitionOf } = await import('../transfers/import-request.ts');
  const { importFile } = await import('../transfers/import-file.ts');
  const { sayInterrupted, tellErrors } = await import('../transfers/import-report.ts');
  const { countText, Rate } = await import('../transfers/rate.ts');
  const definition = importDefinitionOf(file, options);
  const app = await call.app();
  const { url } = await call.target();
  const bar = new ProgressBar(terminal, collection);
  const rate = new Rate();
  let firstBytes: number | undefined;
  let isResumable = file !== '-';
  let linesDone: number | undefined;
  const ended = await importFile(file, collection, definition, {
    app,
    url,
    signal,
    restarts: options.restart === true,
    onProgress: ({ report: { written, failed, lines, offset }, bytes, totalBytes }) => {
      linesDone = lines;
      firstBytes ??= offset;
      const counts = `${countText(written, 'document')}${failed > 0 ? `, ${failed} failed` : ''}`;
      bar.show(bytes, totalBytes, `${counts}, ${rate.text(offset - firstBytes)}`);
    },
    onUnresumable: (reason) => {
      isResumable = false;
      terminal.say(`This import cannot go on after a break, for its state cannot be stored: ${reason}`);
    },
  })
    .catch((error: unknown) => sayInterrupted(call, { file, linesDone, isResumable }, error))
    .finally(() => bar.end());
  await tellErrors(call, ended.report, app, options.errors);
  await ended.forget();
  const { import_id, written, skipped, failed, lines, height } = ended.report;
  await printObject(terminal, {
    collection,
    import_id,
    dry_run: definition.dry_run || undefined,
    written,
    skipped,
    failed,
    lines,
    height,
  });
  if (definition.dry_run) terminal.say('That was a dry run: nothing is stored.');
  if (failed > 0) throw new Failure(`${countText(failed, 'record')} could not be stored`);
}

async function importWhole(call: Invocation<ImportFlags>, folder: string, other: string | undefined): Promise<void> {
  const { options, terminal, signal } = call;
  if (other !== undefined) throw new UsageError(`--all imports more than "${other}"`, 'Leave one of them out.');
  const ofFiles = ['format', 'mode', 'onError', 'dryRun', 'types', 'columns', 'separator', 'empty', 'errors'] as const;
  const unfit = ofFiles.find((name) => options[name] !== undefined);
  if (unfit !== undefined)
    throw new UsageError('--all takes no options of one file', 'Only --merge, --without-files and --restart.');
  const { importApp } = await import('../transfers/app-import.ts');
  const bar = new ProgressBar(terminal, 'import');
  const app = await call.app(movingApp);
  const { url } = await call.target();
  const { manifest, definitions, documents, files, problems, kept } = await importApp(folder, {
    app,
    url,
    signal,
    merges: options.merge === true,
    withoutFiles: options.withoutFiles === true,
    restarts: options.restart === true,
    onProgress: (text, share) => bar.show(share ?? 0, share === undefined ? undefined : 1, text),
    onUnresumable: (reason) =>
      terminal.say(`This import cannot go on after a break, for its state cannot be stored: ${reason}`),
  })
    .catch((error: unknown) => sayFolder(call, { folder, kind: 'import' }, error))
    .finally(() => bar.end());
  const { indexes, views, queries, datasets } = definitions;
  const report = {
    app: app.id,
    from: manifest.app,
    height: manifest.height,
    collections: manifest.collections.length,
    documents,
    files,
    indexes: indexes.length,
    views: views.length,
    queries: queries.length,
    datasets: datasets.length,
  };
  const left = options.withoutFiles ? filesOf(manifest.collections) : 0;
  const left_out =
    left === 0 ? manifest.left_out : [...manifest.left_out, `Uploaded files, and their documents: ${left}.`];
  await printMove(terminal, report, { kept, left_out });
  if (problems.length === 0) return;
  throw new Failure(`The app is not as the exported one:\n${problems.join('\n')}`);
}
