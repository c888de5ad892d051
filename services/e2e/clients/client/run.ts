import { checks, type Target } from './checks.js';

/** What became of a check: the message of its error where it has failed. */
export interface CheckResult {
  name: string;
  error?: string;
  /** Of a GranaryError. */
  code?: string;
}

const codeOf = (code: string | undefined) => (code === undefined ? {} : { code });

/** Runs all checks, each on an app of its own. */
export async function runChecks(targets: readonly Target[]): Promise<CheckResult[]> {
  const results: CheckResult[] = [];
  for (const [place, [name, check]] of Object.entries(checks).entries()) {
    try {
      await check(targets[place]!);
      results.push({ name });
    } catch (error) {
      const { stack, code, cause } = error as Error & { code?: string };
      results.push({
        name,
        error: String(stack ?? error),
        ...codeOf(code ?? (cause as { code?: string } | undefined)?.code),
      });
    }
  }
  return results;
}
