import { z } from 'zod';
import { optionalText } from '../config';

const secret = z.string().min(32, 'at least 32 characters are needed').optional();

/** The settings of authentication between services, see trust.ts. */
export const trustSettings = {
  INTERNAL_SECRET: secret.describe(
    'One secret for all services, at least 32 characters, from which the secret of each is derived.',
  ),
  INTERNAL_SECRET_FILE: optionalText.describe('A file that holds it, in place of `INTERNAL_SECRET`.'),
  SERVICE_SECRET: secret.describe(
    'In place of `INTERNAL_SECRET`: at least 32 characters that this service alone knows. It signs its calls with them.',
  ),
  SERVICE_SECRET_FILE: optionalText.describe('A file that holds it, in place of `SERVICE_SECRET`.'),
  TRUSTED_CALLERS: optionalText.describe(
    'Who may call: `gateway:<key>,tasks:<key>`, with the key of each pair in 64 hexadecimal digits, separated by commas, spaces or line breaks.',
  ),
  TRUSTED_CALLERS_FILE: optionalText.describe('A file that holds the list, in place of `TRUSTED_CALLERS`.'),
  TLS_CA_FILE: optionalText.describe(
    "Certificates of the authorities that sign the services' certificates. It turns TLS on.",
  ),
  TLS_CERT_FILE: optionalText.describe("The service's certificate, with its intermediate certificates."),
  TLS_KEY_FILE: optionalText.describe('The private key of that certificate.'),
  TLS_VERIFY_CLIENTS: z.stringbool().default(false).describe('Whether callers need a certificate too.'),
};

export type TrustSettings = Partial<z.infer<z.ZodObject<typeof trustSettings>>>;
