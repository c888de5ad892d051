import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ImportReport } from '@granary/client';
import { jsonText } from '../exact-json.ts';
import { Failure, isGranaryError } from '../failure.ts';
import { apiPath } from '../session/paths.ts';
import { indexBody, queryBody, takenMembers, type AppDefinitions, type Members } from './app-definitions.ts';
import { checkFiles, datasetFile, readDefinitionsFile, readManifest } from './app-folder.ts';
import type { CollectionFacts, Manifest } from './app-manifest.ts';
import { stateOfImport, type AppImportCall, type AppImportState } from './app-import-state.ts';
import { movedIn, noneUnstored, noteUnstored, sentencesOf } from './unstored-files.ts';
import { readIfThere } from './app-reads.ts';
import { plainDocuments } from './app-files.ts';
import { importFiles } from './import-files.ts';
import { folderStateOf, removeState, writeState } from './state-file.ts';

export interface AppImported {
  manifest: Manifest;
  definitions: AppDefinitions;
  /** How many are stored; those that were there before, as they are, count too. */
  documents: number;
  files: number;
  /** Differences from the exported app, a sentence each. */
  problems: string[];
  /** Things that were there before and stay, a sentence each. */
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
  const onFile = (file: string) => {
    call.signal.throwIfAborted();
    call.onProgress(`checks ${file}`);
  };
  await checkFiles(folder, manifest, { withoutFiles: call.withoutFiles, onFile });
  const state = await stateOfImport(folder, sha256, call);
  const definitions = await readDefinitionsFile(folder);
  const moving = new AppMove(folder, state, manifest, definitions, call);
  await moving.run();
  await removeState(folderStateOf(folder, 'import'));
  return { manifest, definitions, ...movedIn(manifest, state), ...sentencesOf(state, moving.differences) };
}

/** The steps of an import, of which those that are done are not done again. */
class AppMove {
  /** Differences that the checks at the end report; each call makes these anew. */
  readonly differences: string[] = [];
  constructor(
    private readonly folder: string,
    private readonly state: AppImportState,
    private readonly manifest: Manifest,
    private readonly definitions: AppDefinitions,
    private readonly call: AppImportCall,
  ) {}

  /** The path of something in the app. */
  private path(...segments: string[]): string {
    return apiPath('apps', this.call.app.id, ...segments);
  }

  async run(): Promise<void> {
    const { collections, indexes, views, queries, datasets } = this.definitions;
    const isEncrypted = (index: Members) => index['index_type'] === 'encrypted';
    for (const one of collections) await this.step(`collection ${one.name}`, () => this.makeCollection(one));
    for (const one of indexes.filter(isEncrypted)) await this.makeIndex(one);
    for (const [place, facts] of this.manifest.collections.entries()) {
      await this.step(`documents of ${facts.name}`, () => this.importDocuments(facts, place));
      if (facts.uploads && !this.state.withoutFiles)
        await this.step(`files of ${facts.name}`, () => this.importFiles(facts, facts.uploads!.count));
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

  /** A state that cannot be stored is no error here: the user was told at the beginning. */
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
      await this.send('POST', this.path(kind), body);
    } catch (error) {
      if (!isGranaryError(error) || error.code !== 'ALREADY_EXISTS') throw error;
      if (this.call.merges) this.state.kept.push(`${title} was there already.`);
    }
  }

  /** Without its schema, which might change or refuse documents that were stored before it was. */
  private async makeCollection(one: Members & { name: string }): Promise<void> {
    if (this.wasThere(one.name)) return void this.state.kept.push(`The collection "${one.name}" was there already.`);
    const { retention_days: _, schema_definition: __, ...body } = takenMembers('collection', one);
    await this.make('collections', body, `The collection "${one.name}"`);
  }

  private async finishCollection({ name, schema_definition, retention_days }: Members & { name: string }) {
    if (this.wasThere(name)) return;
    const path = this.path('collections', name);
    if (schema_definition !== undefined) await this.send('PUT', path, { schema_definition, force: true });
    if (retention_days !== undefined) await this.send('POST', `${path}/retention`, { retention_days });
  }

  private makeIndex(one: Members & { name: string; collection: string }): Promise<void> {
    const title = `index ${one.name} of ${one.collection}`;
    return this.step(title, () => this.make('indexes', indexBody(one), `The ${title}`));
  }

  private async makeDataset(name: string, file: string): Promise<void> {
    const { app, signal } = this.call;
    const path = this.path('datasets', name);
    if (this.call.merges && (await readIfThere(app, path, signal)) !== undefined) {
      this.state.kept.push(`The data set "${name}" was there already.`);
      return;
    }
    const values = await readFile(join(this.folder, file), 'utf8');
    await app.request('PUT', path, { jsonText: values, signal, timeoutMs: definitionTimeoutMs });
  }

