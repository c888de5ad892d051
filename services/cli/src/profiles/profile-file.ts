import { chmod, mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Failure } from '../failure.ts';
import { createFile } from '../replace-file.ts';

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

/** The profiles as one command has stored them. The file with the highest number is the one that counts. */
interface Revision {
  /** 0 where nothing is stored, or by a version that had one file. */
  number: number;
  profiles: Profiles;
}

export const profileFolder = (env: NodeJS.ProcessEnv = process.env): string =>
  join(env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'granary');

const fileOf = (number: number): string =>
  join(profileFolder(), number === 0 ? 'profiles.json' : `profiles.${number}.json`);

/** How often a command tries again because others change the profiles at the same time. */
const attemptsMax = 1_000;

/** The profiles of the user; none where there is no file. Throws Failure where the file is none of ours. */
export async function readProfiles(): Promise<Profiles> {
  return (await readRevision()).profiles;
}

async function readRevision(): Promise<Revision> {
  for (let attempts = 0; attempts < attemptsMax; attempts += 1) {
    const number = (await storedNumbers()).at(-1);
    if (number === undefined) return { number: 0, profiles: { current: 'default', profiles: noProfiles() } };
    const profiles = await readProfileFile(fileOf(number));
    if (profiles) return { number, profiles };
  }
  throw tooManyChanges();
}

/** The numbers of the files, ascending. */
async function storedNumbers(): Promise<number[]> {
  const names = await readdir(profileFolder()).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw new Failure(`The profiles cannot be read: ${error.message}`);
  });
  const numbers = names.flatMap((name) => {
    const [isOurs, number = 0] = /^profiles\.(?:([1-9]\d{0,14})\.)?json$/.exec(name) ?? [];
    return isOurs ? [Number(number)] : [];
  });
  return numbers.sort((one, other) => one - other);
}

/** Resolves to undefined where the file is gone, because another command has stored a later one. */
async function readProfileFile(file: string): Promise<Profiles | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new Failure(`The profiles cannot be read: ${(error as Error).message}`);
  }
  const profiles = parsedProfiles(text);
  if (!profiles) throw new Failure(`${file} is damaged`, { nextStep: 'Remove it, and run `granary login` again.' });
  await closeToOthers(file);
  return profiles;
}

/** A file that is mounted for reading only keeps its mode, and one that is gone meanwhile needs none. */
async function closeToOthers(file: string): Promise<void> {
  if (process.platform === 'win32') return;
  const isOpen = await stat(file).then(
    ({ mode }) => (mode & 0o077) !== 0,
    () => false,
  );
  if (isOpen) await chmod(file, 0o600).catch(() => {});
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

/**
 * Changes what is stored at this moment. `change` is called again where another command has stored something meanwhile,
 * so that neither loses what the other stores. There is no lock, which a command that is killed would leave behind.
 */
export async function changeProfiles(change: (profiles: Profiles) => void): Promise<void> {
  await mkdir(profileFolder(), { recursive: true, mode: 0o700 });
  for (let attempts = 0; attempts < attemptsMax; attempts += 1) {
    const { number, profiles } = await readRevision();
    change(profiles);
    if (await isStored({ number: number + 1, profiles })) return;
  }
  throw tooManyChanges();
}

/** Stores the profiles for the user alone, unless another command has stored others since they were read. */
async function isStored({ number, profiles }: Revision): Promise<boolean> {
  if (!(await createFile(fileOf(number), `${JSON.stringify(profiles, null, 2)}\n`, 0o600))) return false;
  const numbers = await storedNumbers();
  // The number was free again because its file was removed after a later one was stored.
  if (numbers.some((other) => other > number)) return false;
  for (const earlier of numbers.filter((other) => other < number)) await rm(fileOf(earlier), { force: true });
  return true;
}

const tooManyChanges = () =>
  new Failure(`Other commands change the profiles in ${profileFolder()} all the time`, {
    nextStep: 'Try again when they have ended.',
  });
