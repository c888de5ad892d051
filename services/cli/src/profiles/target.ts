import { UsageError } from '../failure.ts';
import type { Profile, Profiles } from './profile-file.ts';

/** Flags of every command that name its target. A key is not among them: other users of the machine see flags. */
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
 * The target by flags, else by the environment, else by the profile. A key of a profile goes to the service and the app
 * of that profile only. Throws UsageError for a profile that is not there, and for a URL that is none.
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
  const agentKey = keySetting(env, 'GRANARY_AGENT_KEY');
  const userKey = keySetting(env, 'GRANARY_USER_KEY');
  if (agentKey !== undefined && userKey !== undefined) {
    throw new UsageError('GRANARY_AGENT_KEY and GRANARY_USER_KEY are two ways to pay', 'Set one of them.');
  }
  return {
    profile: name,
    url,
    app,
    appKey: keySetting(env, 'GRANARY_APP_KEY') ?? (isAppOfProfile ? checkedKey(name, profile.appKey) : undefined),
    operatorKey:
      keySetting(env, 'GRANARY_OPERATOR_KEY') ?? (isUrlOfProfile ? checkedKey(name, profile.operatorKey) : undefined),
    agentKey,
    userKey,
  };
}

/** An empty variable is as one that is not set. */
const setting = (env: NodeJS.ProcessEnv, name: string): string | undefined => env[name] || undefined;

/** Whether a header can carry a text. An error of one that cannot would show it. */
export const isKey = (text: string): boolean => /^[\x21-\x7e]+$/.test(text);

function keySetting(env: NodeJS.ProcessEnv, name: string): string | undefined {
  const key = setting(env, name);
  if (key === undefined || isKey(key)) return key;
  throw new UsageError(`${name} has characters that no key has, such as a blank or a line end`);
}

function checkedKey(profile: string, key: string | undefined): string | undefined {
  if (key === undefined || isKey(key)) return key;
  throw new UsageError(
    `A key of the profile "${profile}" has characters that no key has`,
    'Run `granary login` again.',
  );
}

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
