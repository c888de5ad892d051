import { createHash } from 'node:crypto';
import { Failure, UsageError } from '../failure.ts';
import type { CommitPart } from './chain-check.ts';
import { addDocument, chainStart, linkHash, sha256Hex, type Link } from './hash-chain.ts';
import { readKept, verifyChain, type CommitPage, type ReadCommits, type Verification } from './verify-chain.ts';

/** The chain of docs/hash-chain.md, with a third commit of three documents. */
const texts = [
  [
    ['a', '{"id":"a","text":"Hello","stars":5}'],
    ['b', '{"id":"b","text":"Grüße","price":1.10}'],
  ],
  [['a', '{"id":"a","text":"Hello again"}']],
  ['c', 'd', 'e'].map((id) => [id, `{"id":"${id}"}`]),
] as Array<Array<[string, string]>>;

function chainOf(contents: typeof texts): CommitPart[] {
  let last: Link = chainStart;
  return contents.map((documents) => {
    const content = createHash('sha256');
    for (const [id, text] of documents) addDocument(content, 'notes', id, sha256Hex(text));
    const contentHash = content.digest('hex');
    last = { height: last.height + 1, hash: linkHash(last, contentHash) };
    return {
      ...last,
      content_hash: contentHash,
      stores: 'documents',
      collection: 'notes',
      document_count: documents.length,
      place: 0,
      documents: documents.map(([id, text]) => ({ id, sha256: sha256Hex(text), text })),
    };
  });
}

/** A service that has these commits, in pages of so many parts. */
function serviceOf(
  commits: CommitPart[],
  { pageSize = 2, head }: { pageSize?: number; head?: Link } = {},
): ReadCommits {
  const { height, hash } = head ?? commits.at(-1) ?? chainStart;
  return (place) => {
    const first = 'cursor' in place ? Number(place.cursor) : commits.findIndex((each) => each.height >= place.from);
    const size = ('limit' in place && place.limit) || pageSize;
    const page: CommitPage = { head: { height, hash }, commits: first < 0 ? [] : commits.slice(first, first + size) };
    if (first >= 0 && first + size < commits.length) page.next_cursor = String(first + size);
    return Promise.resolve(page);
  };
}

const verified = (commits: CommitPart[], request: Partial<Verification> = {}, options = {}) =>
  verifyChain(serviceOf(commits, options), { from: 1, kept: [], ...request });

/** The chain with one commit changed. */
function withCommit(index: number, change: (commit: CommitPart) => CommitPart): CommitPart[] {
  return chainOf(texts).map((commit, each) => (each === index ? change(commit) : commit));
}

const withDocument = (commit: CommitPart, change: Partial<CommitPart['documents'][number]>): CommitPart => ({
  ...commit,
  documents: commit.documents.map((document, place) => (place === 0 ? { ...document, ...change } : document)),
});

test('the hashes are those of docs/hash-chain.md', () => {
  const [first, second] = chainOf(texts);
  expect(first?.content_hash).toBe('df433e7f25f109519c3d1695fef730fffb402d83307071b31e7498af4edbf62e');
  expect(second?.hash).toBe('4f8f97f62828771a02e5c5e1b0c8c98fec7d7958067131ee1a5eb6f21abcb543');
});

test('a whole chain is verified page by page, to the head or to a height', async () => {
  const commits = chainOf(texts);
  const counts = { documents: 6, texts: 6, withoutText: 0, blobs: 0, withoutHash: 0 };
  const { height, hash } = commits[2]!;
  const whole = { last: { height, hash }, commits: 3, counts, isStartTaken: false };
  for (const pageSize of [1, 2, 5]) expect(await verified(commits, {}, { pageSize })).toEqual(whole);
  expect(await verified(commits, { to: 1 })).toMatchObject({ last: { height: 1 }, commits: 1, isStartTaken: false });
  expect(await verified(commits, { from: 2 })).toMatchObject({ last: { hash }, commits: 2, isStartTaken: true });
  expect(await verified(commits, { from: 2, kept: [commits[0]!] })).toMatchObject({ isStartTaken: false });
  expect(await verified([])).toMatchObject({ last: chainStart, commits: 0 });
});

test('a commit may come in parts', async () => {
  const [first, second, third] = chainOf(texts);
  const part = (place: number, count: number) => ({
    ...third!,
    place,
    documents: third!.documents.slice(place, place + count),
  });
  expect(await verified([first!, second!, part(0, 2), part(2, 1)], {}, { pageSize: 3 })).toMatchObject({ commits: 3 });
  const lacks = 'The chain breaks at height 3: the documents from place 2 on are missing';
  for (const rest of [[], [part(1, 2)], [part(2, 0)]]) {
    await expect(verified([first!, second!, part(0, 2), ...rest], {}, { pageSize: 3 })).rejects.toThrow(lacks);
  }
});

test('texts that are gone are counted, and their hashes verified', async () => {
  const gone = withCommit(0, (commit) => withDocument(commit, { text: null }));
  expect((await verified(gone)).counts).toMatchObject({ documents: 6, texts: 5, withoutText: 1, withoutHash: 0 });
  const unknown = withCommit(0, (commit) => withDocument(commit, { text: null, sha256: null }));
  expect((await verified(unknown)).counts).toMatchObject({ withoutText: 0, withoutHash: 1 });
  const blob = withCommit(1, (commit) => ({ ...withDocument(commit, { text: null }), stores: 'blob' }));
  expect((await verified(blob)).counts).toMatchObject({ documents: 5, withoutText: 0, blobs: 1 });
});

