import { createHash } from 'node:crypto';
import { Client } from 'pg';

/**
 * Recomputes the chain of an app as docs/hash-chain.md describes it: from its documents, and from the hash that is kept
 * of each text that is gone.
 */
export async function expectChain(url: string, appId: string, length: number): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rows: apps } = await client.query<{ number: string }>('select number from application where app_id = $1', [
      appId,
    ]);
    const schema = `a_${apps[0]!.number}`;
    const { rows: commits } = await client.query<{
      height: string;
      ordinal: string;
      hash: Buffer;
      collection: string;
      ids: string[];
      hashes: Buffer;
    }>(`select height, ordinal, hash, collection, ids, hashes from ${schema}.commits order by height`);
    const texts = new Map<string, string>();
    const { rows: collections } = await client.query<{ number: string }>(
      'select number from collection where app_number = $1',
      [apps[0]!.number],
    );
    for (const { number } of collections) {
      for (const table of [`c_${number}`, `h_${number}`]) {
        const { rows } = await client.query<{ ordinal: string; place: number; body: string }>(
          `select ordinal, place, body from ${schema}.${table}`,
        );
        for (const { ordinal, place, body } of rows) texts.set(`${ordinal}/${place}`, body);
      }
    }
    const sha256 = (...parts: Array<Buffer | string>) => {
      const hash = createHash('sha256');
      for (const part of parts) hash.update(part);
      return hash.digest();
    };
    const prefixed = (part: Buffer) => {
      const size = Buffer.alloc(4);
      size.writeUInt32BE(part.length);
      return Buffer.concat([size, part]);
    };
    let previous: Buffer = Buffer.alloc(32);
    for (const [at, commit] of commits.entries()) {
      expect(commit.height).toBe(String(at + 1));
      expect(commit.hashes).toHaveLength(32 * commit.ids.length);
      const parts = commit.ids.flatMap((id, place) => {
        const kept = commit.hashes.subarray(32 * place, 32 * place + 32);
        const text = texts.get(`${commit.ordinal}/${place}`);
        const hash = text === undefined ? kept : sha256(text);
        expect(kept.toString('hex')).toBe(hash.toString('hex'));
        return [prefixed(Buffer.from(commit.collection)), prefixed(Buffer.from(id)), prefixed(hash)];
      });
      const height = Buffer.alloc(8);
      height.writeBigUInt64BE(BigInt(commit.height));
      previous = sha256(previous, height, sha256(...parts));
      expect(commit.hash.toString('hex')).toBe(previous.toString('hex'));
    }
    expect(commits).toHaveLength(length);
  } finally {
    await client.end();
  }
}
