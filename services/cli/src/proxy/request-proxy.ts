import { once } from 'node:events';
import {
  Agent,
  createServer,
  request as requestByHttp,
  type ClientRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type Server,
  type ServerResponse,
} from 'node:http';
import { Agent as TlsAgent, request as requestByHttps } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { Failure } from '../failure.ts';
import { RefusalReader } from './refusal.ts';
import type { ForwardedRequest, RequestEnd } from './request-line.ts';

const host = '127.0.0.1';
/** This port is rarely in use; the ones behind it are for further programs. */
const firstPort = 4_080;
const triedPorts = 20;
/** The service has its own limits, which refuse more kindly. */
const maxHeaderSize = 128 * 1_024;

/** Headers that are about one connection, see RFC 9110. */
const hopHeaders = ['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'];

/** A page elsewhere may let its name lead to this machine. */
const localHost = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/i;

/** The outcome of a request, which is told once it has ended. */
interface Outcome {
  bytes: number;
  isBroken: boolean;
  refusal: { code?: string; error?: string };
}

/**
 * Passes the requests of programs on this machine on to a service, with nothing added, and tells each of them once it
 * has ended. Both directions flow as fast as the slower side takes them, and end together.
 */
export class RequestProxy {
  private readonly target: URL;
  private readonly server: Server;
  private readonly agent: Agent;
  private readonly underWay = new Set<ServerResponse>();
  private isStopping = false;

  constructor(
    target: string,
    private readonly onEnded: (request: ForwardedRequest) => void,
  ) {
    this.target = new URL(target);
    // A connection that is kept may be closed by the service just when it is used again.
    this.agent = new (this.target.protocol === 'https:' ? TlsAgent : Agent)({ keepAlive: false });
    // An upload may take as long as the service lets it.
    this.server = createServer({ maxHeaderSize, requestTimeout: 0 });
    this.server.on('request', (incoming, outgoing) => this.handle(incoming, outgoing));
    this.server.on('checkContinue', (incoming, outgoing) => this.handle(incoming, outgoing));
  }

  /** Listens on this port, or on a free one for 0. Resolves to the URL. Throws Failure. */
  async start(port: number): Promise<string> {
    const ports = port === 0 ? [...Array.from({ length: triedPorts }, (_, index) => firstPort + index), 0] : [port];
    for (const each of ports) {
      try {
        this.server.listen(each, host);
        await once(this.server, 'listening');
        return `http://${host}:${(this.server.address() as AddressInfo).port}`;
      } catch (error) {
        const { code, message } = error as NodeJS.ErrnoException;
        if (code === 'EADDRINUSE' && each !== ports.at(-1)) continue;
        const reason = code === 'EADDRINUSE' ? 'another program has the port' : message;
        throw new Failure(`Nothing can be served on port ${each}: ${reason}`, {
          nextStep: '`--port` names another one; without it a free one is taken.',
        });
      }
    }
    throw new Error('There is a port to try');
  }

  /** Ends it with all requests under way, and resolves when these were told. */
  async stop(): Promise<void> {
    this.isStopping = true;
    const closed = [this.server, ...this.underWay].map((each) => once(each, 'close'));
    this.server.close();
    this.server.closeAllConnections();
    await Promise.all(closed);
  }

  private handle(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const outcome: Outcome = { bytes: 0, isBroken: false, refusal: {} };
    const time = new Date();
    const startMs = performance.now();
    const { method = '', url: path = '' } = incoming;
    this.underWay.add(outgoing);
    outgoing.once('close', () => {
      this.underWay.delete(outgoing);
      const { bytes, isBroken, refusal } = outcome;
      const early: RequestEnd = isBroken ? 'broken' : this.isStopping ? 'stopped' : 'closed';
      const end = outgoing.writableFinished ? 'answered' : early;
      const status = outgoing.headersSent ? outgoing.statusCode : undefined;
      this.onEnded({ time, method, path, status, ms: performance.now() - startMs, bytes, end, ...refusal });
    });
    if (!localHost.test(incoming.headers.host ?? '')) {
      const error = 'This is for programs that call it by localhost or 127.0.0.1';
      return refuse(outgoing, outcome, 403, 'FORBIDDEN', error);
    }
    if (!path.startsWith('/')) {
      return refuse(outgoing, outcome, 400, 'MALFORMED_URL', 'The target of a request has to be a path');
    }
    this.forward(incoming, outgoing, outcome);
  }

