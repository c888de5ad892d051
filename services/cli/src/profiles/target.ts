import { UsageError } from '../failure.ts';
import type { Profile, Profiles } from './profile-file.ts';

/** What every command takes, from flags. Keys are no flags: other users of the machine see those. */
export interface TargetFlags {
  profile?: string | undefined;
  url?: string | undefined;
  app?: string | undefined;
}

/** The service, the app and the keys that a command works with. */
export interface Target {
  profile: string;
  url: string;
  app: string | undefined;
  appKey: string | undefined;
  operatorKey: string | undefined;
  agentKey: string | undefined;
  userKey: string | undefined;
}

export const defaultUrl = 'http://127.0.0.1:8080';

/**
 * What flags say, else the environment, else the profile. A key of a profile goes to the service and the app of that
 * profile only. Throws UsageError for a profile that is not there, and for a URL that is none.
 */
export function targetOf(flags: TargetFlags, env: NodeJS.ProcessEnv, { current, profiles }: Profiles): Target {
  const named = flags.profile ?? setting(env, 'GRANARY_PROFILE');
  const name = named ?? current;
  const profile: Partial<Profile> | undefined = profiles[name];
  if (named !== undefined && !profile) {
    throw new UsageError(`There is no profile "${named}"`, '`granary profiles` lists them, `granary login` makes one.');
  }
  const url = checkedUrl(flags.url ?? setting(env, 'GRANARY_URL') ?? profile?.url ?? defaultUrl);
  const app = flags.app ?? setting(env, 'GRANARY_APP') ?? profile?.app;
  const isUrlOfProfile = profile?.url !== undefined && checkedUrl(profile.url) === url;
  const isAppOfProfile = isUrlOfProfile && profile.app === app;
  return {
    profile: name,
    url,
    app,
    appKey: setting(env, 'GRANARY_APP_KEY') ?? (isAppOfProfile ? profile.appKey : undefined),
    operatorKey: setting(env, 'GRANARY_OPERATOR_KEY') ?? (isUrlOfProfile ? profile.operatorKey : undefined),
    agentKey: setting(env, 'GRANARY_AGENT_KEY'),
    userKey: setting(env, 'GRANARY_USER_KEY'),
  };
}

/** An empty variable is as one that is not set. */
const setting = (env: NodeJS.ProcessEnv, name: string): string | undefined => env[name] || undefined;

/** A URL in one spelling. Throws UsageError. */
export function checkedUrl(text: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new UsageError(`"${text}" is not a URL`, `It is written as ${defaultUrl}.`);
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new UsageError(`"${text}" is not a URL of HTTP`, `It is written as ${defaultUrl}.`);
  }
  if (url.username !== '' || url.password !== '')
    throw new UsageError('The URL has a password in it, which is not used');
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '');
}
