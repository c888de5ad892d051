import { UsageError } from '../failure.ts';
import { changeProfiles, readProfiles, type Profile } from './profile-file.ts';

/** A key of an app of a service. */
export interface AppKey {
  url: string;
  app: string;
  appKey: string;
}

/**
 * Throws UsageError where a profile is of another service, or has a key of an app, which storing another one would
 * lose. `replaced` is an app whose key is worth nothing any more.
 */
export async function assertFree(name: string, url: string, replaced?: string): Promise<void> {
  const profile = (await readProfiles()).profiles[name];
  if (!profile) return;
  const nextStep = 'Store the key in another profile by --save-as.';
  if (profile.url !== url) throw new UsageError(`The profile "${name}" is one of ${profile.url}`, nextStep);
  if (profile.appKey === undefined || profile.app === replaced) return;
  throw new UsageError(`The profile "${name}" has a key of ${profile.app} already`, nextStep);
}

/** Stores a key in a profile, with what else is there. */
export async function storeKey(name: string, key: AppKey): Promise<void> {
  await changeProfiles(({ profiles }) => {
    profiles[name] = { ...profiles[name], ...key };
  });
}

/**
 * Stores a key in a profile in the place of one of the same app that ends so. Resolves to false where the profile does
 * not have it any more, and leaves it as it is.
 */
export async function replaceKey(name: string, key: AppKey, lastFour: string): Promise<boolean> {
  let isReplaced = false;
  await changeProfiles(({ profiles }) => {
    const profile = profiles[name];
    isReplaced = profile !== undefined && hasKey(profile, { ...key, lastFour });
    if (isReplaced) profiles[name] = { ...profile, ...key };
  });
  return isReplaced;
}

const hasKey = (profile: Profile, { url, app, lastFour }: { url: string; app: string; lastFour: string }): boolean =>
  profile.url === url && profile.app === app && profile.appKey?.slice(-4) === lastFour;

/** The names of the profiles with the key of an app that ends so. */
export async function profilesWith(key: { url: string; app: string; lastFour: string }) {
  const { profiles } = await readProfiles();
  return Object.keys(profiles).filter((name) => hasKey(profiles[name]!, key));
}

/** Takes an app with its key from all profiles. Resolves to their names. */
export async function forgetApp(url: string, app: string): Promise<string[]> {
  let names: string[] = [];
  await changeProfiles(({ profiles }) => {
    names = [];
    for (const [name, { app: stored, appKey: _key, ...others }] of Object.entries(profiles)) {
      if (others.url !== url || stored !== app) continue;
      profiles[name] = others;
      names.push(name);
    }
  });
  return names;
}
