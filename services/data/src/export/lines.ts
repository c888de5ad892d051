import { ByteWriter } from '@granary/shared/byte-writer';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { CollectionRef } from '../catalog/collection';
import { heightsOf } from '../chain/commit-log';
import { replaceBytes, withoutLineEnds } from '../json/line-ends';
import { project, type Projection } from '../json/project';
import { recordText } from '../query/execute/encrypted-read';
import type { Relation } from '../query/plan/relation';
import { textSeparator, type Moment, type VersionsPage } from './versions-at';

/** How the documents of an export are shown. */
export interface LineOptions {
  relation: Pick<Relation, 'cipher'>;
  projection: Projection;
  /** Each document stands in an object that says which version it is. */
  hasHistory: boolean;
}

/** `[id, version, ordinal, at, deleted]` of a version, whose place in time is text of Postgres. */
type VersionHead = [id: string, version: number, ordinal: number, at: string, deleted: boolean];

const lineFeed = 0x0a;
const separator = textSeparator.charCodeAt(0);
const nothing = Buffer.alloc(0);

/** The texts of a page as lines, each with a line feed behind it. */
export async function linesOf(
  db: Queryable,
  { appNumber }: CollectionRef,
  moment: Moment,
  { texts, heads }: VersionsPage,
  { relation, projection, hasHistory }: LineOptions,
): Promise<Buffer> {
  if (texts === null) return nothing;
  const show = recordText(relation, true);
  if (!hasHistory && !show && projection === 'all') return asLines(texts);
  const documents = texts
    .split(textSeparator)
    .map((text) => withoutLineEnds(project(show ? show(Buffer.from(text)) : Buffer.from(text), projection)));
  const members = hasHistory ? await versionMembers(db, appNumber, moment, heads!) : undefined;
  const writer = new ByteWriter(texts.length + documents.length);
  for (const [index, document] of documents.entries()) {
    if (members) writer.text(`{${members[index]!},"document":`);
    writer.raw(document);
    writer.text(members ? '}\n' : '\n');
  }
  return writer.take();
}

/** Most exports are of whole documents as they are stored. */
function asLines(texts: string): Buffer {
  const lines = withoutLineEnds(Buffer.from(texts + textSeparator));
  replaceBytes(lines, separator, lineFeed);
  return lines;
}

/** The members that say which version of which document each text is. */
async function versionMembers(
  db: Queryable,
  appNumber: bigint,
  { height }: Moment,
  headsText: string,
): Promise<string[]> {
  const heads = JSON.parse(headsText) as VersionHead[];
  const ordinals = new Set(heads.map(([, , ordinal]) => ordinal));
  const heights = await heightsOf(db, appNumber, [...ordinals], height);
  return heads.map(([id, version, ordinal, at, deleted]) => {
    const head = { id, version, height: heights.get(ordinal), at: new Date(at).toISOString(), deleted };
    return JSON.stringify(head).slice(1, -1);
  });
}
