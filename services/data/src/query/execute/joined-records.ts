import { project } from '../../json/project';
import { ByteWriter } from '@granary/shared/byte-writer';
import { joinedRecordsMax } from '../language/joins';
import type { JoinedSelect } from '../language/joined-select';
import type { JoinPlan } from '../plan/join-plan';
import type { Relation } from '../plan/relation';
import { tooLargeCount } from '../sql/joined-look-up-sql';
import { recordText, type RecordText } from './encrypted-read';
import { resultTooLarge } from './result-limit';

/** The shape in which a record is shown: its selected parts, and the members that its joins add. */
export interface RecordShape {
  select: JoinedSelect;
  /** The aliases of its joins as keys, by which a text is searched for fields of these names. */
  keys: readonly Buffer[];
  members: readonly MemberShape[];
  /** The conversion that its stored text goes through first. */
  show?: RecordText | undefined;
}

interface MemberShape extends RecordShape {
  alias: string;
  /** The place of the join in messages. */
  at: string;
  /** The beginning of the member: its key as JSON text, and a colon. */
  key: Buffer;
  many: boolean;
}

export const recordShape = (
  select: JoinedSelect,
  joins: readonly JoinPlan[],
  relation: Relation,
  mayReadPrivate: boolean,
): RecordShape => ({
  select,
  show: recordText(relation, mayReadPrivate),
  keys: select.aliases.map((alias) => Buffer.from(JSON.stringify(alias))),
  members: joins.map(({ join, joins: inner, relation: joined }) => ({
    ...recordShape(join.select, inner, joined, mayReadPrivate),
    alias: join.alias,
    at: join.at,
    key: Buffer.from(`${JSON.stringify(join.alias)}:`),
    many: join.many,
  })),
});

const comma = 0x2c;
const colon = 0x3a;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const backslash = 0x5c;
const [openBracket, closeBracket] = [0x5b, 0x5d];
const nothing = Buffer.from('null');

/**
 * Puts the texts of joined records (see query/sql/join-sql.ts and joined-look-up-sql.ts) into those that they belong
 * to.
 */
export class JoinedRecords extends ByteWriter {
  #joined: Buffer = nothing;
  #at = 0;
  #isComplete = true;

  constructor(private readonly shape: RecordShape) {
    super(16 * 1024);
  }

  /**
   * The record with its members, valid until the next call; undefined where a document was too large to be read. Throws
   * RESULT_TOO_LARGE for a join with too many records.
   */
  write(body: Buffer, joined: Buffer): Buffer | undefined {
    this.rewind(0);
    this.#joined = joined;
    this.#at = 0;
    this.#isComplete = true;
    this.#record(body, this.shape);
    return this.#isComplete ? this.bytes.subarray(0, this.size) : undefined;
  }

  #record(stored: Buffer, shape: RecordShape): void {
    const { select, members, show } = shape;
    const start = this.size;
    const record = withoutAliases(project(show ? show(stored) : stored, select.stored), shape);
    if (members.length === 0) {
      this.raw(record);
    } else {
      // The record is written without its closing brace, so that the joined members can follow.
      const end = record.length - 1;
      this.raw(record, 0, end);
      members.forEach((member, index) => {
        if (index > 0 || record[end - 1] !== openBrace) this.byte(comma);
        this.raw(member.key);
        this.#member(member);
      });
      this.byte(closeBrace);
    }
    if (select.whole === 'all') return;
    const projected = project(Buffer.from(this.bytes.subarray(start, this.size)), select.whole);
    this.rewind(start);
    this.raw(projected);
  }

  #member(member: MemberShape): void {
    const count = this.#number();
    if (!member.many) {
      if (count === 1) return this.#record(this.#text(), member);
      this.raw(nothing);
      if (count === tooLargeCount) this.#isComplete = false;
      return;
    }
    if (count > joinedRecordsMax) throw tooMany(member);
    this.byte(openBracket);
    for (let index = 0; index < count; index += 1) {
      if (index > 0) this.byte(comma);
      this.#record(this.#text(), member);
    }
    this.byte(closeBracket);
  }

  /** A number and the colon behind it. */
  #number(): number {
    let number = 0;
    for (; this.#joined[this.#at] !== colon; this.#at += 1) number = number * 10 + this.#joined[this.#at]! - 0x30;
    this.#at += 1;
    return number;
  }

  /** A text with its size before it. */
  #text(): Buffer {
    const size = this.#number();
    this.#at += size;
    return this.#joined.subarray(this.#at - size, this.#at);
  }
}

/** A record without the fields that have the name of a join. Most have none, and need not be parsed. */
function withoutAliases(record: Buffer, { keys, select }: RecordShape): Buffer {
  if (keys.length === 0) return record;
  // A key may be written with escapes.
  const mayHave = keys.some((key) => record.includes(key)) || record.includes(backslash);
  return mayHave ? project(record, select.withoutAliases) : record;
}

const tooMany = ({ alias, at: location }: MemberShape): ReturnType<typeof resultTooLarge> =>
  resultTooLarge(`The join ${alias} gives a record more than ${joinedRecordsMax} others: narrow its find`, {
    [location]: [`gives a record more than ${joinedRecordsMax} others`],
  });
