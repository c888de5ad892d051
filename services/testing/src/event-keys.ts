import { createSecretKey } from 'node:crypto';
import { createEventSigner, createEventVerifier } from '@granary/shared/trust/event-signature';

const key = createSecretKey(Buffer.alloc(32, 'events of a test'));

/** Signs events for whoever reads them. */
export const testSigner = createEventSigner(() => [key]);
export const testVerifier = createEventVerifier(key);
/** The signer of somebody who does not know the key. */
export const forgingSigner = createEventSigner(() => [createSecretKey(Buffer.alloc(32, 'another key'))]);
