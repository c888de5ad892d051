import { bytesText } from '../terminal/progress.ts';
import type { Style } from '../terminal/terminal.ts';

/** How a request has come to its end: by the answer, or by one of those who took part before that was whole. */
export type RequestEnd = 'answered' | 'closed' | 'broken' | 'stopped';

/** A request that went through the proxy. */
export interface ForwardedRequest {
  time: Date;
  method: string;
  /** With its query, as it was sent. */
  path: string;
  /** Undefined where there was no answer. */
  status: number | undefined;
  ms: number;
  /** Bytes of the body of the answer, as they were sent. */
  bytes: number;
  end: RequestEnd;
  /** The code and the sentence of a refusal. */
  code?: string | undefined;
  error?: string | undefined;
}

const ends: Record<Exclude<RequestEnd, 'answered'>, string> = {
  closed: 'closed by the program',
  broken: 'broken off by the service',
  stopped: 'ended by Ctrl-C',
};

/** A request as a line of text. */
export function requestLine(request: ForwardedRequest, styled: (style: Style, text: string) => string): string {
  const { time, method, path, status, ms, bytes, end, code, error } = request;
  return [
    styled('dim', clockText(time)),
    method,
    shownPath(path),
    styled(styleOf(status), String(status ?? '-')),
    `${Math.round(ms)} ms`,
    bytesText(bytes),
    code === undefined ? '' : `${code}: ${error ?? ''}`,
    end === 'answered' ? '' : styled('yellow', `(${ends[end]})`),
  ]
    .filter((part) => part !== '')
    .join(' ')
    .replace(/[\r\n]+/g, ' ');
}

/** A request as an object for JSON. */
export function requestObject({ time, method, path, status, ms, ...others }: ForwardedRequest): object {
  return { time: time.toISOString(), method, path: shownPath(path), status, ms: Math.round(ms), ...others };
}

const styleOf = (status = 500): Style => (status < 400 ? 'green' : status < 500 ? 'yellow' : 'red');

/** The local time of day. */
function clockText(time: Date): string {
  const parts = [time.getHours(), time.getMinutes(), time.getSeconds()];
  return `${parts.map((part) => String(part).padStart(2, '0')).join(':')}.${String(time.getMilliseconds()).padStart(3, '0')}`;
}

/** Parameters whose values may be secrets, such as the token of a feed. */
const secretName = /(?:^|[._-])(?:token|secret|password|signature|key)(?:\.|$)/i;

/** A path with its query, as others may see it: values that may be secrets are left out. */
export function shownPath(path: string): string {
  const start = path.indexOf('?');
  if (start < 0) return path;
  const parameters = path.slice(start + 1).split('&');
  const shown = parameters.map((parameter) => {
    const [name = ''] = parameter.split('=', 1);
    return secretName.test(decoded(name)) && name.length < parameter.length ? `${name}=…` : parameter;
  });
  return `${path.slice(0, start)}?${shown.join('&')}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}
