import { GranaryError } from '../errors.ts';

/** Is told how many bytes were sent. */
export type ProgressListener = (sentBytes: number) => void;

/**
 * A `fetch` for one upload that tells its progress: where there is XMLHttpRequest by that, for the `fetch` of browsers
 * cannot tell it, and elsewhere by a stream that is counted.
 */
export function fetchWithProgress(plain: typeof fetch, onProgress: ProgressListener): typeof fetch {
  if (typeof XMLHttpRequest !== 'undefined') return (url, init) => sendByXhr(url as string, init!, onProgress);
  return async (url, init) => {
    const body = init!.body as Blob;
    if (!takesStreams()) {
      const response = await plain(url, init);
      onProgress(body.size);
      return response;
    }
    let sent = 0;
    const counter = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        controller.enqueue(chunk);
        onProgress((sent += chunk.byteLength));
      },
    });
    const headers = new Headers(init!.headers);
    headers.set('Content-Length', String(body.size));
    const streamed = { ...init, headers, body: body.stream().pipeThrough(counter), duplex: 'half' };
    return plain(url, streamed);
  };
}

/** An engine that does not know streams as bodies makes a text of them, and takes no `duplex`. */
function takesStreams(): boolean {
  let isAsked = false;
  const init = {
    method: 'POST',
    body: new ReadableStream(),
    get duplex() {
      isAsked = true;
      return 'half';
    },
  };
  return !new Request('http://localhost', init).headers.has('Content-Type') && isAsked;
}

function sendByXhr(url: string, { method, headers, body, signal }: RequestInit, onProgress: ProgressListener) {
  return new Promise<Response>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method!, url);
    request.responseType = 'blob';
    new Headers(headers).forEach((value, name) => request.setRequestHeader(name, value));
    request.upload.onprogress = ({ loaded }) => onProgress(loaded);
    request.onload = () => {
      const { status, statusText } = request;
      const init = { status, statusText, headers: headersOf(request.getAllResponseHeaders()) };
      resolve(new Response(request.response as Blob, init));
    };
    request.onerror = () => reject(new GranaryError('The upload broke off', { code: 'NETWORK_ERROR' }));
    if (signal?.aborted) return reject(signal.reason as Error);
    const abort = () => {
      request.abort();
      reject(signal!.reason as Error);
    };
    signal?.addEventListener('abort', abort, { once: true });
    request.onloadend = () => signal?.removeEventListener('abort', abort);
    request.send(body as Blob);
  });
}

function headersOf(text: string): Headers {
  const headers = new Headers();
  for (const line of text.trim().split(/\r?\n/)) {
    const colon = line.indexOf(':');
    if (colon > 0) headers.append(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return headers;
}
