import { z } from 'zod';

const secret = z.string().min(32, 'at least 32 characters are needed').optional();
const file = z.string().min(1).optional();

/** The settings of authentication between services, see trust.ts. */
export const trustSettings = {
  /** One secret for all services, from which the secret of each is derived. */
  INTERNAL_SECRET: secret,
  INTERNAL_SECRET_FILE: file,
  /** The secret of this service alone, which signs its calls; given instead of INTERNAL_SECRET. */
  SERVICE_SECRET: secret,
  SERVICE_SECRET_FILE: file,
  /** The services whose calls it accepts: `name:key`, separated by commas, the key being 64 hexadecimal digits. */
  TRUSTED_CALLERS: z.string().min(1).optional(),
  TRUSTED_CALLERS_FILE: file,
  /** Certificates of the authorities that sign those of the services. */
  TLS_CA_FILE: file,
  TLS_CERT_FILE: file,
  TLS_KEY_FILE: file,
  /** Whether callers need a certificate, too. */
  TLS_VERIFY_CLIENTS: z.stringbool().default(false),
};

export type TrustSettings = Partial<z.infer<z.ZodObject<typeof trustSettings>>>;
