import { pino, type Logger } from 'pino';
import { logOutput } from './log-output';

export type { Logger };

/**
 * The log of one service: JSON lines on standard output, which never hold the service up, see log-output.ts. Secrets
 * and bodies are never passed to it; the paths below are a second line of defence for headers.
 */
export function createLogger(service: string, level: string): Logger {
  return createWith({ service }, level);
}

/** The log of a process with several services, each of which gets a child that names it. */
export function createRootLogger(level: string): Logger {
  return createWith({}, level);
}

function createWith(base: Record<string, string>, level: string): Logger {
  const options = {
    level,
    base,
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: [
      '*.authorization',
      '*["x-granary-token"]',
      '*["x-granary-grant"]',
      '*["x-app-key"]',
      '*["x-api-key"]',
      '*["x-operator-key"]',
      '*["x-agent-key"]',
      '*["x-user-key"]',
    ],
  };
  return pino(options, logOutput(base['service'] ?? 'granary'));
}
