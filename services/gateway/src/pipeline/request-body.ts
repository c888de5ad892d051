import type { Request, Response } from 'express';
import { readJson, toPlain, type JsonValue } from '@granary/shared/json/value';
import type { ClientKeys } from '../admission/client-budget';
import { malformedJson, unsupportedMediaType } from '../errors/problem';
import { hasBody, mediaType, readBody } from '../http/body';
import { validate } from '../validation/validate';
import type { GatewayContext } from './gateway-context';
import type { JsonBody, RawBody, Route } from './route';

/** The greatest depth of a JSON body. */
const bodyDepthMax = 64;

/** A body that is read before its request is processed. */
export type BufferedBody = JsonBody | RawBody;

export interface RequestBody {
  /** The output of the schema, or the bytes of a raw body. */
  body: unknown;
  jsonTree: JsonValue;
  /** Releases the memory of the body, once the request has been processed. */
  releaseBody?: () => void;
}

/** The client that sends a body, and the check of its signature. */
export interface BodySender {
  /** The client whose limits it counts against. */
  keys: ClientKeys;
  /** Checks a signature over the bytes, before anything else is done with them. */
  check: ((bytes: Buffer) => void) | undefined;
}

export const noBody: RequestBody = { body: undefined, jsonTree: null };

/**
 * Reads and validates a body. Throws UNSUPPORTED_MEDIA_TYPE, PAYLOAD_TOO_LARGE, MALFORMED_JSON, VALIDATION_FAILED, and
 * the errors of `readBody`.
 */
export async function readRequestBody(
  { bodies }: GatewayContext,
  { contentTypes: expected }: Route,
  body: BufferedBody,
  request: Request,
  response: Response,
  { keys, check }: BodySender,
): Promise<RequestBody> {
  if (!hasBody(request)) {
    check?.(Buffer.alloc(0));
    return emptyBody(body, expected, request);
  }
  checkMediaType(request, expected);
  const { bytes, release } = await readBody(request, response, { limitBytes: body.limitBytes, bodies, keys });
  try {
    check?.(bytes);
    if (bytes.length === 0) return { ...emptyBody(body, expected, request), releaseBody: release };
    if (body.kind === 'raw') return { body: bytes, jsonTree: null, releaseBody: release };
    const jsonTree = readJson(bytes, { maxDepth: bodyDepthMax });
    return { body: validate(body.schema, toPlain(jsonTree), 'body'), jsonTree, releaseBody: release };
  } catch (error) {
    release();
    throw error;
  }
}

/** A body without a content type is treated as JSON. */
function checkMediaType(request: Request, expected: readonly string[]): void {
  const type = mediaType(request, expected);
  const isJson = type === undefined || type === 'application/json' || /^application\/[^;]+\+json$/.test(type);
  if (isJson && expected.includes('application/json')) return;
  if (type === undefined || !expected.includes(type)) throw unsupportedMediaType(expected);
}

function emptyBody(body: BufferedBody, expected: readonly string[], request: Request): RequestBody {
  if (body.kind === 'json' && body.optional === true) {
    return { body: validate(body.schema, {}, 'body'), jsonTree: new Map() };
  }
  if (body.kind === 'raw' && body.mayBeEmpty === true) {
    const type = mediaType(request, expected);
    if (type === undefined) throw unsupportedMediaType(expected);
    if (type !== 'application/json' && expected.includes(type)) return { body: Buffer.alloc(0), jsonTree: null };
  }
  throw malformedJson('The body is empty');
}
