import { z } from 'zod';
import type { Key } from '@granary/shared/gen/granary/data/v1/Key';
import type { PayLimits } from '@granary/shared/gen/granary/data/v1/PayLimits';
import type { RegenerateKeyRequest } from '@granary/shared/gen/granary/data/v1/RegenerateKeyRequest';
import { message } from '@granary/shared/grpc/types';
import { json } from '../answer';
import { permissions } from '../auth';
import { limits, route } from '../route';
import { appIdSchema, successSchema, timeSchema, utiaSchema } from '../schemas';

const payLimitsSchema = z
  .strictObject({
    allowed_target_apps: z.array(appIdSchema).max(1_000).nullish().describe('null: any app'),
    expires_at: z.iso.datetime({ offset: true, error: 'must be an RFC 3339 date and time' }).nullish(),
    max_payment_per_tx: utiaSchema.nullish(),
    spend_allowance: utiaSchema.nullish(),
  })
  .describe('Bounds of a Pay key; null is no limit');

const keySchema = z
  .object({
    key_id: z.string(),
    name: z.string(),
    permissions: z.array(z.enum(permissions)),
    pay_limits: payLimitsSchema.nullable(),
    last_four: z.string(),
    created_at: timeSchema,
  })
  .meta({ id: 'Key' });

function toPayLimits(limit: z.output<typeof payLimitsSchema>): PayLimits {
  return message<PayLimits>({
    allowedTargetApps: limit.allowed_target_apps ?? [],
    anyTarget: !limit.allowed_target_apps,
    expiresAt: limit.expires_at ?? undefined,
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

export const keyRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/regenerate-key',
    id: 'regenerateKey',
    summary: 'Replace the key of a name, or make the first of that name',
    tag: 'Keys',
    auth: adminOrOperator,
    body: {
      kind: 'json',
      limitBytes: limits.smallBytes,
      schema: z.strictObject({
        name: z.string().min(1).max(200).nullish().describe('default: "default"'),
        permissions: z.array(z.enum(permissions)).min(1).max(permissions.length),
        pay_limits: payLimitsSchema.nullish(),
      }),
    },
    responses: {
      200: {
        description: 'The key, which is shown this once',
        schema: keySchema.extend({ app_id: z.string(), app_key: z.string().nullable() }),
      },
    },
    handle: async ({ clients }, { path, body, call }) => {
      const { key, secret } = await clients.data.regenerateKey(
        message<RegenerateKeyRequest>({
          appId: path.app_id,
          name: body.name ?? 'default',
          permissions: [...new Set(body.permissions)],
          payLimits: body.pay_limits ? toPayLimits(body.pay_limits) : undefined,
        }),
        call,
      );
      const answer = json(200, { app_id: path.app_id, app_key: secret || null, ...keyJson(key!) });
      return { ...answer, isSecret: true };
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/keys',
    id: 'listKeys',
    summary: 'List the keys of an application, without their secrets',
    tag: 'Keys',
    auth: adminOrOperator,
    responses: {
      200: { description: 'The keys', schema: z.object({ app_id: z.string(), keys: z.array(keySchema) }) },
    },
    handle: async ({ clients }, { path, call }) => {
      const { keys } = await clients.data.listKeys({ appId: path.app_id }, call);
      return json(200, { app_id: path.app_id, keys: keys.map(keyJson) });
    },
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/keys/{key_id}',
    id: 'revokeKey',
    summary: 'Revoke a key, everywhere within a second',
    tag: 'Keys',
    auth: adminOrOperator,
    responses: { 200: { description: 'It is revoked', schema: successSchema } },
    handle: async ({ clients }, { path, call }) => {
      await clients.data.revokeKey({ appId: path.app_id, keyId: path.key_id }, call);
      return json(200, { success: true, message: `Key ${path.key_id} is revoked` });
    },
  }),
];
