import { get, type IncomingHttpHeaders } from 'node:http';
import { constants, gunzipSync } from 'node:zlib';

/** The part of an export that has arrived. */
export interface ExportPart {
  status: number;
  headers: IncomingHttpHeaders;
  trailers: NodeJS.Dict<string>;
  text: string;
  /** Whether the answer came to its end. */
  isWhole: boolean;
}

/** How a client reads. */
export interface Reading {
  /** Closes the connection once more than so many bytes have arrived. */
  bytesMax?: number;
  /** The pause behind each chunk; none by default. */
  pauseMs?: number;
  /** Lets the answer be compressed. */
  takesGzip?: boolean;
}

/** Requests an export, and reads as much of it as it is told to. */
export function readExport(
  { url, path, key }: { url: string; path: string; key: string },
  { bytesMax = Infinity, pauseMs, takesGzip = false }: Reading = {},
): Promise<ExportPart> {
  return new Promise((resolve, reject) => {
    const headers = { 'x-app-key': key, ...(takesGzip && { 'accept-encoding': 'gzip' }) };
    const request = get(url + path, { agent: false, headers }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        bytes += chunk.length;
        if (bytes > bytesMax) return void response.destroy();
        if (pauseMs === undefined) return;
        response.pause();
        setTimeout(() => response.resume(), pauseMs);
      });
      response.on('error', () => {});
      response.on('close', () => {
        const arrived = Buffer.concat(chunks).subarray(0, bytesMax);
        const isWhole = response.complete && bytes <= bytesMax;
        const isZipped = response.headers['content-encoding'] === 'gzip';
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          trailers: response.trailers,
          text: (isZipped ? unzipped(arrived, isWhole) : arrived).toString(),
          isWhole,
        });
      });
    });
    request.on('error', reject);
  });
}

/** The text of a stream that may be broken off, as far as it goes. Throws where a whole one lacks its end. */
const unzipped = (bytes: Buffer, isWhole: boolean): Buffer =>
  gunzipSync(bytes, { finishFlush: isWhole ? constants.Z_FINISH : constants.Z_SYNC_FLUSH });

/** The whole lines of a text, of which the last one may be broken off. */
export const wholeLines = (text: string): string[] => text.split('\n').slice(0, -1);

/** A cell of CSV, in quotes or not, with what ends it. */
const csvCell = /("[^"]*(?:""[^"]*)*"|[^",\r\n]*)(,|\r\n)/y;

/** The whole records of CSV, of which the last one may be broken off. An empty cell without quotes is null. */
export function wholeRecords(text: string): Array<Array<string | null>> {
  const records: Array<Array<string | null>> = [];
  let record: Array<string | null> = [];
  csvCell.lastIndex = 0;
  for (let match = csvCell.exec(text); match; match = csvCell.exec(text)) {
    const [, cell = '', end] = match;
    record.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell || null);
    if (end === ',') continue;
    records.push(record);
    record = [];
  }
  return records;
}