  private forward(incoming: IncomingMessage, outgoing: ServerResponse, outcome: Outcome): void {
    const request = this.requestLike(incoming);
    outgoing.once('close', () => request.destroy());
    request.on('continue', () => outgoing.writeContinue());
    request.once('response', (response) => passOn(response, outgoing, outcome));
    request.on('error', (error) => {
      // Later errors are those of the answer.
      if (outgoing.headersSent || outgoing.destroyed) return;
      const message = `The service at ${this.target.origin} gave no answer: ${error.message}`;
      refuse(outgoing, outcome, 502, 'UNAVAILABLE', message);
    });
    // It ends by itself when its request fails, and must stay open for the answer to that.
    incoming.pipe(request);
  }

  /** Makes the same request of the service. */
  private requestLike(incoming: IncomingMessage): ClientRequest {
    const { protocol, hostname, port, host: hostHeader, pathname } = this.target;
    const headers: OutgoingHttpHeaders = {};
    const dropped = hopHeadersOf(incoming);
    for (const [name, values] of Object.entries(incoming.headersDistinct))
      if (!dropped.has(name)) headers[name] = values;
    headers['host'] = hostHeader;
    if (incoming.headers['transfer-encoding'] !== undefined) headers['transfer-encoding'] = 'chunked';
    const options = {
      hostname: hostname.replace(/^\[|\]$/g, ''),
      port,
      method: incoming.method,
      path: `${pathname.replace(/\/$/, '')}${incoming.url}`,
      headers,
      agent: this.agent,
      maxHeaderSize,
    };
    return protocol === 'https:' ? requestByHttps(options) : requestByHttp(options);
  }
}

/** Passes an answer on, as it comes. */
function passOn(response: IncomingMessage, outgoing: ServerResponse, outcome: Outcome): void {
  const { statusCode = 502, statusMessage, rawHeaders } = response;
  const dropped = hopHeadersOf(response);
  const headers = rawHeaders.filter((_, index) => !dropped.has(rawHeaders[index - (index % 2)]!.toLowerCase()));
  outgoing.writeHead(statusCode, statusMessage, headers);
  // The first event of a feed may come much later.
  outgoing.flushHeaders();
  const refusal = new RefusalReader(response);
  response.on('data', (chunk: Buffer) => {
    outcome.bytes += chunk.length;
    refusal.add(chunk);
  });
  response.once('end', () => (outcome.refusal = refusal.read()));
  response.once('error', () => (outcome.isBroken ||= !outgoing.destroyed));
  pipeline(response, outgoing, () => {});
}

/** The headers that are of one connection only. The length of a body is not, whatever `Connection` says of it. */
function hopHeadersOf({ headers: { connection = '' } }: IncomingMessage): Set<string> {
  const named = connection.split(',').map((name) => name.trim().toLowerCase());
  const dropped = new Set([...hopHeaders, ...named]);
  dropped.delete('content-length');
  return dropped;
}

/** Refuses a request in the form of the service. */
function refuse(outgoing: ServerResponse, outcome: Outcome, status: number, code: string, error: string): void {
  outcome.refusal = { code, error };
  const body = Buffer.from(JSON.stringify({ error, code, details: {} }));
  outcome.bytes = body.length;
  const headers = { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': body.length };
  outgoing.writeHead(status, { ...headers, Connection: 'close' }).end(body);
}
