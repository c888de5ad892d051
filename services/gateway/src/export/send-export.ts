import type { IncomingMessage, ServerResponse } from 'node:http';
import { LinkedCancellation } from '@granary/shared/concurrency/cancellation';
import { invalid, type ServiceError } from '@granary/shared/errors';
import type { ExportPageResponse } from '@granary/shared/gen/granary/data/v1/ExportPageResponse';
import type { Call } from '@granary/shared/rpc/types';
import type { ClientKeys } from '../admission/client-budget';
import type { Download, Transfers } from '../admission/transfers';
import type { Clients } from '../clients/clients';
import type { KeyWatch } from '../clients/key-watch';
import type { GatewayConfig } from '../config';
import { unauthenticated } from '../errors/problem';
import type { Compression, ContentEncoding } from '../http/compression';
import { endOfTurn } from '../http/event-loop-turn';
import { heartbeatMs } from '../http/heartbeat';
import type { ExportRequest } from './export-request';
import { contentTypes, samplesDocuments, writerFor, type FormatWriter } from './formats';
import { ExportSink } from './export-sink';
import { headerList } from './header-list';
import { partsOf } from './json-lines';
import { readPages } from './pages';

/** The parts of the gateway that an export uses. */
export interface ExportParts {
  clients: Pick<Clients, 'data'>;
  transfers: Transfers;
  compression: Compression;
  keyWatch: KeyWatch;
  config: Pick<GatewayConfig, 'IDLE_TIMEOUT_MS'>;
}

/** The client of an export. */
export interface ExportClient {
  incoming: IncomingMessage;
  outgoing: ServerResponse;
  call: Pick<Call, 'requestId' | 'signal' | 'trace'>;
  keys: ClientKeys;
  /** The key by which it reads; undefined for the owner's signature. */
  keyId: string | undefined;
  /** Sends the head of the answer. */
  begin: (headers: Record<string, string>) => void;
}

const omittedHeader = 'X-Granary-Omitted-Fields';

/**
 * Sends an export at the rate at which its client reads. Rejects before the head of the answer with what the data
 * service refuses, with VALIDATION_FAILED for HTTP/1.0, and with OVERLOADED where too many exports are under way. What
 * goes wrong later ends the connection, so that nobody takes the answer for a whole one.
 */
export async function sendExport(parts: ExportParts, request: ExportRequest, client: ExportClient): Promise<void> {
  if (client.incoming.httpVersion === '1.0') throw needsChunks();
  await parts.transfers.export(client.keys, async (transfer) => {
    const reading = new LinkedCancellation(client.call.signal);
    let refusal: ServiceError | undefined;
    transfer.onCancel((error) => {
      refusal = error;
      reading.abort();
      if (client.outgoing.headersSent) client.outgoing.destroy();
    });
    const revoke = () => transfer.cancel(unauthenticated('The key is not valid any more'));
    client.outgoing.on('timeout', () => endIfNotRead(client.outgoing));
    const unwatch = client.keyId === undefined ? () => {} : parts.keyWatch.add(client.keyId, revoke);
    try {
      const pages = touching(transfer, readPages(parts.clients.data, request, { ...client.call, signal: reading }));
      await send(parts, request, client, pages, transfer);
    } catch (error) {
      throw refusal ?? error;
    } finally {
      unwatch();
      reading.abort();
    }
  });
}

/** Without chunks the answer ends with its connection, so that nobody could tell a broken one from a whole one. */
const needsChunks = (): ServiceError =>
  invalid('An export needs HTTP/1.1, which tells a whole answer from a broken one; in nginx: proxy_http_version 1.1');

/** Without this the server would end each connection that is idle, also where no document has met the filter so far. */
function endIfNotRead(outgoing: ServerResponse): void {
  // After its end a response does not say that it needs a drain.
  if (outgoing.writableNeedDrain || outgoing.writableEnded) outgoing.destroy();
}

async function* touching(
  transfer: Download,
  pages: AsyncGenerator<ExportPageResponse, undefined>,
): AsyncGenerator<ExportPageResponse, undefined> {
  for (;;) {
    const next = await transfer.whileWaiting(() => pages.next());
    if (next.done === true) return undefined;
    yield next.value;
  }
}

async function send(
  { compression, config }: ExportParts,
  request: ExportRequest,
  { incoming, outgoing, begin }: ExportClient,
  pages: AsyncGenerator<ExportPageResponse, undefined>,
  transfer: Download,
): Promise<void> {
  const first = await firstPage(request, pages);
  const writer = writerFor(request, first);
  // The head names the fields of the first page that the format leaves out.
  const firstParts: Buffer[] = [];
  for await (const part of writtenParts(writer, first)) firstParts.push(part);
  const encoding = compression.encodingFor(incoming.headers['accept-encoding']);
  // HEAD has no chunks, behind which a trailer could stand.
  const hasTrailer = request.format === 'csv' && incoming.method !== 'HEAD';
  const headers = headersOf(request, first, writer, encoding);
  begin(hasTrailer ? { ...headers, Trailer: omittedHeader } : headers);
  if (incoming.method === 'HEAD') return void outgoing.end();
  // The first document that matches may be far behind.
  outgoing.flushHeaders();
  const encoded = encoding && compression.encode(outgoing, encoding, transfer);
  const heartbeat = { bytes: writer.heartbeat, everyMs: heartbeatMs(config.IDLE_TIMEOUT_MS) };
  const sink = new ExportSink(outgoing, transfer, encoded, heartbeat);
  try {
    await sink.write(writer.head());
    for (const part of firstParts.splice(0)) await sink.write(part);
    for (;;) {
      const next = await sink.during(pages.next());
      if (next.done === true) break;
      for await (const part of writtenParts(writer, next.value)) await sink.write(part);
    }
    const omittedFields = writer.omittedFields();
    if (hasTrailer && omittedFields.length > 0) outgoing.addTrailers({ [omittedHeader]: headerList(omittedFields) });
    await sink.end(writer.end());
  } finally {
    sink.close();
  }
}

/** The first page; the first one with documents where these say what the columns are. */
async function firstPage(
  request: ExportRequest,
  pages: AsyncGenerator<ExportPageResponse, undefined>,
): Promise<ExportPageResponse> {
  const first = (await pages.next()).value!;
  if (request.format !== 'csv' || !samplesDocuments(request, first)) return first;
  let page = first;
  while (page.lines.length === 0 && page.last) page = (await pages.next()).value!;
  return { ...page, fields: first.fields, hints: first.hints };
}

async function* writtenParts(writer: FormatWriter, { lines }: ExportPageResponse): AsyncGenerator<Buffer> {
  for (const part of partsOf(lines, writer.partBytes)) {
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
    // nginx would keep the empty lines back.
    'X-Accel-Buffering': 'no',
    Vary: 'Accept-Encoding',
    'X-Granary-Height': height,
    ...(omittedFields.length > 0 && { [omittedHeader]: headerList(omittedFields) }),
    ...(allHints.length > 0 && { 'X-Granary-Hints': headerList(allHints) }),
    ...(encoding !== undefined && { 'Content-Encoding': encoding }),
  };
}
