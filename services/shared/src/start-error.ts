/**
 * A start that cannot succeed, for a reason that the person who starts can mend. The message is for that person: what
 * is wrong, and what to do.
 */
export class StartError extends Error {
  override readonly name: string = 'StartError';
}

/** What a start needs, a database or a bucket, is not there now. A service in a process of its own waits for it. */
export class NotAvailableError extends StartError {
  override readonly name = 'NotAvailableError';
}

interface SystemError extends NodeJS.ErrnoException {
  address?: string;
  port?: number;
}

/**
 * What to print when a start has failed; undefined for an error that nobody expected, which belongs into the log with
 * its stack. Errors of the operating system become a sentence here, wherever they were met.
 */
export function explainStart(error: unknown): string | undefined {
  if (error instanceof StartError) return error.message;
  if (!(error instanceof Error)) return undefined;
  const { code = '', syscall, path, address, port } = error as SystemError;
  if (syscall === 'listen' || syscall === 'bind') {
    const why = listenProblems[code];
    return why && `Cannot listen on ${address ?? 'this address'}${port === undefined ? '' : `:${port}`}: ${why}`;
  }
  const why = fileProblems[code];
  return why && path !== undefined ? `Cannot use ${path}: ${why}` : undefined;
}

export const listenProblems: Partial<Record<string, string>> = {
  EADDRINUSE:
    'the port is taken. Stop the program that has it, or choose another port with --port (PORT; 0 for any free one).',
  EACCES: 'ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose a port from 1024 up, behind a proxy.',
  EADDRNOTAVAIL: 'this machine has no such address. Use one of its own, or 0.0.0.0 for all of them.',
  ENOTFOUND: 'this name has no address. Use an address of this machine, or 0.0.0.0 for all of them.',
  EAI_AGAIN: 'this name cannot be looked up. Use an address of this machine, or 0.0.0.0 for all of them.',
};

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
