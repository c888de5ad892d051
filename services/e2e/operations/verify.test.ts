import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { isSkippedWithout } from '@granary/testing/stack';
import { Client } from 'pg';
import { findPython } from '@granary/stack/tools/tools';
import { readFromApi, readFromFile } from '@granary/operator/chains/chain-source';
import { exportChain, verifyChain, type KnownLink } from '@granary/operator/chains/verify-chain';
import { borrowGranary, newApp, transports, type Granary, type TestApp } from '../support/granary';
import { spawnBuilt } from '../support/own-process';

const page = join(__dirname, '../../../docs/hash-chain.md');
const run = promisify(execFile);

/** The verifier of docs/hash-chain.md, of which a stranger has nothing but the page. */
async function verifierOfThePage(): Promise<string> {
  const [, program] = /```python\n([^]*?)```/.exec(await readFile(page, 'utf8')) ?? [];
  return program!;
}

/** An export of as many commits of one document each, made as docs/hash-chain.md says. */
function* syntheticChain(count: number): Generator<string> {
  const sha256 = (...parts: Buffer[]) => createHash('sha256').update(Buffer.concat(parts)).digest();
  const uint = (value: number, bytes: number) => Buffer.from(value.toString(16).padStart(2 * bytes, '0'), 'hex');
  const withLength = (part: Buffer) => Buffer.concat([uint(part.length, 4), part]);
  const collection = 'films';
  let previous: Buffer = Buffer.alloc(32);
  let lines: string[] = [];
  for (let height = 1; height <= count; height++) {
    const id = `d${height}`;
    const text = `{"id":"${id}","text":"a document of a long chain"}`;
    const digest = sha256(Buffer.from(text));
    const content = sha256(...[Buffer.from(collection), Buffer.from(id), digest].map(withLength));
    previous = sha256(previous, uint(height, 8), content);
    const [hash, contentHash] = [previous.toString('hex'), content.toString('hex')];
    const documents = [{ id, sha256: digest.toString('hex'), text }];
    const ofCommit = { operation: 'store', stores: 'documents', collection, document_count: 1, place: 0, documents };
    lines.push(JSON.stringify({ height, hash, content_hash: contentHash, ...ofCommit }));
    if (height % 1_000 > 0 && height < count) continue;
    yield `${lines.join('\n')}\n`;
    lines = [];
  }
}

/** The head of such a chain comes first in its export, so the chain is made twice. */
async function writeSyntheticChain(file: string, count: number): Promise<void> {
  let last = '';
  for (const lines of syntheticChain(count)) last = lines.trimEnd().split('\n').at(-1)!;
  const { height, hash } = JSON.parse(last) as { height: number; hash: string };
  const header = `${JSON.stringify({ granary_export: 1, app_id: 'long', head: { height, hash } })}\n`;
  await pipeline(function* () {
    yield header;
    yield* syntheticChain(count);
  }, createWriteStream(file));
}

