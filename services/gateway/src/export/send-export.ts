import type { IncomingMessage, ServerResponse } from 'node:http';
import { LinkedCancellation } from '@granary/shared/concurrency/cancellation';
import type { ServiceError } from '@granary/shared/errors';
import type { ExportPageResponse } from '@granary/shared/gen/granary/data/v1/ExportPageResponse';
import type { Call } from '@granary/shared/rpc/types';
import type { ClientKeys } from '../admission/client-budget';
import type { Download, Transfers } from '../admission/transfers';
import type { Clients } from '../clients/clients';
import type { KeyWatch } from '../clients/key-watch';
import { unauthenticated } from '../errors/problem';
import type { Compression, ContentEncoding } from '../http/compression';
import { endOfTurn } from '../http/event-loop-turn';
import type { ExportRequest } from './export-request';
import { contentTypes, writerFor, type FormatWriter } from './formats';
import { ExportSink } from './export-sink';
import { partsOf } from './json-lines';
import { readPages } from './pages';

/** The parts of the gateway that an export uses. */
export interface ExportParts {
  clients: Pick<Clients, 'data'>;
  transfers: Transfers;
  compression: Compression;
  keyWatch: KeyWatch;
}

/** The client of an export. */
export interface ExportClient {
  incoming: IncomingMessage;
  outgoing: ServerResponse;
  call: Pick<Call, 'requestId' | 'signal'>;
  keys: ClientKeys;
  /** The key by which it reads; undefined for the owner's signature. */
  keyId: string | undefined;
  /** Sends the head of the answer. */
  begin: (headers: Record<string, string>) => void;
}

/** Bytes of documents that are written in one turn of the event loop. */
const partBytes = 64 * 1024;
const omittedHeader = 'X-Granary-Omitted-Fields';

/**
 * Sends an export at the rate at which its client reads. Rejects before the head of the answer with what the data
 * service refuses, and with OVERLOADED where too many exports are under way. What goes wrong later ends the connection,
 * so that nobody takes the answer for a whole one.
 */
export async function sendExport(parts: ExportParts, request: ExportRequest, client: ExportClient): Promise<void> {
  await parts.transfers.export(client.keys, async (transfer) => {
    const reading = new LinkedCancellation(client.call.signal);
    let refusal: ServiceError | undefined;
    transfer.onCancel((error) => {
      refusal = error;
      reading.abort();
      if (client.outgoing.headersSent) client.outgoing.destroy();
    });
    const revoke = () => transfer.cancel(unauthenticated('The key is not valid any more'));
    const unwatch = client.keyId === undefined ? () => {} : parts.keyWatch.add(client.keyId, revoke);
    try {
      const pages = readPages(parts.clients.data, request, client.call.requestId, reading);
      await send(parts, request, client, pages, transfer);
    } catch (error) {
      throw refusal ?? error;
    } finally {
      unwatch();
      reading.abort();
    }
  });
}

async function send(
  { compression }: ExportParts,
  request: ExportRequest,
  { incoming, outgoing, begin }: ExportClient,
  pages: AsyncGenerator<ExportPageResponse, undefined>,
  transfer: Download,
): Promise<void> {
  const first = (await pages.next()).value!;
  const writer = writerFor(request, first);
  // What the format leaves out of the first page stands in the head.
  const firstParts: Buffer[] = [];
  for await (const part of written(writer, first)) firstParts.push(part);
  const encoding = compression.encodingFor(incoming.headers['accept-encoding']);
  begin(headersOf(request, first, writer, encoding));
  if (incoming.method === 'HEAD') return void outgoing.end();
  const sink = new ExportSink(outgoing, transfer, encoding && compression.encode(outgoing, encoding, transfer));
  try {
    await sink.write(writer.head());
    for (const part of firstParts.splice(0)) await sink.write(part);
    for await (const page of pages) {
      transfer.moved(0);
      for await (const part of written(writer, page)) await sink.write(part);
    }
    const omittedFields = writer.omittedFields();
    if (omittedFields.length > 0) outgoing.addTrailers({ [omittedHeader]: asciiJson(omittedFields) });
    await sink.end(writer.end());
  } finally {
    sink.close();
  }
}

async function* written(writer: FormatWriter, { lines }: ExportPageResponse): AsyncGenerator<Buffer> {
  for (const part of partsOf(lines, partBytes)) {
    yield writer.part(part);
    // Other requests have their turn between two parts.
    await endOfTurn();
  }
}

function headersOf(
  { appId, collection, format }: ExportRequest,
  { height, hints, fields }: ExportPageResponse,
  writer: FormatWriter,
  encoding: ContentEncoding | undefined,
): Record<string, string> {
  const omittedFields = writer.omittedFields();
  const allHints = [...hints, ...writer.hints(fields)];
  return {
    'Content-Type': contentTypes[format],
    'Content-Disposition': `attachment; filename="${appId}-${collection}-${height}.${format}"`,
    'Cache-Control': 'no-store',
    Vary: 'Accept-Encoding',
    'X-Granary-Height': height,
    ...(format === 'csv' && { Trailer: omittedHeader }),
    ...(omittedFields.length > 0 && { [omittedHeader]: asciiJson(omittedFields) }),
    ...(allHints.length > 0 && { 'X-Granary-Hints': asciiJson(allHints) }),
    ...(encoding !== undefined && { 'Content-Encoding': encoding }),
  };
}

/** JSON text for a header, which takes printable ASCII only. */
const asciiJson = (value: unknown): string =>
  JSON.stringify(value).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
