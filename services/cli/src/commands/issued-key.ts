import { Failure } from '../failure.ts';
import { storeKey } from '../profiles/stored-keys.ts';
import type { Target } from '../profiles/target.ts';
import type { Invocation } from '../session/invocation.ts';
import { printObject } from '../terminal/table.ts';

/** An answer with a key, which the service shows this once; null where it was shown and did not arrive. */
export interface IssuedKey {
  app_id: string;
  app_key: string | null;
}

/**
 * Prints an answer with its key, and says how to store it unless `isKept` elsewhere. With the name of a profile the key
 * is stored there, and is not printed.
 */
export async function handOver(
  { terminal }: Invocation,
  issued: IssuedKey,
  { url }: Target,
  profile: string | undefined,
  isKept = false,
): Promise<void> {
  const { app_id: app, app_key: appKey, ...others } = issued;
  if (appKey === null) {
    await printObject(terminal, issued);
    throw new Failure('The answer with the key was lost on its way, and a key is shown once', {
      nextStep: `\`granary keys regenerate --app ${app}\` makes another one.`,
    });
  }
  if (profile === undefined) {
    await printObject(terminal, issued);
    terminal.say(`The key is shown this once${isKept ? '' : `: \`granary login --app ${app}\` stores it`}.`);
    return;
  }
  try {
    await storeKey(profile, { url, app, appKey });
  } catch (error) {
    await printObject(terminal, issued);
    throw new Failure(`The key could not be stored, and is printed therefore: ${(error as Error).message}`, {
      nextStep: 'It is shown this once: keep it.',
    });
  }
  await printObject(terminal, { app_id: app, ...others });
  terminal.say(`The profile "${profile}" has the key of ${app}.`);
}
