import { createHmac, timingSafeEqual } from 'node:crypto';
import { invalid, notFound, ServiceError } from '@granary/shared/errors';
import type { CreateFeedTokenRequest } from '@granary/shared/gen/granary/data/v1/CreateFeedTokenRequest';
import type { FeedToken } from '@granary/shared/gen/granary/data/v1/FeedToken';
import type { OpenedFeedToken } from '@granary/shared/gen/granary/data/v1/OpenedFeedToken';
import type { OpenFeedTokenRequest } from '@granary/shared/gen/granary/data/v1/OpenFeedTokenRequest';
import { databaseTime } from '@granary/shared/postgres/clock';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { KEY_NOT_FOUND } from '../apps/app-keys';
import { findApp, type App } from '../catalog/app';
import type { FastContext } from '../postgres/databases';

/** Characters of a token, at most: it stands in URLs. */
const tokenLengthMax = 6_144;

/** What a token says: the key by whose right it reads, the end of its time in seconds since 1970, what it reads. */
interface TokenClaims {
  key: string;
  exp: number;
  content: string;
}

/**
 * A token that may read by the right of a key, until its time is up or the key is revoked. It is kept nowhere: it is
 * what it says, with a MAC by the hash of the key, which only the database has. Throws KEY_NOT_FOUND, VALIDATION_FAILED
 * where it would be too long for a URL.
 */
export async function createFeedToken({ fast }: FastContext, request: CreateFeedTokenRequest): Promise<FeedToken> {
  const app = await findApp(fast, request.appId);
  const hash = await findKeyHash(fast, app, request.keyId);
  if (!hash) throw notFound(KEY_NOT_FOUND, 'There is no such key');
  const exp = Math.ceil((await databaseTime(fast)).getTime() / 1_000) + request.ttlSeconds;
  const claims: TokenClaims = { key: request.keyId, exp, content: request.content.toString() };
  const payload = Buffer.from(JSON.stringify(claims)).toString('base64url');
  const token = `ft_${payload}.${macOf(app, hash, payload).toString('base64url')}`;
  if (token.length > tokenLengthMax) {
    throw invalid('The token would be too long for a URL', {
      subscriptions: [`make a token of ${token.length} characters, and one may have ${tokenLengthMax}`],
    });
  }
  return { token, expiresAt: new Date(exp * 1_000).toISOString() };
}

/** What a token reads. Throws UNAUTHENTICATED. */
export async function openFeedToken({ fast }: FastContext, request: OpenFeedTokenRequest): Promise<OpenedFeedToken> {
  const [, payload = '', mac = ''] = /^ft_([\w-]+)\.([\w-]{43})$/.exec(request.token) ?? [];
  const claims = claimsOf(payload);
  if (!claims) throw refused('is not one');
  const app = await findApp(fast, request.appId);
  const hash = await findKeyHash(fast, app, claims.key);
  if (!hash || !timingSafeEqual(Buffer.from(mac, 'base64url'), macOf(app, hash, payload))) {
    throw refused('is not valid for this app, or its key was revoked');
  }
  const leftMs = claims.exp * 1_000 - (await databaseTime(fast)).getTime();
  if (leftMs <= 0) throw refused('has expired');
  return { keyId: claims.key, content: Buffer.from(claims.content), leftMs };
}

/** Undefined for a text that is no token. */
function claimsOf(payload: string): TokenClaims | undefined {
  try {
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Partial<TokenClaims> | null;
    const { key, exp, content } = claims ?? {};
    if (typeof key === 'string' && typeof exp === 'number' && typeof content === 'string') return { key, exp, content };
    return undefined;
  } catch {
    return undefined;
  }
}

const macOf = ({ number }: App, keyHash: Buffer, payload: string): Buffer =>
  createHmac('sha256', keyHash).update(`granary feed token v1\n${number}\n${payload}`).digest();

/** The hash of a key of an app that is not revoked and may read. */
async function findKeyHash(db: Queryable, { number }: App, keyId: string): Promise<Buffer | undefined> {
  const key = await row<{ hash: Buffer }>(
    db,
    sql`select hash from app_key where key_id = ${keyId} and app_number = ${number} and revoked_at is null
        and permissions && '{Read,Admin}'::text[]`,
  );
  return key?.hash;
}

const refused = (why: string): ServiceError =>
  new ServiceError('UNAUTHENTICATED', 'UNAUTHENTICATED', `The feed token ${why}`);
