import type { RecordText } from '../query/execute/encrypted-read';
import { recordText } from '../query/execute/encrypted-read';
import type { Relation } from '../query/plan/relation';
import { withoutLineEnds } from '../json/line-ends';
import { project } from '../json/project';
import { sha256 } from '../values/sha256';
import type { Channel } from './channel';
import type { LogEntry } from './log';
import type { StoredVersion } from './versions';

/** Why a document is not there any more, or not for a subscriber. */
export type RemovalReason = 'deleted' | 'filtered' | 'erased' | 'dropped';

/** The documents of one collection as channels show them. */
export class ShownDocuments {
  private readonly ways = new Map<boolean, RecordText | undefined>();

  constructor(private readonly relation: Pick<Relation, 'cipher'>) {}

  /** The text of a version as a channel shows it. */
  textFor({ mayReadPrivate, projection }: Channel, stored: Buffer): Buffer {
    if (!this.ways.has(mayReadPrivate)) this.ways.set(mayReadPrivate, recordText(this.relation, mayReadPrivate));
    const show = this.ways.get(mayReadPrivate);
    return withoutLineEnds(project(show ? show(stored) : stored, projection));
  }
}

/** The members of a new version of a document; `document` is undefined where it is not asked for. */
export function putMembers(
  entry: LogEntry,
  version: StoredVersion | undefined,
  document: Buffer | null | undefined,
  withHash: boolean,
): Buffer {
  const hash = withHash ? { sha256: entry.sha256 } : {};
  const state = { version: versionNumber(version), at: entry.at.toISOString() };
  const members = membersOf({ ...common(entry), ...state, ...hash });
  if (document === undefined) return Buffer.from(members);
  return Buffer.concat([Buffer.from(`${members},"document":`), document ?? Buffer.from('null')]);
}

/** The members of a removal. A subscriber who may not know the id gets its hash, by which a holder recognizes it. */
export function removeMembers(
  entry: LogEntry,
  version: StoredVersion | undefined,
  reason: RemovalReason,
  hidesId = false,
): Buffer {
  const { id, ...place } = common(entry);
  const which = id === undefined ? {} : hidesId ? { id_sha256: sha256(Buffer.from(id)).toString('hex') } : { id };
  const state = version ? { version: versionNumber(version) } : {};
  return Buffer.from(membersOf({ ...place, ...which, ...state, at: entry.at.toISOString(), reason }));
}

const common = ({ height, place, collection, id }: LogEntry) => ({ height: Number(height), place, collection, id });

const versionNumber = (version: StoredVersion | undefined): number | null => (version ? Number(version.version) : null);

const membersOf = (value: object): string => JSON.stringify(value).slice(1, -1);
