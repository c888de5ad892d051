import { notFound } from '@granary/shared/errors';
import type { CommitProofRequest } from '@granary/shared/gen/granary/data/v1/CommitProofRequest';
import type { Call } from '@granary/shared/rpc/types';
import { findApp } from '../catalog/app';
import { readCommits } from '../chain/commit-pages';
import { genesisHash } from '../chain/hash-chain';
import { noSuchDocument } from '../documents/document-error';
import { AppDatabases } from '../query/execute/read-scheduler';
import { addTexts, entriesOf } from './commit-entries';
import { commitMembers } from './list-commits';
import type { ReadContext } from './read-context';

export const COMMIT_NOT_FOUND = 'COMMIT_NOT_FOUND';

/** Entries of a commit, at most: a write has no more documents. */
const entriesMax = 10_000;

/**
 * Returns the proof that a commit stored a document: the hashes of all that it stored, and the links before and after
 * it. Throws APP_NOT_FOUND, COMMIT_NOT_FOUND, DOCUMENT_NOT_FOUND where the commit has no document of the id.
 */
export async function commitProof(
  context: ReadContext,
  request: CommitProofRequest,
  call: Pick<Call, 'signal'>,
): Promise<Buffer> {
  const { appId, id } = request;
  const height = BigInt(request.height);
  const app = await findApp(context.fast, appId);
  const { pool } = new AppDatabases(context, { appId, mayReadPrivate: true }, call.signal);
  const from = height > 1n ? height - 1n : 1n;
  const commits = await readCommits(pool, app.number, from, 3, 3 * entriesMax);
  const commit = commits.find((one) => one.height === height);
  if (!commit) throw notFound(COMMIT_NOT_FOUND, `There is no commit ${height}`);
  const previous = commits.find((one) => one.height === height - 1n)?.hash ?? genesisHash;
  const next = commits.find((one) => one.height === height + 1n);
  const entries = entriesOf(commit);
  const proof = {
    app_id: appId,
    ...commitMembers(commit),
    previous_hash: previous.toString('hex'),
    next: next
      ? { height: Number(next.height), hash: next.hash.toString('hex'), content_hash: next.content.toString('hex') }
      : null,
    documents: entries.map(({ id: entryId, sha256 }) => ({ id: entryId, sha256 })),
  };
  if (id === '') return Buffer.from(JSON.stringify(proof));
  // The last of an id is the version that others saw.
  const requested = entries.findLast((entry) => entry.id === id);
  if (!requested) throw noSuchDocument(id);
  const [{ place, sha256, text }] = (await addTexts(pool, app, [requested])) as [typeof requested];
  return Buffer.from(JSON.stringify({ ...proof, document: { id, place, sha256, text } }));
}
