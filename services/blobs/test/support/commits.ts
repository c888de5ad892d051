import { randomBytes } from 'node:crypto';
import { notFound, ServiceError, type StatusName } from '@granary/shared/errors';
import type { CommitUploadRequest } from '@granary/shared/gen/granary/data/v1/CommitUploadRequest';
import type { CommitUploadResponse } from '@granary/shared/gen/granary/data/v1/CommitUploadResponse';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import type { Handlers } from '@granary/shared/rpc/types';

/**
 * Decides how the next calls end: with `lostAs` they commit and the caller gets that code; an error is a definite no.
 */
export type Mood = 'well' | { lostAs: StatusName } | 'down' | ServiceError;

export interface Commits {
  implementation: Implementation<DataDefinition>;
  uploads: CommitUploadRequest[];
  /** Bodies of the stores that were asked for. */
  stores: string[];
  mood: Mood;
  /**
   * The number of the collection that uploads are committed to from now on; 0 as from a data service that names none.
   */
  collectionNumber: number;
}

/**
 * The five calls of the data service that blobs makes, with what the contract says about tickets and idempotency keys.
 */
export function commitsInMemory(): Commits {
  const byTicket = new Map<string, CommitUploadResponse>();
  const byKey = new Map<string, { hash: string; response: CommitUploadResponse }>();
  let height = 0;
  const commits: Commits = {
    implementation: undefined as never,
    uploads: [],
    stores: [],
    mood: 'well',
    collectionNumber: 0,
  };
  const unavailable = () => new ServiceError('UNAVAILABLE', 'UNAVAILABLE', 'down');
  const loseAnswer = ({ mood }: Commits) => {
    if (typeof mood === 'object' && 'lostAs' in mood) throw new ServiceError(mood.lostAs, mood.lostAs, 'lost');
  };
  const commit = (ticketId: string, blobId: string): CommitUploadResponse => {
    const known = byTicket.get(ticketId);
    if (known) return known;
    height += 1;
    const made = {
      ticketId,
      blobId,
      transactionHash: randomBytes(32).toString('hex'),
      height: String(height),
      collectionNumber: String(commits.collectionNumber),
    };
    byTicket.set(ticketId, made);
    return made;
  };
  const commitUpload: Handlers<DataDefinition>['commitUpload'] = async (request) => {
    if (commits.mood instanceof ServiceError) throw commits.mood;
    if (commits.mood === 'down') throw unavailable();
    const { key, contentHash } = request.idempotency!;
    const used = key === '' ? undefined : byKey.get(key);
    if (used) {
      if (used.hash === contentHash.toString('hex')) return used.response;
      throw new ServiceError('ALREADY_EXISTS', 'IDEMPOTENCY_KEY_REUSED', 'The key was used for something else');
    }
    if (!byTicket.has(request.ticketId)) commits.uploads.push(request);
    const response = commit(request.ticketId, request.blobId);
    if (key !== '') byKey.set(key, { hash: contentHash.toString('hex'), response });
    loseAnswer(commits);
    return response;
  };
  const handlers: Partial<Handlers<DataDefinition>> = {
    commitUpload,
    // An id is taken here where its blob is: there are no documents.
    commitUploadUnderId: async (request, call) => {
      const isKept = byKey.has(request.idempotency!.key) || byTicket.has(request.ticketId);
      if (typeof request.takenInCollection === 'string' && !isKept)
        throw new ServiceError('ALREADY_EXISTS', 'ALREADY_EXISTS', 'The id is taken');
      return commitUpload(request, call);
    },
    getCommit: async ({ ticketId }) => {
      if (commits.mood === 'down') throw unavailable();
      const found = byTicket.get(ticketId);
      if (!found) throw notFound('TASK_NOT_FOUND', 'There is no such ticket');
      return {
        ticketId,
        appId: '',
        operationType: '',
        collection: '',
        committedAt: '',
        userAddress: '',
        transactionHash: found.transactionHash,
        height: found.height,
        resultJson: Buffer.alloc(0),
        collectionNumber: found.collectionNumber,
      };
    },
    store: async ({ ticketId, body }) => {
      if (commits.mood === 'down') throw unavailable();
      commits.stores.push(body.toString());
      const made = commit(ticketId, '');
      loseAnswer(commits);
      return { ticketId, resultsJson: Buffer.from(JSON.stringify([{ celestia_height: Number(made.height) }])) };
    },
  };
  const definition = loadService<DataDefinition>('data', 'Data');
  const others = Object.keys(definition).map((name) => {
    const refuse = () => Promise.reject(new ServiceError('UNIMPLEMENTED', 'NOT_IMPLEMENTED', name));
    return [name[0]!.toLowerCase() + name.slice(1), refuse];
  });
  commits.implementation = {
    definition,
    handlers: { ...Object.fromEntries(others), ...handlers } as Handlers<DataDefinition>,
  };
  return commits;
}
