import { GranaryError, type ErrorCode, type PaymentOffer } from '../errors.ts';

interface Problem {
  error?: unknown;
  code?: unknown;
  details?: unknown;
  accepts?: unknown;
}

/** A part of the service that a call needs, and that not every release has. */
export interface Feature {
  name: string;
  /** The first release with it. */
  since: string;
}

/** The error of an answer that refuses a request. Reads its body. */
export async function errorOf(response: Response, feature: Feature | undefined): Promise<GranaryError> {
  const text = await response.text().catch(() => '');
  const { status, headers } = response;
  const problem = parsedProblem(text);
  const common = { status, requestId: headers.get('x-request-id') ?? undefined, retryAfterMs: retryAfterMs(headers) };
  if (typeof problem?.code !== 'string' || typeof problem.error !== 'string') {
    const shown = text.length > 200 ? `${text.slice(0, 200)}…` : text;
    return new GranaryError(`The answer ${status} is not one of Granary: ${shown}`, {
      ...common,
      code: 'INVALID_ANSWER',
    });
  }
  if (feature && isUnknownRoute(status, problem.code)) {
    const message = `The service is of a release without ${feature.name}, which ${feature.since} and later ones have`;
    return new GranaryError(message, { ...common, code: 'NOT_SUPPORTED', details: { ...feature } });
  }
  return new GranaryError(problem.error, {
    ...common,
    code: problem.code as ErrorCode,
    details: (problem.details ?? {}) as Record<string, unknown>,
    offers: Array.isArray(problem.accepts) ? (problem.accepts as PaymentOffer[]) : [],
  });
}

const isUnknownRoute = (status: number, code: string): boolean =>
  (status === 404 && code === 'NOT_FOUND') || (status === 405 && code === 'METHOD_NOT_ALLOWED');

function parsedProblem(text: string): Problem | undefined {
  try {
    return (JSON.parse(text) as Problem | null) ?? undefined;
  } catch {
    return undefined;
  }
}

/** `Retry-After` as milliseconds: it is a number of seconds, or a date. */
function retryAfterMs(headers: Headers): number | undefined {
  const header = headers.get('retry-after');
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}
