import { z } from 'zod';

const secret = z.string().min(32, 'at least 32 characters are needed').optional();
const file = z.string().min(1).optional();

/** What every process reads of its environment about those that it calls and is called by, see trust.ts. */
export const trustSettings = {
  /** One secret for all services, from which those of each are derived. */
  INTERNAL_SECRET: secret,
  INTERNAL_SECRET_FILE: file,
  /** Or of this service alone: signs its calls. */
  SERVICE_SECRET: secret,
  SERVICE_SECRET_FILE: file,
  /** Those whose calls it believes: `name:key` with commas between, the key being 64 hexadecimal digits. */
  TRUSTED_CALLERS: z.string().min(1).optional(),
  TRUSTED_CALLERS_FILE: file,
  /** Of the authorities that sign the certificates of services. */
  TLS_CA_FILE: file,
  TLS_CERT_FILE: file,
  TLS_KEY_FILE: file,
  /** Whether callers need a certificate too. */
  TLS_VERIFY_CLIENTS: z.stringbool().default(false),
};

export type TrustSettings = Partial<z.infer<z.ZodObject<typeof trustSettings>>>;
