import type { Manifest } from './app-manifest.ts';

/** Some files that are not stored. There may be very many, so that only the first are named. */
interface SomeFiles {
  count: number;
  ids: string[];
  /** Why the first of them is not. */
  message: string;
}

/** The files of a collection that are not stored. */
export interface UnstoredFiles {
  /** Their ids have another file or document, which stays. */
  taken: SomeFiles;
  /** The app takes them not, or not their documents. */
  refused: SomeFiles;
}

/** What an import keeps for its report. */
export interface ImportNotes {
  withoutFiles: boolean;
  /** By the collection. */
  unstoredFiles: Record<string, UnstoredFiles>;
  /** Sentences of steps that are done. */
  problems: string[];
  kept: string[];
}

const idsNamed = 20;

export const noneUnstored = (): UnstoredFiles => ({
  taken: { count: 0, ids: [], message: '' },
  refused: { count: 0, ids: [], message: '' },
});

export function noteUnstored(files: SomeFiles, id: string, error: Error): void {
  if (files.count === 0) files.message = error.message;
  files.count += 1;
  if (files.ids.length < idsNamed) files.ids.push(id);
}

/** How many documents and files of a folder an import has stored; those that were there as they are count too. */
export function movedIn({ collections }: Manifest, { withoutFiles, unstoredFiles }: ImportNotes) {
  let [documents, files] = [0, 0];
  for (const { name, documents: all, uploads } of collections) {
    const unstored = unstoredFiles[name] ?? noneUnstored();
    const count = uploads?.count ?? 0;
    const missing = withoutFiles ? count : unstored.taken.count + unstored.refused.count;
    documents += all - missing;
    files += count - missing;
  }
  return { documents, files };
}

/** What the report says: `differences` are those that the checks at the end have seen. */
export function sentencesOf({ problems, kept, unstoredFiles }: ImportNotes, differences: readonly string[]) {
  const collections = Object.entries(unstoredFiles);
  const taken = collections
    .filter(
      ([
        ,
        {
          taken: { count },
        },
      ]) => count > 0,
    )
    .map(
      ([name, { taken: files }]) => `"${name}" has other files or documents under the ids of files: ${named(files)}.`,
    );
  const refused = collections
    .filter(
      ([
        ,
        {
          refused: { count },
        },
      ]) => count > 0,
    )
    .map(
      ([name, { refused: files }]) =>
        `Files of "${name}" are not stored, and neither are their documents: ${named(files)}: ${files.message}.`,
    );
  return { problems: [...problems, ...refused, ...differences], kept: [...kept, ...taken] };
}

const named = ({ count, ids }: SomeFiles): string =>
  `${ids.join(', ')}${count > ids.length ? ` and ${count - ids.length} more` : ''}`;