describe('the verification of a chain', () => {
  let granary: Granary;
  let app: TestApp;
  let database: Client;
  let directory: string;
  let program: string;
  let python: string | undefined;
  let schema: string;
  let file: string;
  beforeAll(async () => {
    granary = await borrowGranary(transports[0]!);
    database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
    directory = await mkdtemp(join(tmpdir(), 'granary-verify-'));
    program = join(directory, 'verify.py');
    file = join(directory, 'chain.ndjson');
    await writeFile(program, await verifierOfThePage());
    python = isSkippedWithout('python') ? undefined : (await findPython()).command;
    app = await newApp(granary);
    await fillApp();
    const { rows } = await database.query<{ number: string }>('select number from application where app_id = $1', [
      app.appId,
    ]);
    schema = `a_${rows[0]!.number}`;
    await exportChain(await readFromApi(api(), new AbortController().signal), file, new AbortController().signal);
  });
  afterAll(async () => {
    await database.end();
    await granary.stop();
    await rm(directory, { recursive: true, force: true });
  });

  /** Versions, a commit on several pages, texts that need escapes, an upload, an erasure, a deleted collection. */
  async function fillApp(): Promise<void> {
    await app.store('films', [{ id: 'a', text: 'Hello' }]);
    await app.store('films', [
      { id: 'a', text: 'Hello again' },
      { id: 'b', text: 'Grüße "\\\n\u2028 🎬' },
      { id: 'x', text: 'to be erased' },
    ]);
    await app.store(
      'many',
      Array.from({ length: 1_100 }, (_, n) => ({ id: `m${n}` })),
    );
    await app.call('POST', `/api/apps/${app.appId}/blobs/files`, 'bytes', { 'content-type': 'text/plain' });
    await app.store('gone', [{ id: 'g' }]);
    await app.call('DELETE', `/api/apps/${app.appId}/collections/gone`, { force: true });
    await app.call('DELETE', `/api/apps/${app.appId}/collections/films/documents/x?erase=true`);
    await app.store('films', [{ id: 'c', text: 'last' }]);
  }

  const api = () => ({ url: granary.url, appId: app.appId, key: app.key });
  const source = (from: string | undefined) =>
    from === undefined ? readFromApi(api(), new AbortController().signal) : readFromFile(from);

  const ours = async (from?: string, known?: KnownLink): Promise<string> => {
    try {
      await verifyChain(await source(from), known, () => {});
      return 'whole';
    } catch (error) {
      return (error as Error).message;
    }
  };

  async function theirs(from?: string): Promise<string> {
    // Without Python only ours is tested.
    if (python === undefined) return ours(from);
    const where = from ?? `${granary.url}/api/apps/${app.appId}`;
    const env = { ...process.env, APP_KEY: app.key, PYTHONUTF8: '1' };
    return (await run(python, [program, where], { env })).stdout.trim();
  }

  const both = async (from?: string) => [await ours(from), await theirs(from)];

  test('the verifier of the page has at most 60 lines, and finds what ours finds: over HTTP and in an export it is whole', async () => {
    expect((await verifierOfThePage()).trimEnd().split('\n').length).toBeLessThanOrEqual(60);
    expect(await both()).toEqual(['whole', 'whole']);
    expect(await both(file)).toEqual(['whole', 'whole']);
    const { commits, texts } = await verifyChain(await source(file), undefined, () => {});
    expect({ commits, texts }).toEqual({ commits: 7, texts: { checked: 1_105, absent: 3 } });
  });

  test('one altered byte in the database is named with its height, by both', async () => {
    const { rows: collections } = await database.query<{ number: string }>(
      `select c.number from collection c join application a on a.number = c.app_number where a.app_id = $1 and c.name = 'films'`,
      [app.appId],
    );
    const [films, history, commits] = [
      `${schema}.c_${collections[0]!.number}`,
      `${schema}.h_${collections[0]!.number}`,
      `${schema}.commits`,
    ];
    const content = 'has other ids or hashes of texts than those of its content hash';
    const cases: Array<[string, string]> = [
      [
        `update ${films} set body = replace(body, 'Hello', 'Hallo')`,
        'link 2 has another text of the document a than was committed',
      ],
      [
        `update ${history} set body = replace(body, 'Hello', 'Hallo')`,
        'link 1 has another text of the document a than was committed',
      ],
      [`update ${commits} set ids[2] = 'B' where height = 2`, `link 2 ${content}`],
      [`update ${commits} set ids[1050] = 'M' where height = 3`, `link 3 ${content}`],
      [
        `update ${commits} set hashes = set_byte(hashes, 40, get_byte(hashes, 40) # 1) where height = 3`,
        `link 3 ${content}`,
      ],
      [
        `update ${commits} set content_hash = set_byte(content_hash, 0, get_byte(content_hash, 0) # 1) where height = 5`,
        `link 5 ${content}`,
      ],
      [
        `update ${commits} set hash = set_byte(hash, 31, get_byte(hash, 31) # 1) where height = 4`,
        'link 4 does not follow from the link before it',
      ],
      [`delete from ${commits} where height = 5`, 'link 5 is missing'],
      [
        `update head set hash = set_byte(hash, 0, get_byte(hash, 0) # 1) where app_number = ${schema.slice(2)}`,
        'link 7 is not the head that the service names',
      ],
    ];
    // Other apps have their heads in the same table.
    const kept = [films, history, commits, 'head'].map((table) => ({
      table,
      copy: `${schema}.kept_${table.replace('.', '_')}`,
      rows: table === 'head' ? `head where app_number = ${schema.slice(2)}` : table,
    }));
    for (const [alter, expected] of cases) {
      for (const { copy, rows } of kept) await database.query(`create table ${copy} as select * from ${rows}`);
      try {
        expect((await database.query(alter)).rowCount).toBeGreaterThan(0);
        expect(await both()).toEqual([expected, expected]);
      } finally {
        for (const { table, copy, rows } of kept.toReversed()) {
          await database.query(
            `begin; delete from ${rows}; insert into ${table} table ${copy}; drop table ${copy}; commit`,
          );
        }
      }
    }
    expect(await ours()).toBe('whole');
  });

  test('one altered byte in an export is named with its height, by both', async () => {
    const good = await readFile(file, 'utf8');
    const lines = good.trimEnd().split('\n');
    const content = 'has other ids or hashes of texts than those of its content hash';
    const hashOf = (height: number) =>
      lines
        .map((line) => JSON.parse(line) as { height?: number; hash: string })
        .find((commit) => commit.height === height)!.hash;
    const flipped = (hash: string) => (hash.startsWith('0') ? '1' : '0') + hash.slice(1);
    const cases: Array<[string, string]> = [
      [good.replace('Hello again', 'Hello Again'), 'link 2 has another text of the document a than was committed'],
      [good.replace('"id":"m1099"', '"id":"m1098"'), `link 3 ${content}`],
      [good.replace('"collection":"films"', '"collection":"filmz"'), `link 1 ${content}`],
      [
        good.replace(`"hash":"${hashOf(4)}"`, `"hash":"${flipped(hashOf(4))}"`),
        'link 4 does not follow from the link before it',
      ],
      [lines.filter((_, at) => at !== 1).join('\n'), 'link 1 is missing'],
      // The second part of the third commit.
      [lines.filter((_, at) => at !== 4).join('\n'), 'link 3 lacks its documents from place 996 on'],
      [lines.slice(0, -1).join('\n'), 'link 7 is missing'],
      [lines.slice(0, 4).join('\n'), 'link 3 lacks its documents from place 996 on'],
    ];
    const altered = join(directory, 'altered.ndjson');
    for (const [text, expected] of cases) {
      expect(text).not.toBe(good);
      await writeFile(altered, text);
      expect(await both(altered)).toEqual([expected, expected]);
    }
    for (const text of ['', '{}', 'x', `${lines[0]}\n{"height":1}`]) {
      await writeFile(altered, text);
      expect(await ours(altered)).toMatch(/is not/);
    }
  });

  test('a hash that was kept elsewhere must be in the chain', async () => {
    const { commits } = (
      await app.call<{ commits: Array<{ height: number; hash: string }> }>('GET', `/api/apps/${app.appId}/commits`)
    ).body;
    const known = { height: 4n, hash: commits[3]!.hash };
    expect(await ours(file, known)).toBe('whole');
    expect(await ours(file, { ...known, height: 5n })).toBe('link 5 is not the one that was kept');
    expect(await ours(file, { ...known, height: 9n })).toBe('link 8 is missing, which was kept');
  });

  test('a chain of 200,000 commits is checked in a heap that cannot hold it', async () => {
    const long = join(directory, 'long.ndjson');
    await writeSyntheticChain(long, 200_000);
    const child = await spawnBuilt(
      ['operator'],
      { ...process.env, VERIFY_FROM: long, NODE_OPTIONS: '--max-old-space-size=64' },
      ['verify'],
    );
    let output = '';
    child.stdout!.on('data', (chunk: Buffer) => (output += chunk.toString()));
    expect(await once(child, 'close')).toEqual([0, null]);
    expect((await stat(long)).size).toBeGreaterThan(64 * 1024 * 1024);
    expect(output).toContain('is whole: 200000 commits');
  });

  test('the command exports and checks a chain, and exits with 1 where it does not fit', async () => {
    const command = async (env: Record<string, string>) => {
      const child = await spawnBuilt(['operator'], { ...process.env, ...env }, ['verify']);
      let output = '';
      for (const stream of [child.stdout!, child.stderr!])
        stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
      const [code] = (await once(child, 'close')) as [number];
      return { code, output };
    };
    const exported = join(directory, 'exported.ndjson');
    const service = { GRANARY_URL: granary.url, GRANARY_APP: app.appId, GRANARY_KEY: app.key };
    const done = await command({ ...service, VERIFY_EXPORT: exported });
    expect(done.output).toContain(`The chain of ${app.appId} is whole: 7 commits`);
    expect(done.code).toBe(0);
    expect(await readFile(exported, 'utf8')).toBe(await readFile(file, 'utf8'));
    await writeFile(exported, (await readFile(exported, 'utf8')).replace('Hello again', 'Hello Again'));
    const failed = await command({ VERIFY_FROM: exported });
    expect(failed.output).toContain('The verification failed: link 2 has another text of the document a');
    expect(failed.code).toBe(1);
    expect((await command({ ...service, GRANARY_KEY: 'app_wrong' })).output).toContain('401');
  });
});
