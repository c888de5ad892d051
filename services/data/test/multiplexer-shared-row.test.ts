import type { Multiplexer } from '../src/postgres/multiplexer';
import type { SharingReader } from '../src/postgres/shared-row';
import type { Row } from '../src/postgres/rows';
import { testDatabase } from '@granary/testing/database';
import { openMultiplexer, readOne } from './support/multiplexer-fixture';

let multiplexer: Multiplexer;
beforeEach(async () => {
  multiplexer = openMultiplexer((await testDatabase()).url, { size: 1 }).multiplexer;
  await readOne(multiplexer, 'select 1');
});
afterEach(() => multiplexer.end());

/** Collects the rows of a statement, and what it is told of the row that it shares. */
class Reader implements SharingReader<Reader> {
  rows: string[] = [];
  leader: Reader | undefined;
  /** The rows that the leader had when this was complete. */
  seen: string[] | undefined;
  isResent = false;

  follow(leader: SharingReader<unknown>): void {
    this.leader = leader as Reader;
  }
  resent(): void {
    this.isResent = true;
  }
  row(row: Row): void {
    this.rows.push(row.text(0));
  }
  end(): Reader {
    this.seen = this.leader && [...this.leader.rows];
    return this;
  }
}

const rest = 'select $1::text';
/** A statement whose first row is the same for all with the key. */
const read = (key: string, value: string) =>
  multiplexer.readSharing(`select '${key}' union all (${rest})`, { key, rest }, [value], new Reader());

test('of statements that are sent together one reads the row that they share, before the others are answered', async () => {
  const [a, b, c, d] = await Promise.all([read('x', '1'), read('y', '2'), read('x', '3'), read('x', '4')]);
  expect([a, b, c, d].map(({ rows }) => rows)).toEqual([['x', '1'], ['y', '2'], ['3'], ['4']]);
  expect([a.leader, b.leader]).toEqual([undefined, undefined]);
  expect([c.leader, d.leader]).toEqual([a, a]);
  expect([c.seen, d.seen]).toEqual([
    ['x', '1'],
    ['x', '1'],
  ]);
});

test('a statement that is sent later reads the row itself', async () => {
  const first = read('x', '1');
  const second = new Promise<Reader>((resolve, reject) => {
    // After the first was sent, and perhaps before it is answered.
    setImmediate(() => setImmediate(() => void read('x', '2').then(resolve, reject)));
  });
  expect((await first).rows).toEqual(['x', '1']);
  expect((await second).rows).toEqual(['x', '2']);
});

test('statements that must be prepared again say so, since their order may have changed', async () => {
  // Until both texts are prepared.
  for (let n = 0; n < 20; n += 1) await Promise.all([read('x', '1'), read('x', '2')]);
  await readOne(multiplexer, 'deallocate all');
  const [leader, follower] = await Promise.all([read('x', '3'), read('x', '4')]);
  expect([leader.rows, leader.isResent]).toEqual([['x', '3'], true]);
  expect([follower.rows, follower.leader]).toEqual([['4'], leader]);
  const [next] = await Promise.all([read('x', '5')]);
  expect([next.rows, next.isResent]).toEqual([['x', '5'], false]);
});
