import { z } from 'zod';
import { forbidden } from '@granary/shared/errors';
import type { Grant } from '@granary/shared/gen/granary/finance/v1/Grant';
import { maxUtia, parseUtia, utiaToNumber } from '@granary/shared/money/amounts';
import { json } from '../http/answer';
import type { Operator, Wallet } from '../pipeline/access';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { appIdSchema, exampleTime, timeSchema, utiaSchema } from '../validation/schemas';

const exampleGrant = {
  grant_id: '0198c1c2-6a3e-7d2b-9f9e-1c7f0e6a5b11',
  address: 'celestia1…',
  grantee: 'celestia1…',
  limit_utia: 10_000_000,
  spent_utia: 0,
  allowed_apps: [],
  expires_at: exampleTime,
  created_at: exampleTime,
  revoked_at: null,
};

const grantSchema = z
  .object({
    grant_id: z.string().describe('Names it'),
    address: z.string().describe('The wallet that pays'),
    grantee: z.string().describe('To whom the wallet gives the grant on the chain'),
    limit_utia: utiaSchema.describe('What may be taken, in utia'),
    spent_utia: utiaSchema.describe('What was taken or is being taken'),
    allowed_apps: z.array(z.string()).describe('The applications that may be paid; empty: any'),
    expires_at: timeSchema.describe('Until when'),
    created_at: timeSchema.describe('When it was registered'),
    revoked_at: timeSchema.nullable().describe('When it was revoked'),
  })
  .meta({ id: 'Grant', examples: [exampleGrant] });

const grantJson = (grant: Grant) => ({
  grant_id: grant.grantId,
  address: grant.address,
  grantee: grant.grantee,
  limit_utia: utiaToNumber(parseUtia(grant.limitUtia)),
  spent_utia: utiaToNumber(parseUtia(grant.spentUtia)),
  allowed_apps: grant.allowedApps,
  expires_at: grant.expiresAt,
  created_at: grant.createdAt,
  revoked_at: grant.revokedAt ?? null,
});

const newGrantSchema = z.strictObject({
  limit_utia: z.int().min(1).max(Number(maxUtia)).describe('What may be taken in all, in utia'),
  allowed_apps: z
    .array(appIdSchema)
    .min(1)
    .max(100)
    .optional()
    .describe('The applications that may be paid; left out: any'),
  expires_at: z.iso
    .datetime({ offset: true })
    .optional()
    .describe('Until when, at most ten years from now; by default a year'),
});

/** Nobody but the wallet disposes of its money. Throws FORBIDDEN. */
function addressOf(caller: Wallet | Operator): string {
  if (caller.kind === 'wallet') return caller.address;
  throw forbidden('The signature of the wallet is needed');
}

const tag = 'Authz';
const wallet = { kind: 'wallet' } as const;
const signed =
  'Signed by the wallet: ADR-036 over `METHOD\\npath?query\\nseconds\\nhex SHA-256 of the body`, in X-Wallet-Address, ' +
  'X-Timestamp, X-Signature and X-Pubkey.';

export const grantRoutes = [
  route({
    method: 'POST',
    path: '/authz/grants',
    id: 'createGrant',
    summary: 'Let the platform take money from a wallet for what requests with a key cost',
    description: `${signed} See docs/money/grants.md.`,
    tag,
    auth: wallet,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: newGrantSchema,
      example: { limit_utia: 10_000_000, allowed_apps: ['demo'] },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      201: {
        description: 'The grant, with its key',
        schema: grantSchema.extend({
          user_key: z.string().nullable().describe('For X-User-Key; null in an answer repeated by `Idempotency-Key`'),
        }),
        example: { ...exampleGrant, user_key: 'user_…' },
      },
      400: { description: 'Malformed or invalid', codes: ['LIMIT_EXCEEDED'] },
      409: { description: 'The chain has no such grant', codes: ['GRANT_MISSING'] },
    },
    handle: async ({ clients, paymentNetworks }, request) => {
      const { caller, body, call } = request;
      const address = addressOf(caller);
      const recipient = await paymentNetworks.recipientOnWallets(call);
      const made = await clients.finance.createGrant(
        {
          address,
          limitUtia: String(body.limit_utia),
          allowedApps: body.allowed_apps ?? [],
          ...(body.expires_at && { expiresAt: body.expires_at }),
          ...(recipient !== undefined && { recipient }),
          idempotency: idempotencyOfJson(request),
        },
        call,
      );
      const headers = { 'Cache-Control': 'no-store', ...replayedHeader(made.replayed === true) };
      return json(201, { ...grantJson(made.grant!), user_key: made.userKey || null }, headers);
    },
  }),
  route({
    method: 'GET',
    path: '/authz/grants',
    id: 'listGrants',
    summary: 'List the grants of a wallet',
    description: signed,
    tag,
    auth: wallet,
    responses: {
      200: {
        description: 'The newest first, also such as are over',
        schema: z.object({ grants: z.array(grantSchema).describe('Without their keys') }),
        example: { grants: [exampleGrant] },
      },
    },
    handle: async ({ clients }, { caller, call }) => {
      const address = addressOf(caller);
      const { grants } = await clients.finance.listGrants({ address }, call);
      return json(200, { grants: grants.map(grantJson) });
    },
  }),
  route({
    method: 'DELETE',
    path: '/authz/grants/{grant_id}',
    id: 'revokeGrant',
    summary: 'End a grant',
    description: `What is being taken goes on. ${signed}`,
    tag,
    auth: wallet,
    headers: idempotencyHeader,
    responses: {
      200: { description: 'It is over', schema: grantSchema, example: { ...exampleGrant, revoked_at: exampleTime } },
      404: { description: 'The wallet has no such grant', codes: ['GRANT_NOT_FOUND'] },
    },
    handle: async ({ clients }, request) => {
      const { caller, path, call } = request;
      const { grant, replayed } = await clients.finance.revokeGrant(
        { address: addressOf(caller), grantId: path.grant_id, idempotency: idempotencyOfJson(request) },
        call,
      );
      return json(200, grantJson(grant!), replayedHeader(replayed === true));
    },
  }),
];
