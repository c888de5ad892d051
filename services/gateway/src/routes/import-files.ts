import type { z } from 'zod';
import { keyReused } from '@granary/shared/idempotency/answers';
import { newTicket } from '@granary/shared/ids';
import { clientKeys } from '../admission/client-budget';
import { json, type Answer } from '../http/answer';
import { encodingOf } from '../imports/file-body';
import { importJson, uploadHeaders } from '../imports/import-json';
import { optionsOfQuery, optionsText } from '../imports/import-options';
import { receiveFile, refuseTooLarge, type FileRequest } from '../imports/receive-file';
import { importEnded, offsetMismatch, uploadComplete, uploadOffset } from '../imports/send-file';
import { hasPermission, type AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotency, idempotencyKey, replayedHeader } from '../pipeline/idempotency';
import type { RouteRequest } from '../pipeline/route';
import type { importQuery } from '../validation/import-request';

/** Imports a file that is the body of one request. The same request with the same key goes on where it broke off. */
export async function importFile(
  gateway: GatewayContext,
  request: RouteRequest<'app_id' | 'collection', AppCaller, z.output<typeof importQuery>>,
): Promise<Answer> {
  const { incoming, outgoing, path, caller, call, query } = request;
  const { IMPORT_MAX_BYTES: maxBytes } = gateway.config;
  refuseTooLarge(incoming, 0, maxBytes);
  const options = Buffer.from(optionsText(optionsOfQuery(query)));
  let isReplayed = false;
  const imported = await receiveFile(gateway, fileRequest(gateway, request), async () => {
    const begun = await gateway.clients.data.createImport(
      {
        appId: path.app_id,
        appNumber: caller.appNumber,
        importId: newTicket('j', BigInt(caller.appNumber)),
        collection: path.collection,
        options,
        ...announcedSize(request),
        isOneRequest: true,
        idempotency: idempotency(request, options),
        isPaid: isPaid(caller),
      },
      call,
    );
    isReplayed = begun.replayed === true;
    const { importId } = begun;
    outgoing.setHeader('Location', locationOf(path.app_id, importId));
    return {
      target: targetOf(request, importId),
      state: isReplayed ? await gateway.clients.data.getImport({ appId: path.app_id, importId }, call) : begun,
      start: 0,
      isComplete: true,
      maxBytes,
      otherContent: idempotencyKey(request) === '' ? offsetMismatch : keyReused,
    };
  });
  return json(200, importJson(imported), replayedHeader(isReplayed));
}

/** The size of a file that is the whole body, where it is announced. */
function announcedSize({ incoming }: Pick<RouteRequest, 'incoming'>): { sizeBytes?: string } {
  const length = incoming.headers['content-length'];
  return length !== undefined && encodingOf(incoming) === 'identity' ? { sizeBytes: length } : {};
}

/** Stores the next part of the file of an import. */
export async function sendImport(
  gateway: GatewayContext,
  request: RouteRequest<'app_id' | 'import_id', AppCaller>,
): Promise<Answer> {
  const { incoming, path, call } = request;
  const { IMPORT_MAX_BYTES: maxBytes } = gateway.config;
  const { app_id: appId, import_id: importId } = path;
  const imported = await receiveFile(gateway, fileRequest(gateway, request), async () => {
    const state = await gateway.clients.data.getImport({ appId, importId }, call);
    const offset = uploadOffset(incoming.headers['upload-offset']);
    const isComplete = uploadComplete(incoming.headers['upload-complete']);
    if (state.status !== 'open') throw importEnded(state);
    if (Number(state.offset) !== offset) throw offsetMismatch(state, offset);
    refuseTooLarge(incoming, offset, maxBytes);
    return {
      target: targetOf(request, importId),
      state,
      start: offset,
      isComplete,
      maxBytes,
      otherContent: offsetMismatch,
    };
  });
  return json(200, importJson(imported), uploadHeaders(imported));
}

function fileRequest(
  { addressOf }: GatewayContext,
  { incoming, call, caller, path }: RouteRequest<'app_id', AppCaller>,
): FileRequest {
  return {
    incoming,
    call,
    keys: clientKeys(path.app_id, addressOf(incoming)),
    keyId: caller.keyId === '' ? undefined : caller.keyId,
  };
}

const targetOf = ({ path, caller }: RouteRequest<'app_id', AppCaller>, importId: string) => ({
  appId: path.app_id,
  appNumber: caller.appNumber,
  importId,
  isPaid: isPaid(caller),
});

/** An administrator does not pay for writes, and nobody else can pay for those of an import. */
export const isPaid = (caller: AppCaller): boolean => hasPermission(caller, 'Admin');

export const locationOf = (appId: string, importId: string): string => `/api/apps/${appId}/imports/${importId}`;
