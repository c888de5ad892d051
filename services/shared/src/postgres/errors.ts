import { ServiceError, unavailable } from '../errors';
import { storageFull } from '../health/storage-monitor';

interface PostgresError extends Error {
  code: string;
  constraint?: string;
  table?: string;
  detail?: string;
}

// This does not use instanceof: errors of Node's own come from another realm where code runs in a context of its own.
const isObject = (error: unknown): error is Record<string, unknown> => typeof error === 'object' && error !== null;

/**
 * COMMIT was sent and no answer came: the transaction may be there or not. Whoever gets this must look for what
 * it wrote before doing anything again.
 */
export class CommitUnknownError extends Error {
  override readonly name = 'CommitUnknownError';
  constructor(cause: unknown) {
    super('the outcome of a commit is not known', { cause });
  }
}

/** The SQLSTATE of an error that Postgres sent, undefined for any other error. */
export function sqlState(error: unknown): string | undefined {
  if (!isObject(error) || !('severity' in error)) return undefined;
  return typeof error['code'] === 'string' && error['code'].length === 5 ? error['code'] : undefined;
}

/** Whether a statement named a table, column or schema that does not exist any more. */
export const isGone = (error: unknown): boolean => ['42P01', '42703', '3F000'].includes(sqlState(error) ?? '');

/** The constraint that a write violated, if that is what the error says. */
export function violatedConstraint(error: unknown): string | undefined {
  return sqlState(error)?.startsWith('23') ? (error as PostgresError).constraint : undefined;
}

const connectionErrors = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ECONNABORTED',
]);

/** Whether the connection was lost or refused, so that nothing is known about what was sent last. */
export function isConnectionError(error: unknown): boolean {
  const state = sqlState(error);
  if (state !== undefined) return state.startsWith('08') || state.startsWith('57P');
  if (!isObject(error)) return false;
  if (connectionErrors.has(String(error['code']))) return true;
  return /^(Connection terminated|Client has encountered a connection error|Connection ended|timeout exceeded when trying to connect|Client was closed|Cannot use a pool after calling end)/.test(
    String(error['message']),
  );
}

/** Whether Postgres is not there for now: not reached, not yet or no longer serving, or without a free connection. */
export const isUnreachable = (error: unknown): boolean => isConnectionError(error) || sqlState(error) === '53300';

/** Whether there was no answer in time: no free connection, or a statement that was cancelled for its time. */
export function isTimeout(error: unknown): boolean {
  if (sqlState(error) !== undefined) return sqlState(error) === '57014';
  return isObject(error) && /^timeout exceeded when trying to connect/.test(String(error['message']));
}

/** Failures that go away by themselves when the same transaction is run again. */
export function isRetryable(error: unknown): boolean {
  return ['40001', '40P01', '55P03'].includes(sqlState(error) ?? '');
}

/**
 * The one SQLSTATE table: what an error of Postgres means to a caller, or undefined when the error is not one of
 * Postgres or nothing a caller could act on (which is then an INTERNAL error, that is: a bug).
 */
export function fromPostgres(error: unknown): ServiceError | undefined {
  if (error instanceof CommitUnknownError) {
    return unavailable('It is unknown whether the change was made; check before you retry it', error);
  }
  if (isConnectionError(error)) return unavailable('The database cannot be reached', error);
  const state = sqlState(error);
  if (state === undefined) return undefined;
  switch (state) {
    case '57014': // query_canceled: the statement timeout
      return new ServiceError('DEADLINE_EXCEEDED', 'DEADLINE_EXCEEDED', 'The database took too long', { cause: error });
    case '40001': // serialization_failure
    case '40P01': // deadlock_detected
    case '55P03': // lock_not_available
      return unavailable('The database is busy, try again', error);
    case '25006': // read_only_sql_transaction: the primary has just become a standby
    case '25P03': // idle_in_transaction_session_timeout
      return unavailable('The database is busy, try again', error);
    case '42P01': // undefined_table
    case '42703': // undefined_column
    case '3F000': // invalid_schema_name
      // Names come from the catalog: what was looked up a moment ago has just been deleted, and the next look knows.
      return unavailable('The collection has just changed, try again', error);
    case '53100': // disk_full
      return storageFull('database', error);
    case '53200': // out_of_memory
    case '53300': // too_many_connections
    case '53400':
      return unavailable('The database is out of a resource', error);
    case '22P05': // untranslatable_character
    case '22021': // character_not_in_repertoire
    case '22003': // numeric_value_out_of_range
      return new ServiceError('INVALID_ARGUMENT', 'VALIDATION_FAILED', 'A value cannot be stored or compared', {
        cause: error,
      });
    case '2201B': // invalid_regular_expression: ours are valid, so it is too complex
    case '54000': // program_limit_exceeded
    case '54001': // statement_too_complex
    case '54011': // too_many_columns
      return new ServiceError('INVALID_ARGUMENT', 'LIMIT_EXCEEDED', 'The request is too complex', { cause: error });
    default:
      return undefined;
  }
}
