import { z } from 'zod';
import { optionalText } from '@granary/shared/config';

/** The environment of `npm run verify`. */
export const verifyConfig = z
  .object({
    GRANARY_URL: z.url().default('http://127.0.0.1:8080'),
    GRANARY_APP: optionalText,
    GRANARY_KEY: optionalText,
    /** An export to check, instead of a running service. */
    VERIFY_FROM: optionalText,
    /** The file that an export is written to. */
    VERIFY_EXPORT: optionalText,
    /** A link whose hash was kept elsewhere, as `<height>:<hash>`. */
    VERIFY_KNOWN: z
      .string()
      .regex(/^[1-9]\d{0,14}:[0-9a-f]{64}$/, 'must be <height>:<hash in hexadecimal digits>')
      .optional(),
  })
  .refine(({ VERIFY_FROM: from, GRANARY_APP: app, GRANARY_KEY: key }) => from !== undefined || (app && key), {
    error: 'say which chain: npm run verify -- --app <app_id> --key <key>, or --from <export>',
    path: ['GRANARY_APP'],
  });
