import { get, type IncomingHttpHeaders } from 'node:http';

/** The part of an export that has arrived. */
export interface ExportPart {
  status: number;
  headers: IncomingHttpHeaders;
  trailers: NodeJS.Dict<string>;
  text: string;
  /** Whether the answer came to its end. */
  isWhole: boolean;
}

/** Requests an export, and closes the connection once more than so many bytes have arrived. */
export function readExport(
  { url, path, key }: { url: string; path: string; key: string },
  bytesMax = Infinity,
): Promise<ExportPart> {
  return new Promise((resolve, reject) => {
    const request = get(url + path, { agent: false, headers: { 'x-app-key': key } }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        bytes += chunk.length;
        if (bytes > bytesMax) response.destroy();
      });
      response.on('error', () => {});
      response.on('close', () => {
        const arrived = Buffer.concat(chunks);
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          trailers: response.trailers,
          text: arrived.subarray(0, bytesMax).toString(),
          isWhole: response.complete && arrived.length <= bytesMax,
        });
      });
    });
    request.on('error', reject);
  });
}

/** The whole lines of a text, of which the last one may be broken off. */
export const wholeLines = (text: string): string[] => text.split('\n').slice(0, -1);