const zeros = '0'.repeat(64);

test.each<[string, CommitPart[], string]>([
  [
    'a text was changed',
    withCommit(1, (commit) => withDocument(commit, { text: '{"id":"a","text":"Goodbye"}' })),
    'height 2: the text of the document "a" is not the one that was committed',
  ],
  [
    'a text was changed with its hash',
    withCommit(1, (commit) => withDocument(commit, { text: 'x', sha256: sha256Hex('x') })),
    'height 2: its content hash is not that of',
  ],
  [
    'an id was changed',
    withCommit(0, (commit) => withDocument(commit, { id: 'z' })),
    'height 1: its content hash is not that of',
  ],
  [
    'two documents changed places',
    withCommit(0, (commit) => ({ ...commit, documents: [...commit.documents].reverse() })),
    'height 1: its content hash is not that of',
  ],
  [
    'a collection was renamed',
    withCommit(0, (commit) => ({ ...commit, collection: 'other' })),
    'height 1: its content hash is not that of',
  ],
  ['a hash was changed', withCommit(1, (commit) => ({ ...commit, hash: zeros })), 'height 2: its hash does not follow'],
  [
    'a content hash was changed',
    withCommit(1, (commit) => ({ ...commit, content_hash: zeros })),
    'height 2: its content hash is not that of',
  ],
  ['a hash is none', withCommit(1, (commit) => ({ ...commit, hash: 'x' })), 'height 2: a hash of it is no hash'],
  [
    'a commit is missing',
    chainOf(texts).filter(({ height }) => height !== 2),
    'height 2: the service goes on with height 3',
  ],
  [
    'the commits are in another order',
    [0, 2, 1].map((index) => chainOf(texts)[index]!),
    'height 2: the service goes on',
  ],
  [
    'history was written anew',
    [...chainOf(texts).slice(0, 1), ...chainOf([[['a', 'x']], ...texts.slice(1)]).slice(1)],
    'height 2: its hash does not follow',
  ],
])('%s: the chain breaks', async (_, commits, message) => {
  const error: unknown = await verified(commits).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(Failure);
  expect((error as Failure).message).toContain(`The chain breaks at ${message}`);
  expect((error as Failure).exitCode).toBe(1);
});

test('a head that the commits do not lead to is a break', async () => {
  const commits = chainOf(texts);
  const missing = verified(commits, {}, { head: { height: 5, hash: zeros } });
  await expect(missing).rejects.toThrow('height 4: the commit is missing, and the head is at 5');
  const other = verified(commits, {}, { head: { height: 3, hash: zeros } });
  await expect(other).rejects.toThrow('height 3: its hash is not the one that the service names as its head');
});

test.each<[string, unknown]>([
  ['none', undefined],
  ['one without a height', { hash: '0'.repeat(64) }],
  ['one whose height is a text', { height: 'x', hash: '0'.repeat(64) }],
  ['one without a hash', { height: 0 }],
])('a service that names no head, but %s, is not believed', async (_, head) => {
  const read: ReadCommits = () => Promise.resolve({ head, commits: [] } as unknown as CommitPage);
  const request = { from: 1, kept: [{ height: 42, hash: '1'.repeat(64) }] };
  await expect(verifyChain(read, request)).rejects.toThrow('the service names no head');
});

test('a hash that was kept has to be in the chain', async () => {
  const commits = chainOf(texts);
  const { hash } = commits[1]!;
  expect(await verified(commits, { kept: [{ height: 2, hash }] })).toMatchObject({ commits: 3 });
  const rewritten = chainOf([[['a', 'x']], ...texts.slice(1)]);
  await expect(verified(rewritten, { kept: [{ height: 2, hash }] })).rejects.toThrow(
    /height 2: its hash is \w+, and 4f8f/,
  );
  await expect(verified(rewritten, { from: 3, kept: [{ height: 2, hash }] })).rejects.toThrow('height 2: its hash is');
  const cut = verified(commits.slice(0, 1), { kept: [{ height: 2, hash }] });
  await expect(cut).rejects.toThrow('height 2: the chain ends before height 2, of which a hash was kept');
});

test('ranges that verify nothing are refused', async () => {
  const commits = chainOf(texts);
  const kept = [{ height: 1, hash: commits[0]!.hash }];
  for (const request of [{ from: 5 }, { to: 4 }, { from: 3, to: 2 }, { from: 3, kept }]) {
    await expect(verified(commits, request)).rejects.toThrow(UsageError);
  }
});

test.each(['', '2', '0:' + zeros, '2:' + 'g'.repeat(64), '2:' + 'a'.repeat(63), ' 2:' + zeros])(
  'the kept hash "%s" is refused',
  (text) => {
    expect(() => readKept(text)).toThrow(UsageError);
  },
);

test('a kept hash is read in both cases', () => {
  expect(readKept(`2:${'A'.repeat(64)}`)).toEqual({ height: 2, hash: 'a'.repeat(64) });
});
