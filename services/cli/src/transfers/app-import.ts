import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { App, ImportReport } from '@granary/client';
import { jsonText } from '../exact-json.ts';
import { Failure, isGranaryError, UsageError } from '../failure.ts';
import { indexBody, queryBody, takenMembers, type AppDefinitions, type Members } from './app-definitions.ts';
import {
  checkFiles,
  datasetFile,
  readDefinitionsFile,
  readManifest,
  type CollectionFacts,
  type Manifest,
} from './app-folder.ts';
import { readIfThere, readJson, readListing } from './app-reads.ts';
import {
  folderStateOf,
  OtherTransfer,
  otherPlace,
  readState,
  removeState,
  writeState,
  type TransferState,
} from './state-file.ts';

/** An import of a folder that has begun. */
interface AppImportState extends TransferState {
  /** SHA-256 of the manifest. */
  manifest: string;
  /** Collections that were there before: their definitions stay. */
  present: string[];
  /** Names of steps. */
  done: string[];
  /** The imports of documents by collection. */
  imports: Record<string, string>;
}

export interface AppImportCall {
  app: App;
  url: string;
  signal: AbortSignal;
  /** The app may have something in it. */
  merges: boolean;
  /** An import that has begun is forgotten. */
  restarts: boolean;
  /** Is told what is done now; `share` is from 0 to 1, where it is known. */
  onProgress: (text: string, share?: number) => void;
  onUnresumable: (reason: string) => void;
}

export interface AppImported {
  manifest: Manifest;
  definitions: AppDefinitions;
  /** What is not as it was in the exported app, a sentence each. */
  problems: string[];
  /** What was there before, and stays. */
  kept: string[];
}

/** A schema or an index of many documents is made as long as that takes. */
const definitionTimeoutMs = 600_000;

/**
 * Makes in an app what the folder of another one has: encrypted indexes, documents, then schemas, other indexes, data
 * sets, views and queries, which are made of documents that are there. What has begun goes on. Throws UsageError,
 * Failure, GranaryError, and the reason of the signal.
 */
export async function importApp(folder: string, call: AppImportCall): Promise<AppImported> {
  const { manifest, sha256 } = await readManifest(folder);
  const state = (await begunImport(folder, sha256, call)) ?? (await begin(folder, manifest, sha256, call));
  const definitions = await readDefinitionsFile(folder);
  const moving = new AppMove(folder, state, manifest, definitions, call);
  await moving.run();
  await removeState(folderStateOf(folder, 'import'));
  return { manifest, definitions, problems: moving.problems, kept: moving.kept };
}

async function begunImport(
  folder: string,
  sha256: string,
  { app, url, restarts }: AppImportCall,
): Promise<AppImportState | undefined> {
  const stateFile = folderStateOf(folder, 'import');
  if (restarts) return void (await removeState(stateFile));
  const state = await readState<AppImportState>(stateFile);
  if (!state) return undefined;
  const reason =
    otherPlace(state, { url, app: app.id }) ?? (state.manifest === sha256 ? undefined : 'the folder was changed');
  if (reason === undefined) return state;
  throw new OtherTransfer(`An import of ${folder} has begun, and is another one: ${reason}`, {
    nextStep: '--restart forgets it and begins with this app; what it has stored stays.',
  });
}

/** Checks folder and app before anything is changed. */
async function begin(folder: string, manifest: Manifest, sha256: string, call: AppImportCall): Promise<AppImportState> {
  const { app, url, signal, merges, onProgress } = call;
  await checkFiles(folder, manifest, (file) => {
    signal.throwIfAborted();
    onProgress(`checks ${file}`);
  });
  const path = `/api/apps/${encodeURIComponent(app.id)}`;
  const names = (rest: string, member?: string) =>
    readListing<{ name: string }>(app, `${path}/${rest}`, member, signal);
  const present = (await names('collections')).map(({ name }) => name);
  const others = [
    ...(await names('views', 'views')),
    ...(await names('queries', 'queries')),
    ...(await names('datasets', 'datasets')),
  ];
  if (!merges && present.length + others.length > 0) {
    const first = present[0] ?? others[0]!.name;
    throw new UsageError(
      `The app "${app.id}" is not empty: it has "${first}"`,
      'Name an empty one by --app, or add --merge: what is there stays, and documents of the same id are replaced.',
    );
  }
  const state: AppImportState = { version: 1, url, app: app.id, manifest: sha256, present, done: [], imports: {} };
  await writeState(folderStateOf(folder, 'import'), state).catch((error: Error) => call.onUnresumable(error.message));
  return state;
}

