import { z } from 'zod';

/** Shapes that several nouns use. */

export const appIdSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/, 'must be 1 to 63 of A-Z a-z 0-9 _ -, and begin with a letter or digit');

/** Of a collection, a view or a predefined query. */
export const nameSchema = z
  .string()
  .regex(/^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$/, 'must be 1 to 63 of A-Z a-z 0-9 _ -, and not begin with -');

export const indexNameSchema = z
  .string()
  .regex(/^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u, 'must be 1 to 200 printable characters');

export const accessPolicySchema = z.strictObject({ read: z.enum(['public', 'private']) });

export const utiaSchema = z.int().min(0).describe('utia');

/** Any JSON object; a service checks what is in it. */
export const objectSchema = z.record(z.string(), z.unknown());

export const timeSchema = z.string().describe('ISO 8601');

export const successSchema = z.object({ success: z.literal(true), message: z.string() });

export const ticketSchema = successSchema.extend({ ticket_id: z.string() });

/** A page of records, as the data service renders it. */
export const recordsSchema = z
  .object({
    records: z.array(objectSchema),
    total: z.int().nullable(),
    page: z.int().nullable().describe('Null for a page by cursor'),
    limit: z.int(),
    next_cursor: z.string().optional().describe('Where there is more: the cursor of the next page'),
  })
  .meta({ id: 'Records' });

export function accessPolicy(readAccess: string): { read: string } {
  return { read: readAccess };
}
