import { ServiceError } from '@granary/shared/errors';
import { JsonReader } from '@granary/shared/json/reader';
import type { CollectionRef } from '../catalog/collection';
import { compileWatch, documentDepthMax, readDocument, type WatchTree } from '../json/document';
import { storedFilter } from '../query/execute/encrypted-read';
import { conditionText, isAll, type Condition, type Path } from '../query/language/condition';
import { documentsRelation } from '../query/plan/relation';
import { canonicalText, valueAt } from '../values/canonical';
import type { Channel } from './channel';
import { keyFilterOf } from './key-filter';
import { RestColumns, shapesMax } from './rest-columns';

export const TOO_MANY_FILTERS = 'TOO_MANY_FILTERS';

/** A channel by its place in the set, with the condition that must hold besides a key; undefined: none. */
interface Candidate {
  channel: number;
  rest: number | undefined;
}

/** A version of a document, with the results of the conditions, see RestColumns. */
export interface FilteredVersion {
  text: Buffer;
  results: readonly boolean[];
}

/**
 * Finds the channels that a document of one collection is for. Where a filter asks for the value of a field, it is
 * found by that value, whatever the number of filters; all other conditions are evaluated by Postgres.
 */
export class CollectionMatcher {
  /** The conditions that Postgres evaluates for each version. */
  readonly columns: RestColumns;
  /** Channels without a filter. */
  readonly unfiltered: readonly number[];
  /** Channels with a filter and without the right to what is private. */
  readonly filteredStrangers: readonly number[];
  /** Channels whose filter the collection does not take, or that are more than one statement should evaluate. */
  readonly refusals: ReadonlyMap<number, ServiceError>;
  private readonly evaluated: readonly Candidate[];
  private readonly watch: WatchTree;
  /** For each watched field the candidates by its value. */
  private readonly byValue: ReadonlyArray<ReadonlyMap<string, readonly Candidate[]>>;

  constructor(ref: CollectionRef, channels: ReadonlyArray<readonly [index: number, channel: Channel]>) {
    const relation = documentsRelation(ref, { includeHistory: true, includeDeleted: true });
    const filters = new FilterTable();
    const unfiltered: number[] = [];
    const refusals = new Map<number, ServiceError>();
    // Those of strangers come last where there are too many.
    const inOrder = [...channels].sort(
      ([, one], [, other]) => Number(other.mayReadPrivate) - Number(one.mayReadPrivate),
    );
    for (const [channel, { find, mayReadPrivate }] of inOrder) {
      try {
        if (isAll(find)) unfiltered.push(channel);
        else filters.add(channel, storedFilter(relation, find, mayReadPrivate), relation.dates);
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        refusals.set(channel, error);
      }
    }
    this.columns = new RestColumns(relation, filters.rests);
    for (const { channel, rest } of filters.candidates) {
      if (rest !== undefined && this.columns.excess.has(rest)) refusals.set(channel, tooManyFilters(ref.name));
    }
    this.unfiltered = unfiltered;
    this.filteredStrangers = channels.flatMap(([channel, { find, mayReadPrivate }]) =>
      isAll(find) || mayReadPrivate ? [] : [channel],
    );
    this.refusals = refusals;
    this.evaluated = filters.evaluated;
    this.watch = compileWatch(filters.fields.map(({ path }) => path));
    this.byValue = filters.fields.map(({ candidates }) => candidates);
  }

  /** Whether a channel has a filter, so that the version before matters. */
  get hasFilters(): boolean {
    return this.evaluated.length > 0 || this.byValue.length > 0;
  }

  /** The channels with a filter that a version matches. */
  matches({ text, results }: FilteredVersion): Set<number> {
    const matching = new Set<number>();
    const consider = ({ channel, rest }: Candidate) => {
      if (rest === undefined || results[rest] === true) matching.add(channel);
    };
    for (const candidate of this.evaluated) consider(candidate);
    if (this.byValue.length === 0) return matching;
    const reader = new JsonReader(text, { maxDepth: documentDepthMax });
    const { captures } = readDocument(reader, this.watch, { sizeMaxBytes: Infinity });
    for (const [field, capture] of captures.entries()) {
      if (!capture || capture.type === 'object' || capture.type === 'array') continue;
      for (const candidate of this.byValue[field]!.get(canonicalText(valueAt(text, capture), false)) ?? []) {
        consider(candidate);
      }
    }
    return matching;
  }
}

interface KeyedField {
  path: Path;
  candidates: Map<string, Candidate[]>;
}

/** The filters of a collection: by the values that they ask for, and by what Postgres evaluates. */
class FilterTable {
  readonly candidates: Candidate[] = [];
  /** The candidates without a key. */
  readonly evaluated: Candidate[] = [];
  readonly rests: Condition[] = [];
  private readonly restIndexes = new Map<string, number>();
  private readonly byPath = new Map<string, KeyedField>();

  get fields(): KeyedField[] {
    return [...this.byPath.values()];
  }

  add(channel: number, condition: Condition, dates: ReadonlySet<string>): void {
    const filter = keyFilterOf(condition, dates);
    const rest = filter ? filter.rest : condition;
    const candidate = { channel, rest: rest && this.restIndex(rest) };
    this.candidates.push(candidate);
    if (!filter) this.evaluated.push(candidate);
    for (const { path, text } of filter?.keys ?? []) this.addKey(path, text, candidate);
  }

  private restIndex(condition: Condition): number {
    const key = conditionText(condition);
    let index = this.restIndexes.get(key);
    if (index === undefined) {
      index = this.rests.push(condition) - 1;
      this.restIndexes.set(key, index);
    }
    return index;
  }

  private addKey(path: Path, text: string, candidate: Candidate): void {
    const name = path.join('\0');
    let field = this.byPath.get(name);
    if (!field) this.byPath.set(name, (field = { path, candidates: new Map() }));
    const sharing = field.candidates.get(text);
    if (sharing) sharing.push(candidate);
    else field.candidates.set(text, [candidate]);
  }
}

const tooManyFilters = (collection: string): ServiceError =>
  new ServiceError(
    'RESOURCE_EXHAUSTED',
    TOO_MANY_FILTERS,
    `The feeds of ${collection} have too many different filters that no equality narrows`,
    { details: { limit: 'filters of a collection', max: shapesMax } },
  );
