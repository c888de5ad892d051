import { chmod, mkdir, readFile, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { Failure } from '../failure.ts';
import { replaceFile } from '../replace-file.ts';

/** A service with an app and keys, under a name. */
export interface Profile {
  url: string;
  app?: string | undefined;
  appKey?: string | undefined;
  operatorKey?: string | undefined;
}

export interface Profiles {
  /** The profile that is used where none is named. */
  current: string;
  profiles: Record<string, Profile>;
}

export const profilePath = (env: NodeJS.ProcessEnv = process.env): string =>
  join(env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'granary', 'profiles.json');

/** The profiles of the user; none where there is no file. Throws Failure where the file is none of ours. */
export async function readProfiles(file = profilePath()): Promise<Profiles> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { current: 'default', profiles: noProfiles() };
    throw new Failure(`The profiles cannot be read: ${(error as Error).message}`);
  }
  const profiles = parsedProfiles(text);
  if (!profiles) throw new Failure(`${file} is damaged`, { nextStep: 'Remove it, and run `granary login` again.' });
  // A file that is mounted for reading only keeps its mode.
  if (process.platform !== 'win32' && ((await stat(file)).mode & 0o077) !== 0) await chmod(file, 0o600).catch(() => {});
  return profiles;
}

/** Names are chosen by users: a profile may be called as a member of every object is. */
const noProfiles = (): Record<string, Profile> => Object.create(null) as Record<string, Profile>;

function parsedProfiles(text: string): Profiles | undefined {
  try {
    const { current, profiles } = JSON.parse(text) as Partial<Profiles>;
    const isWhole =
      typeof current === 'string' &&
      typeof profiles === 'object' &&
      Object.values(profiles).every((profile) => typeof profile?.url === 'string');
    return isWhole ? { current, profiles: Object.assign(noProfiles(), profiles) } : undefined;
  } catch {
    return undefined;
  }
}

/** Changes what is stored at this moment: another command may have stored something while this one asked. */
export async function changeProfiles(change: (profiles: Profiles) => void): Promise<void> {
  const profiles = await readProfiles();
  change(profiles);
  await writeProfiles(profiles);
}

/** Stores the profiles, for the user alone. */
async function writeProfiles(profiles: Profiles, file = profilePath()): Promise<void> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  await replaceFile(file, `${JSON.stringify(profiles, null, 2)}\n`, 0o600);
}
