import { hash } from 'node:crypto';
import { ServiceError, type StatusName, type ErrorDetails } from '@granary/shared/errors';
import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import type { ChannelRefusal } from '@granary/shared/gen/granary/data/v1/ChannelRefusal';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';
import type { ReadChangesRequest } from '@granary/shared/gen/granary/data/v1/ReadChangesRequest';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { newRequestId } from '../http/request-id';

/** What a feed reads with. */
export type FeedData = Pick<Client<DataDefinition>, 'readChanges' | 'findValidKeys'>;

/** The channels of a request. A digest spares sending those that the service has got before. */
export interface Channels {
  list: FeedChannel[];
  digest: Buffer;
}

const noDigest = Buffer.alloc(0);

/** Channels that are sent each time, for they are few. */
export const fewChannels = (list: FeedChannel[]): Channels => ({ list, digest: noDigest });

export function manyChannels(list: FeedChannel[], keys: readonly string[]): Channels {
  return { list, digest: hash('sha256', keys.join('\n'), 'buffer') };
}

/** How much is read, and for how long there may be nothing. */
export type ReadLimits = Pick<ReadChangesRequest, 'limit' | 'bytesMax' | 'waitMs'> &
  Partial<Pick<ReadChangesRequest, 'catalogRevision' | 'isOpening'>>;

/** Time for a read besides its wait. */
const readTimeoutMs = 10_000;

/**
 * Reads a window of changes. Rejects as the data service does: CURSOR_GONE, CURSOR_AHEAD, APP_NOT_FOUND, CANCELLED.
 */
export async function readChanges(
  data: FeedData,
  place: { appId: string; since: string },
  channels: Channels,
  limits: ReadLimits,
  signal: CancelSignal,
  requestId = newRequestId(),
): Promise<ReadChangesResponse> {
  const call = { ...newCall(requestId, limits.waitMs + readTimeoutMs), signal };
  const request = { catalogRevision: '0', isOpening: false, ...place, ...limits, channelsDigest: channels.digest };
  const inFull = () => data.readChanges({ ...request, channels: channels.list }, call);
  if (channels.digest === noDigest) return inFull();
  try {
    return await data.readChanges({ ...request, channels: [] }, call);
  } catch (error) {
    if (error instanceof ServiceError && error.reason === 'CHANNELS_UNKNOWN') return inFull();
    throw error;
  }
}

/** Why a channel may not be read. */
export function refusalError({ error }: ChannelRefusal): ServiceError {
  const { status, reason, message, detailsJson } = error!;
  return new ServiceError(status as StatusName, reason, message, {
    details: JSON.parse(detailsJson.toString()) as ErrorDetails,
  });
}

/** Whether an error may be over at the next attempt. */
export const isPassing = (error: unknown): boolean =>
  !(error instanceof ServiceError) ||
  ['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'RESOURCE_EXHAUSTED', 'INTERNAL', 'CANCELLED', 'ABORTED'].includes(error.code);
