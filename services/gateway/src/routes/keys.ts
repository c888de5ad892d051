import { z } from 'zod';
import type { CreateKeyRequest } from '@granary/shared/gen/granary/data/v1/CreateKeyRequest';
import type { IssuedKey } from '@granary/shared/gen/granary/data/v1/IssuedKey';
import type { Key } from '@granary/shared/gen/granary/data/v1/Key';
import type { PayLimits } from '@granary/shared/gen/granary/data/v1/PayLimits';
import type { RegenerateKeyRequest } from '@granary/shared/gen/granary/data/v1/RegenerateKeyRequest';
import { dotSegmentRule, isDotSegment } from '@granary/shared/names';
import { message } from '@granary/shared/rpc/types';
import { json, type Answer } from '../http/answer';
import { permissions, type AppCaller, type Operator } from '../pipeline/access';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listed, listing, listingHeaders, listingQuery, nextCursorSchema } from '../pipeline/listing';
import { bodyLimits, route } from '../pipeline/route';
import { appIdSchema, exampleTime, successSchema, timeSchema, utiaSchema } from '../validation/schemas';

const targetAppsText = 'The apps that it may pay';
const payLimitTexts = {
  expires_at: 'When it stops to pay',
  max_payment_per_tx: 'The most for one payment, in utia',
  spend_allowance: 'The most for all payments together, in utia',
};

/** null is no limit that somebody meant: JSON makes it of NaN and of variables that are not set. */
const payLimitsSchema = z
  .strictObject({
    allowed_target_apps: z.array(appIdSchema).max(1_000).optional().describe(`${targetAppsText}; left out: any app`),
    expires_at: z.iso
      .datetime({ offset: true, error: 'must be an RFC 3339 date and time' })
      .optional()
      .describe(payLimitTexts.expires_at),
    max_payment_per_tx: utiaSchema.optional().describe(payLimitTexts.max_payment_per_tx),
    spend_allowance: utiaSchema.optional().describe(payLimitTexts.spend_allowance),
  })
  .describe('Bounds of a key with `Pay`; what is left out is no limit');

const shownPayLimitsSchema = z
  .object({
    allowed_target_apps: z.array(appIdSchema).nullable().describe(`${targetAppsText}; null: any app`),
    expires_at: timeSchema.nullable().describe(payLimitTexts.expires_at),
    max_payment_per_tx: utiaSchema.nullable().describe(payLimitTexts.max_payment_per_tx),
    spend_allowance: utiaSchema.nullable().describe(payLimitTexts.spend_allowance),
  })
  .describe('Bounds of a key with `Pay`; null is no limit');

const exampleKey = {
  key_id: 'k_4q8Zt1',
  name: 'reporting',
  permissions: ['Read' as const],
  pay_limits: null,
  last_four: 'x9Qe',
  created_at: exampleTime,
};

const keySchema = z
  .object({
    key_id: z.string().describe('What it is revoked by'),
    name: z.string().describe('Name of the key'),
    permissions: z.array(z.enum(permissions)).describe('What it may do'),
    pay_limits: shownPayLimitsSchema.nullable(),
    last_four: z.string().describe('The last four characters of the secret'),
    created_at: timeSchema.describe('When it was made'),
  })
  .meta({ id: 'Key', examples: [exampleKey] });

function toPayLimits(limit: z.output<typeof payLimitsSchema>): PayLimits {
  return message<PayLimits>({
    allowedTargetApps: limit.allowed_target_apps ?? [],
    anyTarget: !limit.allowed_target_apps,
    expiresAt: limit.expires_at,
    maxPaymentPerTx: limit.max_payment_per_tx?.toString(),
    spendAllowance: limit.spend_allowance?.toString(),
  });
}

function fromPayLimits(limit: PayLimits) {
  const amount = (text: string | undefined) => (text === undefined ? null : Number(text));
  return {
    allowed_target_apps: limit.anyTarget ? null : limit.allowedTargetApps,
    expires_at: limit.expiresAt ?? null,
    max_payment_per_tx: amount(limit.maxPaymentPerTx),
    spend_allowance: amount(limit.spendAllowance),
  };
}

function keyJson(key: Key) {
  return {
    key_id: key.keyId,
    name: key.name,
    permissions: key.permissions,
    pay_limits: key.payLimits ? fromPayLimits(key.payLimits) : null,
    last_four: key.lastFour,
    created_at: key.createdAt,
  };
}

const adminOrOperator = { kind: 'app', permission: 'Admin', operator: true } as const;

/** Only the operator may leave an application without a key with Admin. */
const keepsAdmin = (caller: AppCaller | Operator): boolean => caller.kind !== 'operator';

const keyNameSchema = z
  .string()
  .min(1)
  .max(200)
  .refine((name) => !isDotSegment(name), dotSegmentRule);
const permissionsSchema = z
  .array(z.enum(permissions))
  .min(1)
  .max(permissions.length)
  .describe('What it may do; `Admin` includes `Read` and `Write`');