  /** Undefined where there is none, or the service keeps it no longer: documents that are stored are replaced then. */
  private async begunImport(collection: string): Promise<ImportReport | undefined> {
    const importId = this.state.imports[collection];
    if (importId === undefined) return undefined;
    const { app, signal } = this.call;
    try {
      return await app.request<ImportReport>('GET', this.path('imports', importId), { signal });
    } catch (error) {
      if (isGranaryError(error) && error.code === 'IMPORT_NOT_FOUND') return undefined;
      throw error;
    }
  }

  private beginImport(collection: string, bytes: number): Promise<ImportReport> {
    const { app, signal } = this.call;
    const json = { collection, format: 'ndjson', mode: 'upsert', size_bytes: bytes };
    return app.request<ImportReport>('POST', this.path('imports'), { json, signal });
  }

  private async importDocuments(facts: CollectionFacts, place: number): Promise<void> {
    const { name, file, uploads } = facts;
    const bytes = facts.bytes - (uploads?.document_bytes ?? 0);
    if (bytes === 0) return;
    const { app, signal, onProgress } = this.call;
    const { imports } = this.state;
    const begun = (await this.begunImport(name)) ?? (await this.beginImport(name, bytes));
    const title = `documents of ${name} (${place + 1} of ${this.manifest.collections.length})`;
    imports[name] = begun.import_id;
    await this.save();
    try {
      await app.collection(name).import(plainDocuments(this.folder, facts, begun.offset), {
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

  /** Stores files with the documents that describe them. With --merge those that are there stay. */
  private async importFiles(facts: CollectionFacts, count: number): Promise<void> {
    const { app, signal, merges, onProgress } = this.call;
    const { files, unstoredFiles } = this.state;
    const unstored = (unstoredFiles[facts.name] ??= noneUnstored());
    await importFiles(this.folder, facts, {
      app,
      signal,
      done: files[facts.name] ?? 0,
      onProgress: (done) => onProgress(`files of ${facts.name} (${done} of ${count})`, done / count),
      onHandled: (done) => {
        files[facts.name] = done;
        return this.save();
      },
      onRefused: ({ blob_id: id }, reason, error) => {
        if (reason === 'taken' && !merges)
          throw new Failure(`The file ${id} of "${facts.name}" cannot be stored: ${error.message}`);
        noteUnstored(unstored[reason], id, error);
      },
    });
  }

  /** Sets the owner's part of the skills document, and the networks on which the app is paid. */
  private async changeApplication(): Promise<void> {
    const { payment_networks: networks, skills } = this.definitions;
    const { app, merges } = this.call;
    if (merges) {
      this.state.kept.push("The owner's part of skills.md, and the networks of payments, are those of the app.");
      return;
    }
    if (skills !== '') await this.send('PUT', apiPath('skills', app.id, 'skills.md'), { markdown: skills });
    if (networks === undefined) return;
    await this.send('PATCH', apiPath('applications', app.id), { payment_networks: networks }).catch(
      (error: unknown) => {
        if (!isGranaryError(error) || error.status !== 400) throw error;
        this.state.problems.push(`The networks of payments are those of the operator: ${error.message}.`);
      },
    );
  }

  /** Waits for the tasks that build indexes and views. */
  private async awaitBuilds(): Promise<void> {
    for (const { collection, name } of this.definitions.indexes) {
      const path = this.path('collections', collection, 'indexes', name);
      await this.awaitBuild(`The index "${name}" of "${collection}"`, path);
    }
    for (const { name } of this.definitions.views) {
      await this.awaitBuild(`The view "${name}"`, this.path('views', name));
    }
  }

  private async awaitBuild(title: string, path: string): Promise<void> {
    const { app, signal, onProgress } = this.call;
    for (let waits = 0; ; waits += 1) {
      const { status, error } = await app.request<{ status: string; error: string | null }>('GET', path, { signal });
      if (status === 'ready') return;
      if (status !== 'building')
        return void this.differences.push(`${title} is ${status}: ${error ?? 'nobody knows why'}.`);
      onProgress(`${title} is being built`);
      await delay(Math.min(2_000, 50 * 2 ** waits), undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  private async compareCounts(): Promise<void> {
    const { app, signal } = this.call;
    for (const { name, documents: all, uploads } of this.manifest.collections) {
      if (this.wasThere(name)) continue;
      const refused = this.state.unstoredFiles[name]?.refused.count ?? 0;
      const documents = all - (this.state.withoutFiles ? (uploads?.count ?? 0) : refused);
      const path = this.path('collections', name, 'stats');
      const stats = await app.request<{ document_count: number; deleted_count: number }>('GET', path, { signal });
      const stored = stats.document_count + stats.deleted_count;
      if (stored === documents) continue;
      this.differences.push(`The collection "${name}" has ${stored} documents, and ${documents} were exported.`);
    }
  }
}