/** The steps of an import, of which those that are done are not done again. */
class AppMove {
  readonly problems: string[] = [];
  readonly kept: string[] = [];
  private readonly path: string;

  constructor(
    private readonly folder: string,
    private readonly state: AppImportState,
    private readonly manifest: Manifest,
    private readonly definitions: AppDefinitions,
    private readonly call: AppImportCall,
  ) {
    this.path = `/api/apps/${encodeURIComponent(call.app.id)}`;
  }

  async run(): Promise<void> {
    const { collections, indexes, views, queries, datasets } = this.definitions;
    const isEncrypted = (index: Members) => index['index_type'] === 'encrypted';
    for (const one of collections) await this.step(`collection ${one.name}`, () => this.makeCollection(one));
    for (const one of indexes.filter(isEncrypted)) await this.makeIndex(one);
    for (const [place, facts] of this.manifest.collections.entries()) {
      await this.step(`documents of ${facts.name}`, () => this.importDocuments(facts, place));
    }
    for (const one of collections) await this.step(`schema of ${one.name}`, () => this.finishCollection(one));
    for (const one of indexes.filter((index) => !isEncrypted(index))) await this.makeIndex(one);
    for (const [index, name] of datasets.entries()) {
      await this.step(`data set ${name}`, () => this.makeDataset(name, datasetFile(index)));
    }
    for (const one of views) {
      await this.step(`view ${one.name}`, () =>
        this.make('views', takenMembers('view', one), `The view "${one.name}"`),
      );
    }
    for (const one of queries) {
      const name = `query ${one.name} ${one.version}`.trim();
      await this.step(name, () => this.make('queries', queryBody(one), `The ${name}`));
    }
    await this.step('application', () => this.changeApplication());
    await this.awaitBuilds();
    await this.compareCounts();
  }

  private async step(name: string, work: () => Promise<void>): Promise<void> {
    const { state, call } = this;
    if (state.done.includes(name)) return;
    call.signal.throwIfAborted();
    call.onProgress(name);
    await work();
    state.done.push(name);
    await this.save();
  }

  /** Where it cannot be stored, that was said at the beginning. */
  private save(): Promise<void> {
    return writeState(folderStateOf(this.folder, 'import'), this.state).catch(() => {});
  }

  private wasThere(collection: string): boolean {
    return this.state.present.includes(collection);
  }

  private send<T = unknown>(method: 'POST' | 'PUT' | 'PATCH', path: string, body: Members): Promise<T> {
    const { app, signal } = this.call;
    return app.request<T>(method, path, { jsonText: jsonText(body), signal, timeoutMs: definitionTimeoutMs });
  }

  /** Makes something that is not there yet: what is there was made by this import before a break, or stays. */
  private async make(kind: string, body: Members, title: string): Promise<void> {
    try {
      await this.send('POST', `${this.path}/${kind}`, body);
    } catch (error) {
      if (!isGranaryError(error) || error.code !== 'ALREADY_EXISTS') throw error;
      if (this.call.merges) this.kept.push(`${title} was there already.`);
    }
  }

  /** Without its schema, which might change or refuse documents that were stored before it was. */
  private async makeCollection(one: Members & { name: string }): Promise<void> {
    if (this.wasThere(one.name)) return void this.kept.push(`The collection "${one.name}" was there already.`);
    const { retention_days: _, schema_definition: __, ...body } = takenMembers('collection', one);
    await this.make('collections', body, `The collection "${one.name}"`);
  }

  private async finishCollection({ name, schema_definition, retention_days }: Members & { name: string }) {
    if (this.wasThere(name)) return;
    const path = `${this.path}/collections/${encodeURIComponent(name)}`;
    if (schema_definition !== undefined) await this.send('PUT', path, { schema_definition, force: true });
    if (retention_days !== undefined) await this.send('POST', `${path}/retention`, { retention_days });
  }

  private makeIndex(one: Members & { name: string; collection: string }): Promise<void> {
    const title = `index ${one.name} of ${one.collection}`;
    return this.step(title, () => this.make('indexes', indexBody(one), `The ${title}`));
  }