const issuedKeySchema = keySchema.extend({
  app_id: z.string().describe('The application'),
  app_key: z.string().nullable().describe('The secret; null in an answer repeated by `Idempotency-Key`'),
});
const issuedKeyDoc = {
  description: 'The key, which is shown this once',
  schema: issuedKeySchema,
  example: { app_id: 'demo', app_key: 'app_…x9Qe', ...exampleKey },
};

function issuedKeyAnswer(status: number, appId: string, { key, secret, replayed }: IssuedKey): Answer {
  const issued = { app_id: appId, app_key: secret || null, ...keyJson(key!) };
  return { ...json(status, issued, replayedHeader(replayed === true)), isSecret: true };
}

const lastAdminKeyDoc = {
  description: 'No key with `Admin` would be left; only the operator may do that. Nothing was changed',
  codes: ['LAST_ADMIN_KEY'],
} as const;

export const keyRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/keys',
    id: 'createKey',
    summary: 'Create a key',
    description: 'Other keys stay as they are.',
    tag: 'Keys',
    auth: adminOrOperator,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        name: keyNameSchema.describe('Name of the key'),
        permissions: permissionsSchema,
        pay_limits: payLimitsSchema.optional(),
      }),
      example: { name: 'reporting', permissions: ['Read'] },
    },
    responses: {
      201: issuedKeyDoc,
      409: { description: 'A key has the name already', codes: ['ALREADY_EXISTS'] },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      const issued = await clients.data.createKey(
        message<CreateKeyRequest>({
          appId: path.app_id,
          name: body.name,
          permissions: body.permissions,
          payLimits: body.pay_limits && toPayLimits(body.pay_limits),
          idempotency: idempotencyOfJson(request),
        }),
        call,
      );
      return issuedKeyAnswer(201, path.app_id, issued);
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/regenerate-key',
    id: 'regenerateKey',
    summary: 'Replace the key of a name, or make the first of that name',
    description:
      'The secret of a replaced key stops working everywhere within a second. What is left out stays as it was for the ' +
      'replaced key.',
    tag: 'Keys',
    auth: adminOrOperator,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      limitBytes: bodyLimits.smallBytes,
      schema: z.strictObject({
        name: keyNameSchema.nullish().describe('Name of the key; by default `default`'),
        permissions: permissionsSchema.optional().describe('What it may do; required where no key has the name'),
        pay_limits: payLimitsSchema.optional(),
      }),
      example: { name: 'reporting', permissions: ['Read'] },
    },
    responses: { 200: issuedKeyDoc, 409: lastAdminKeyDoc },
    handle: async ({ clients }, request) => {
      const { path, body, call, caller } = request;
      const issued = await clients.data.regenerateKey(
        message<RegenerateKeyRequest>({
          appId: path.app_id,
          name: body.name ?? 'default',
          permissions: body.permissions ?? [],
          payLimits: body.pay_limits && toPayLimits(body.pay_limits),
          idempotency: idempotencyOfJson(request),
          keepOmitted: true,
          keepAdmin: keepsAdmin(caller),
        }),
        call,
      );
      return issuedKeyAnswer(200, path.app_id, issued);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/keys',
    id: 'listKeys',
    summary: 'List the keys of an application',
    description: 'Without their secrets, which are not kept.',
    tag: 'Keys',
    auth: adminOrOperator,
    query: listingQuery,
    responses: {
      200: {
        description: 'The keys',
        schema: z.object({
          app_id: z.string().describe('The application'),
          keys: z.array(keySchema).describe('Those that are not revoked'),
          next_cursor: nextCursorSchema,
        }),
        headers: listingHeaders,
        example: { app_id: 'demo', keys: [exampleKey] },
      },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const { keys, nextCursor } = await clients.data.listKeys({ appId: path.app_id, ...listing(query) }, call);
      const body = { app_id: path.app_id, keys: keys.map(keyJson), next_cursor: nextCursor || undefined };
      return listed(request, body, nextCursor);
    },
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/keys/{key_id}',
    id: 'revokeKey',
    summary: 'Revoke a key',
    description: 'It stops working everywhere within a second.',
    tag: 'Keys',
    auth: adminOrOperator,
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is revoked',
        schema: successSchema,
        example: { success: true, message: 'Key k_4q8Zt1 is revoked' },
      },
      409: lastAdminKeyDoc,
    },
    handle: async ({ clients }, request) => {
      const { path, call, caller } = request;
      const revoked = await clients.data.revokeKey(
        {
          appId: path.app_id,
          keyId: path.key_id,
          idempotency: idempotencyOfJson(request),
          keepAdmin: keepsAdmin(caller),
        },
        call,
      );
      return json(
        200,
        { success: true, message: `Key ${path.key_id} is revoked` },
        replayedHeader(revoked.replayed === true),
      );
    },
  }),
];
