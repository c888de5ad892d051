import { Agent, request, type OutgoingHttpHeaders } from 'node:http';
import { connect } from 'node:net';

/** A request as it goes over the wire: nothing of it is normalized, checked or added to. */
export interface RawRequest {
  method: string;
  /** May hold any byte as a Latin-1 character. */
  path: string;
  headers?: OutgoingHttpHeaders;
  body?: Buffer | string;
}

export interface RawAnswer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  /** The parsed text where it says that it is JSON, else undefined. */
  json: unknown;
}

const agent = new Agent({ keepAlive: true, maxSockets: 8 });

/** Ends the connections that are kept for the next request. */
export const closeConnections = (): void => agent.destroy();

/** `fetch` normalizes paths and refuses what a client should not send; this sends it. */
export function sendRaw(url: string, { method, path, headers = {}, body }: RawRequest): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const outgoing = request({ agent, hostname, port, method, path, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        const isJson = response.headers['content-type']?.startsWith('application/json') ?? false;
        const json: unknown = isJson && text !== '' ? JSON.parse(text) : undefined;
        resolve({ status: response.statusCode!, headers: response.headers, text, json });
      });
    });
    outgoing.on('error', reject);
    if (body === undefined) outgoing.end();
    else outgoing.setHeader('Content-Length', Buffer.byteLength(body)).end(body);
  });
}

/** Everything that comes back on a connection of its own for these bytes, until the other side closes it. */
export function exchangeBytes(url: string, bytes: Buffer | string): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    let received = '';
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
    socket.on('close', () => resolve(received));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // A refusal that was sent before all was read may end in a reset.
      if (received === '' && error.code !== 'ECONNRESET') reject(error);
    });
  });
}

/** The status, the headers in lower case and the body of an answer as it came over the wire. */
export function parseAnswer(received: string): RawAnswer {
  const end = received.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = received.slice(0, end).split('\r\n');
  const headers: RawAnswer['headers'] = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  const text = received.slice(end + 4);
  const isJson = String(headers['content-type']).startsWith('application/json');
  return { status: Number(statusLine.split(' ')[1]), headers, text, json: isJson ? JSON.parse(text) : undefined };
}
