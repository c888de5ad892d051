import type { IncomingMessage } from 'node:http';
import { ServiceError } from '@granary/shared/errors';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { Call } from '@granary/shared/rpc/types';
import type { ClientKeys } from '../admission/client-budget';
import type { Transfers } from '../admission/transfers';
import type { Clients } from '../clients/clients';
import type { KeyWatch } from '../clients/key-watch';
import { tooLarge, unauthenticated } from '../errors/problem';
import { encodingOf, FileBody } from './file-body';
import { FileSender, type SentFile } from './send-file';

/** The parts of the gateway that an import uses. */
export interface ImportParts {
  clients: Pick<Clients, 'data'>;
  transfers: Transfers;
  keyWatch: KeyWatch;
}

/** The request that has the file, or a part of it. */
export interface FileRequest {
  incoming: IncomingMessage;
  call: Pick<Call, 'requestId' | 'trace'>;
  keys: ClientKeys;
  /** The key by which it writes; undefined for a caller without one. */
  keyId: string | undefined;
}

/**
 * Stores the file of a request at the rate at which it comes. `open` finds the import once there is a place for it, and
 * says what is to be done with the body. Throws what FileSender throws, OVERLOADED, UNSUPPORTED_MEDIA_TYPE,
 * UNAUTHENTICATED where the key is revoked meanwhile.
 */
export async function receiveFile(
  { clients, transfers, keyWatch }: ImportParts,
  { incoming, call, keys, keyId }: FileRequest,
  open: () => Promise<Omit<SentFile, 'body'>>,
): Promise<Import> {
  refuseForms(incoming);
  encodingOf(incoming);
  return transfers.import(keys, async (transfer) => {
    const file = await open();
    const revoke = () => transfer.cancel(unauthenticated('The key is not valid any more'));
    const unwatch = keyId === undefined ? () => {} : keyWatch.add(keyId, revoke);
    let body: FileBody | undefined;
    try {
      body = new FileBody(incoming, transfer);
      return await new FileSender(clients.data, call, { ...file, body }).send();
    } finally {
      body?.close();
      unwatch();
    }
  });
}

/** The text of a form is no file, though it looks like one for some lines. */
function refuseForms({ headers }: IncomingMessage): void {
  if (!/^multipart\//i.test(headers['content-type'] ?? '')) return;
  const message =
    'The file is the body of the request, not a part of a form; with curl: --data-binary @file, or -T file';
  throw new ServiceError('INVALID_ARGUMENT', 'UNSUPPORTED_MEDIA_TYPE', message, {
    details: { expected: ['application/x-ndjson', 'application/json', 'text/csv'] },
  });
}

/** Throws PAYLOAD_TOO_LARGE for a body that is announced to be too large from its place in the file on. */
export function refuseTooLarge({ headers }: IncomingMessage, start: number, maxBytes: number): void {
  if (start + Number(headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
}
