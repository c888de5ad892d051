import { CommitUnknownError, transaction } from '@granary/shared/postgres/transaction';
import type { Pool } from '@granary/shared/postgres/pool';

/** A pool whose connection answers COMMIT with an error, and afterwards is alive or not. */
function poolOf(atCommit: Error, isAlive: boolean): { pool: Pool; released: boolean[] } {
  const released: boolean[] = [];
  const query = (text: string) => {
    if (text === 'commit') return Promise.reject(atCommit);
    if (text === 'rollback' && !isAlive) return Promise.reject(new Error('Connection terminated unexpectedly'));
    return Promise.resolve({ command: text.toUpperCase(), rows: [], rowCount: 0 });
  };
  const connection = { query, on: () => {}, removeListener: () => {}, release: (gone: boolean) => released.push(gone) };
  return { pool: { connect: () => Promise.resolve(connection) } as unknown as Pool, released };
}

const ofPostgres = (code: string, severity: string) => Object.assign(new Error(code), { code, severity });

test.each([
  ['a refusal, in whatever language', ofPostgres('23505', 'FEHLER')],
  ['a disk that is full, said by a connection that goes on', ofPostgres('53100', 'ERROR')],
])('%s is what it says', async (_, error) => {
  const { pool, released } = poolOf(error, true);
  await expect(transaction(pool, () => Promise.resolve())).rejects.toBe(error);
  expect(released).toEqual([false]);
});

test.each([
  ['a failure with which the connection goes down', ofPostgres('58030', 'PANIC'), false],
  ['a shutdown', ofPostgres('57P01', 'FATAL'), true],
  ['a network that is gone', Object.assign(new Error('down'), { code: 'ENETDOWN' }), false],
  ['an error of TLS', Object.assign(new Error('bad record'), { code: 'ERR_SSL_BAD_RECORD' }), false],
])('after %s nobody knows whether the transaction was committed', async (_, error, isAlive) => {
  const { pool, released } = poolOf(error, isAlive);
  await expect(transaction(pool, () => Promise.resolve())).rejects.toBeInstanceOf(CommitUnknownError);
  // Such a connection is not used again.
  expect(released).toEqual([true]);
});
