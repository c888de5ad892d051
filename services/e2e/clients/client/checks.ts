import { documentChecks } from './check-documents.js';
import { streamChecks } from './check-streams.js';

export type { Target } from './check-support.js';

/** Each runs on an empty app of its own. */
export const checks = { ...documentChecks, ...streamChecks };