  private async makeDataset(name: string, file: string): Promise<void> {
    const { app, signal } = this.call;
    const path = `${this.path}/datasets/${encodeURIComponent(name)}`;
    if (this.call.merges && (await readIfThere(app, path, signal)) !== undefined) {
      this.kept.push(`The data set "${name}" was there already.`);
      return;
    }
    const values = await readFile(join(this.folder, file), 'utf8');
    await app.request('PUT', path, { jsonText: values, signal, timeoutMs: definitionTimeoutMs });
  }

  private async importDocuments({ name, file, bytes }: CollectionFacts, place: number): Promise<void> {
    if (bytes === 0) return;
    const { app, signal, onProgress } = this.call;
    const { imports } = this.state;
    const json = { collection: name, format: 'ndjson', mode: 'upsert', size_bytes: bytes };
    const begun =
      imports[name] === undefined
        ? await app.request<ImportReport>('POST', `${this.path}/imports`, { json, signal })
        : await app.request<ImportReport>('GET', `${this.path}/imports/${encodeURIComponent(imports[name])}`, {
            signal,
          });
    const title = `documents of ${name} (${place + 1} of ${this.manifest.collections.length})`;
    imports[name] = begun.import_id;
    await this.save();
    try {
      await app.collection(name).import(createReadStream(join(this.folder, file), { start: begun.offset }), {
        importId: begun.import_id,
        sourceStart: begun.offset,
        signal,
        onProgress: ({ offset }) => onProgress(title, offset / bytes),
      });
    } catch (error) {
      signal.throwIfAborted();
      if (!isGranaryError(error) || error.details['line'] === undefined) throw error;
      // The import has ended: another call begins it anew.
      delete imports[name];
      await this.save();
      throw new Failure(`${file} cannot be stored: ${error.message}`);
    }
  }

  /** What the owner has written for readers, and on which networks the app is paid. */
  private async changeApplication(): Promise<void> {
    const { payment_networks: networks, skills } = this.definitions;
    const { app, merges } = this.call;
    if (merges) {
      this.kept.push("The owner's part of skills.md, and the networks of payments, are those of the app.");
      return;
    }
    const appPath = encodeURIComponent(app.id);
    if (skills !== '') await this.send('PUT', `/api/skills/${appPath}/skills.md`, { markdown: skills });
    if (networks === undefined) return;
    await this.send('PATCH', `/api/applications/${appPath}`, { payment_networks: networks }).catch((error: unknown) => {
      if (!isGranaryError(error) || error.status !== 400) throw error;
      this.problems.push(`The networks of payments are those of the operator: ${error.message}.`);
    });
  }

  /** Waits for the tasks that build indexes and views. */
  private async awaitBuilds(): Promise<void> {
    for (const { collection, name } of this.definitions.indexes) {
      const path = `${this.path}/collections/${encodeURIComponent(collection)}/indexes/${encodeURIComponent(name)}`;
      await this.awaitBuild(`The index "${name}" of "${collection}"`, path);
    }
    for (const { name } of this.definitions.views) {
      await this.awaitBuild(`The view "${name}"`, `${this.path}/views/${encodeURIComponent(name)}`);
    }
  }

  private async awaitBuild(title: string, path: string): Promise<void> {
    const { app, signal, onProgress } = this.call;
    for (let waits = 0; ; waits += 1) {
      const { status, error } = await readJson<{ status: string; error: string | null }>(app, path, signal);
      if (status === 'ready') return;
      if (status !== 'building')
        return void this.problems.push(`${title} is ${status}: ${error ?? 'nobody knows why'}.`);
      onProgress(`${title} is being built`);
      await delay(Math.min(2_000, 50 * 2 ** waits), undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  private async compareCounts(): Promise<void> {
    const { app, signal } = this.call;
    for (const { name, documents } of this.manifest.collections) {
      if (this.wasThere(name)) continue;
      const path = `${this.path}/collections/${encodeURIComponent(name)}/stats`;
      const stats = await readJson<{ document_count: number; deleted_count: number }>(app, path, signal);
      const stored = stats.document_count + stats.deleted_count;
      if (stored === documents) continue;
      this.problems.push(`The collection "${name}" has ${stored} documents, and ${documents} were exported.`);
    }
  }
}
