import listenProblems from './listen-problems.json';

/**
 * A start that cannot succeed, for a reason that the person who starts can mend. The message is for that person: what
 * is wrong, and what to do.
 */
export class StartError extends Error {
  override readonly name: string = 'StartError';
}

/**
 * Something that a start needs, a database or a bucket, is not there now. A service in a process of its own waits for
 * it.
 */
export class NotAvailableError extends StartError {
  override readonly name = 'NotAvailableError';
}

interface SystemError extends NodeJS.ErrnoException {
  address?: string;
  port?: number;
}

/**
 * The text to print when a start has failed; undefined for an error that nobody expected, which belongs in the log
 * with its stack. Errors of the operating system become a sentence here, wherever they were met.
 */
export function explainStart(error: unknown): string | undefined {
  if (error instanceof StartError) return error.message;
  if (!(error instanceof Error)) return undefined;
  const { code = '', syscall, path, address, port } = error as SystemError;
  if (syscall === 'listen' || syscall === 'bind') return explainListen(code, address, port);
  const why = fileProblems[code];
  return why && path !== undefined ? `Cannot use ${path}: ${why}` : undefined;
}

/** The sentence for an address that cannot be listened on; undefined for an error that nobody expected. */
export function explainListen(code: string, address = 'this address', port?: number): string | undefined {
  const why = (listenProblems as Partial<Record<string, string>>)[code];
  const host = address.includes(':') ? `[${address}]` : address;
  return why && `Cannot listen on ${host}${port === undefined ? '' : `:${port}`}: ${why}`;
}

const fileProblems: Partial<Record<string, string>> = {
  EACCES: 'permission denied. Start as the user who owns it, or change its owner or mode.',
  EPERM: 'operation not permitted. Start as the user who owns it, or change its owner.',
  EROFS: 'the file system is read-only. Choose a place that can be written.',
  ENOSPC: 'the disk is full. Free some space and start again.',
  EDQUOT: "this user's disk quota is used up. Free some space and start again.",
  ENOTDIR: 'a part of this path is a file, not a directory. Choose another path.',
  EISDIR: 'it is a directory, and a file is expected.',
  ENOENT: 'there is no such file or directory.',
  ELOOP: 'its symbolic links lead in a circle.',
  ENAMETOOLONG: 'the path is too long. Choose a shorter one.',
  EMFILE: 'too many files are open. Raise the limit of open files (ulimit -n) and start again.',
};
