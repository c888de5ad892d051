import type { ErrorCode, GranaryError } from '@granary/client';

/** A command that was called in a wrong way. `nextStep` says how to call it. */
export class UsageError extends Error {
  constructor(
    message: string,
    readonly nextStep?: string,
  ) {
    super(message);
  }
}

/** Something that did not succeed, and needs no look into the program. */
export class Failure extends Error {
  readonly nextStep: string | undefined;
  readonly exitCode: number;

  constructor(message: string, options: { nextStep?: string; exitCode?: number } = {}) {
    super(message);
    this.nextStep = options.nextStep;
    this.exitCode = options.exitCode ?? exitCodes.failed;
  }
}

/** The reason of the signal of a command that was ended by Ctrl-C. */
export class Interrupted extends Error {
  constructor() {
    super('Interrupted');
  }
}

/** The exit codes, which docs/cli.md lists. */
export const exitCodes = {
  failed: 1,
  usage: 2,
  notAllowed: 3,
  notFound: 4,
  conflict: 5,
  payment: 6,
  unreachable: 7,
  /** As a shell counts a program that wrote to a pipe which nobody reads. */
  pipeClosed: 141,
  interrupted: 130,
} as const;

/** The client is loaded by commands that need it only. */
export const isGranaryError = (error: unknown): error is GranaryError =>
  error instanceof Error && error.name === 'GranaryError';

export function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError) return exitCodes.usage;
  if (error instanceof Failure) return error.exitCode;
  if (!isGranaryError(error)) return exitCodes.failed;
  const { code, status } = error;
  if (code === 'NETWORK_ERROR' || code === 'TIMEOUT' || [502, 503, 504].includes(status)) return exitCodes.unreachable;
  if (status === 401 || status === 403) return exitCodes.notAllowed;
  if (status === 404 || status === 410 || code === 'CURSOR_GONE') return exitCodes.notFound;
  if (status === 409 || status === 412) return exitCodes.conflict;
  if (status === 402 || code === 'PAYMENT_PENDING') return exitCodes.payment;
  return exitCodes.failed;
}

/** Whether the same request may succeed later. */
export const isPassing = (error: unknown): boolean =>
  exitCodeOf(error) === exitCodes.unreachable || (isGranaryError(error) && error.status === 429);

const nextSteps: Partial<Record<ErrorCode, string>> = {
  UNAUTHENTICATED: '`granary login` stores another key; `granary profiles` lists what is stored.',
  FORBIDDEN: 'The key lacks a permission: `granary keys list` shows what each key may do.',
  NETWORK_ERROR: '`granary status` asks whether the service runs; `--url` or `granary login` names another one.',
  TIMEOUT: '`granary status` asks whether the service is well.',
  INVALID_ANSWER: 'The URL may be that of something else: `granary profiles` shows it.',
  APP_NOT_FOUND: '`granary apps list` shows the apps, and `granary apps create` makes one.',
  COLLECTION_NOT_FOUND: '`granary collections list` shows the collections.',
  VIEW_NOT_FOUND: '`granary views list` shows the views.',
  QUERY_NOT_FOUND: '`granary queries list` shows the queries.',
  INDEX_NOT_FOUND: '`granary indexes list` shows the indexes.',
  KEY_NOT_FOUND: '`granary keys list` shows the keys.',
  TASK_NOT_FOUND: '`granary tasks list` shows the tasks of the app.',
  DATASET_NOT_FOUND: '`granary datasets list` shows the data sets.',
  NOT_FOUND: 'The service may be of an older release: `granary status` shows of which.',
  COLLECTION_NOT_EMPTY: '--force deletes its documents too.',
  COLLECTION_IN_USE: '--cascade deletes the views and queries that read it too.',
  INSUFFICIENT_FUNDS: '`granary wallet show` shows what there is.',
  PAYOUT_BELOW_MINIMUM: '`granary payouts settings` shows the smallest payout.',
  FIELD_NOT_INDEXED: '`granary indexes create` makes an index.',
  VIEW_HAS_NO_CHANGES: '`granary views change` with {"changes": true} lets the view be followed.',
  PRECONDITION_FAILED: '`granary get` shows the document as it is now.',
  PAYMENT_REQUIRED: 'An agent key pays for it: set GRANARY_AGENT_KEY.',
  CURSOR_GONE: 'Read what you keep anew: a backup was restored, or the cursor is of another service.',
};

/** The next step after an error, as a sentence; undefined if the message says it. */
export function nextStepOf(error: unknown): string | undefined {
  if (error instanceof UsageError || error instanceof Failure) return error.nextStep;
  if (!isGranaryError(error)) return undefined;
  const { version } = error.details;
  const isNewer = error.code === 'PRECONDITION_FAILED' && typeof version === 'number';
  return isNewer ? `Its present version is ${version}, which \`granary get\` shows.` : nextSteps[error.code];
}
