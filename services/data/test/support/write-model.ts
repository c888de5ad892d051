/** The members of a document beside its id; few values, so that conditions and unique values meet. */
export type Members = Readonly<Record<string, number | string | null>>;

export interface Version {
  version: number;
  deleted: boolean;
  document: Record<string, unknown>;
}

/** What must hold for the present version: versions by number, or any. */
export type Match = 'any' | readonly number[] | undefined;

export interface Change {
  kind: 'create' | 'put' | 'merge' | 'delete';
  collection: string;
  id: string;
  members: Members;
  ifMatch?: Match;
  ifNoneMatch?: Match;
  /** The present version must have this `n`. */
  conditionN?: number | undefined;
}

export interface StoredDocument {
  id: string;
  members: Members;
  deleted: boolean;
}

/** A reason, or the version that a change makes. */
export type Outcome = { reason: string } | { version: number; created: boolean; deleted: boolean };

/** The collection whose `n` is unique among documents that are not deleted. */
export const uniqueCollection = 'unique';

/**
 * What the write path must do, in maps. Values are unique after each call, so one that a later change of the same call
 * gives up may be taken.
 */
export class WriteModel {
  /** All versions of each document, the oldest first, by collection and id. */
  collections = new Map<string, Map<string, Version[]>>([[uniqueCollection, new Map()]]);

  /** One change by itself. */
  change(change: Change): Outcome {
    const outcomes = this.unless(() => [this.decide(change)]);
    return 'reason' in outcomes ? outcomes : outcomes[0]!;
  }

  /** All of them, or the reason of the first that is refused and no change. */
  together(changes: readonly Change[]): Outcome[] | { reason: string } {
    return this.unless(() => {
      const outcomes = changes.map((change) => this.decide(change));
      return outcomes.find((outcome) => 'reason' in outcome) ?? outcomes;
    });
  }

  /** Those that are not refused: together where each can be decided without the others, else one after the other. */
  separately(changes: readonly Change[]): Outcome[] {
    const isRepeated = new Set(changes.map(({ collection, id }) => `${collection}/${id}`)).size < changes.length;
    const outcomes = isRepeated ? undefined : this.unless(() => changes.map((change) => this.decide(change)));
    return !outcomes || 'reason' in outcomes ? changes.map((change) => this.change(change)) : outcomes;
  }

  /** A call of `/store`. */
  store(collection: string, documents: readonly StoredDocument[]): Outcome[] | { reason: string } {
    return this.unless(() => documents.map((document) => this.write(collection, document)));
  }

  /** Makes changes, unless they are refused or leave a value to two documents. */
  private unless(make: () => Outcome[] | { reason: string }): Outcome[] | { reason: string } {
    const before = structuredClone(this.collections);
    const outcomes = make();
    const refused = this.isUnique() ? outcomes : { reason: 'UNIQUE_VIOLATION' };
    if ('reason' in outcomes || 'reason' in refused) this.collections = before;
    return 'reason' in outcomes ? outcomes : refused;
  }

  /** A change as it is decided without a look at other documents. */
  private decide(change: Change): Outcome {
    const { kind, collection, id, members } = change;
    const present = this.present(collection, id);
    const needsPresent = kind === 'merge' || kind === 'delete';
    if (needsPresent && !this.collections.has(collection)) return { reason: 'COLLECTION_NOT_FOUND' };
    if (needsPresent && !present) return { reason: 'DOCUMENT_NOT_FOUND' };
    if (kind === 'create' && present) return { reason: 'ALREADY_EXISTS' };
    if (!this.holds(change, present)) return { reason: 'PRECONDITION_FAILED' };
    if (kind === 'create' || kind === 'put') return this.write(collection, { id, members, deleted: false });
    const merged: Record<string, unknown> = { ...present!.document };
    for (const [name, value] of Object.entries(kind === 'delete' ? {} : members)) {
      if (value === null) delete merged[name];
      else merged[name] = value;
    }
    if (kind === 'delete') merged['deleted'] = true;
    return this.add(collection, id, merged, kind === 'delete');
  }

  /** How many versions there were. */
  erase(collection: string, id: string, ifMatch: Match): number | { reason: string } {
    const documents = this.collections.get(collection);
    if (!documents) return { reason: 'COLLECTION_NOT_FOUND' };
    const versions = documents.get(id);
    if (!versions) return { reason: 'DOCUMENT_NOT_FOUND' };
    const last = versions.at(-1)!;
    const isNamed = ifMatch === 'any' ? !last.deleted : ifMatch?.includes(last.version);
    if (ifMatch && isNamed !== true) return { reason: 'PRECONDITION_FAILED' };
    documents.delete(id);
    return versions.length;
  }

  private present(collection: string, id: string): Version | undefined {
    const last = this.collections.get(collection)?.get(id)?.at(-1);
    return last?.deleted ? undefined : last;
  }

  private holds({ ifMatch, ifNoneMatch, conditionN }: Change, present: Version | undefined): boolean {
    const names = (match: Match) =>
      present !== undefined && (match === 'any' || (match?.includes(present.version) ?? false));
    if (ifMatch && !names(ifMatch)) return false;
    if (ifNoneMatch && names(ifNoneMatch)) return false;
    return conditionN === undefined || present?.document['n'] === conditionN;
  }

  private write(collection: string, { id, members, deleted }: StoredDocument): Outcome {
    return this.add(collection, id, { id, ...members, ...(deleted && { deleted }) }, deleted);
  }

  private add(collection: string, id: string, document: Record<string, unknown>, deleted: boolean): Outcome {
    let documents = this.collections.get(collection);
    if (!documents) this.collections.set(collection, (documents = new Map<string, Version[]>()));
    const versions = documents.get(id) ?? [];
    const created = versions.at(-1)?.deleted ?? true;
    const version = (versions.at(-1)?.version ?? 0) + 1;
    versions.push({ version, deleted, document });
    documents.set(id, versions);
    return { version, created, deleted };
  }

  private isUnique(): boolean {
    const values = [...this.collections.get(uniqueCollection)!.values()]
      .map((versions) => versions.at(-1)!)
      .filter(({ deleted, document }) => !deleted && typeof document['n'] === 'number')
      .map(({ document }) => document['n']);
    return new Set(values).size === values.length;
  }
}
