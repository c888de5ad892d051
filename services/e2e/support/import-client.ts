import { request, type IncomingHttpHeaders } from 'node:http';

/** A request with a file, or a part of one. */
export interface FileRequest {
  url: string;
  method: 'POST' | 'PATCH';
  path: string;
  key: string;
  headers?: Record<string, string>;
  bytes: Buffer;
}

export interface FileAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Record<string, unknown>;
}

/**
 * Sends a file, and closes the connection behind so many of its bytes. Undefined where that, or the server, ended it
 * without an answer.
 */
export function sendFile(file: FileRequest, cutAfter = Infinity): Promise<FileAnswer | undefined> {
  const { url, method, path, key, headers, bytes } = file;
  return new Promise((resolve) => {
    const options = { method, agent: false, headers: { 'x-app-key': key, ...headers } };
    const sent = request(url + path, options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', () => {});
      response.on('close', () => {
        const text = Buffer.concat(chunks).toString();
        if (!response.complete) return resolve(undefined);
        const body = JSON.parse(text) as Record<string, unknown>;
        resolve({ status: response.statusCode!, headers: response.headers, body });
      });
    });
    // A server that answers before it has read everything may reset the connection behind its answer.
    sent.on('error', () => resolve(undefined));
    if (cutAfter >= bytes.length) return void sent.end(bytes);
    sent.write(bytes.subarray(0, cutAfter), () => setTimeout(() => sent.destroy(), 1));
  });
}

/** What says how far an import is. */
export const partHeaders = (offset: number, isComplete: boolean): Record<string, string> => ({
  'upload-offset': String(offset),
  'upload-complete': isComplete ? '?1' : '?0',
});
