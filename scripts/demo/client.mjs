import { setTimeout as delay } from 'node:timers/promises';
import { showAnswer, showRequest } from './transcript.mjs';

/**
 * @typedef {{ file: File, toString: () => string }} FormFile A file of a form, and how a shell command names it.
 *
 * @typedef {object} Request
 * @property {string} method
 * @property {string} path with its query
 * @property {boolean} [isPublic] sends no key
 * @property {Record<string, string>} [headers]
 * @property {string} [body] as JSON
 * @property {Record<string, string | FormFile>} [form] in place of a body
 *
 * @typedef {{ status: number, headers: Headers, text: string, ms: number }} Reply
 * @typedef {Reply & { json: any }} Answer Each operation of the API has other members in its JSON.
 * @typedef {ReturnType<typeof createClient>} Client
 */

const taskTimeoutMs = 60_000;
const requestTimeoutMs = 30_000;

/** An unexpected result; the message explains it to the user of the demo. */
export class Unexpected extends Error {}

/** @param {boolean} holds @param {string} sentence @returns {asserts holds} */
export function expect(holds, sentence) {
  if (!holds) throw new Unexpected(sentence);
}

/**
 * A client of one app of a Granary. `send` only sends, `show` also prints the request and the answer.
 * @param {{ url: string, app: string, key: string }} options
 */
export function createClient({ url, app, key }) {
  /** @type {(request: Request) => Promise<Reply>} */
  const send = async (request) => {
    const { method, path, isPublic, headers, body, form } = request;
    const startedMs = performance.now();
    const response = await fetch(url + path, {
      method,
      headers: {
        ...(isPublic ? {} : { 'x-app-key': key }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: form ? toFormData(form) : (body ?? null),
      signal: AbortSignal.timeout(requestTimeoutMs),
    }).catch((error) => {
      if (error.name === 'TimeoutError') {
        throw new Unexpected(`${method} ${path} was not answered within ${requestTimeoutMs / 1000} s.`);
      }
      const reason = error.cause?.code ?? error.message;
      throw new Unexpected(`${url} does not respond (${reason}). Start Granary with npm start, or name it with --url.`);
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, ms: performance.now() - startedMs };
  };

  /** @type {(request: Request, answer: Reply, statuses: number[]) => Answer} */
  const check = ({ method, path }, answer, statuses) => {
    const { status, text } = answer;
    expect(statuses.includes(status), `${method} ${path} answered ${status}, not ${statuses.join(' or ')}: ${text}`);
    const isJson = (answer.headers.get('content-type') ?? '').startsWith('application/json');
    return { ...answer, json: isJson ? JSON.parse(text) : undefined };
  };

  return {
    app,
    /**
     * Sends a request without printing it. Throws Unexpected for a status that is not among `statuses`.
     * @param {Request} request
     */
    send: async (request, statuses = [200]) => check(request, await send(request), statuses),

    /**
     * Sends a request and prints it; `lines` selects the printed lines of the answer.
     * @param {Request} request @param {(answer: Answer) => string[]} lines
     */
    show: async (request, lines, statuses = [200]) => {
      showRequest(url, { ...request, key });
      const answer = check(request, await send(request), statuses);
      showAnswer(answer.status, answer.ms, lines(answer));
      return answer;
    },

    showRequest: (/** @type {Request} */ request) => showRequest(url, { ...request, key }),

    /** Waits until the task of a ticket has completed, and shows its last state. @param {string} ticket */
    waitFor: async (ticket) => {
      const request = { method: 'GET', path: `/api/tasks/${ticket}`, isPublic: true };
      const deadlineMs = Date.now() + taskTimeoutMs;
      for (;;) {
        const answer = check(request, await send(request), [200]);
        const { status, operation_type: operation, progress } = answer.json;
        expect(typeof status === 'string', `The task ${ticket} failed: ${status?.Failed?.error}`);
        if (status === 'Completed') {
          showRequest(url, { ...request, key });
          showAnswer(answer.status, answer.ms, [JSON.stringify({ status, operation_type: operation, progress })]);
          return;
        }
        expect(Date.now() < deadlineMs, `The task ${ticket} is still ${status} after ${taskTimeoutMs / 1000} s.`);
        await delay(50);
      }
    },
  };
}

/** Form fields as with curl's -F; a File is sent as a file. @param {Record<string, string | FormFile>} fields */
function toFormData(fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string') form.append(name, value);
    else form.append(name, value.file);
  }
  return form;
}
