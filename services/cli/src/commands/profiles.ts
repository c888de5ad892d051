import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { exitCodes, Failure, isGranaryError, UsageError } from '../failure.ts';
import { changeProfiles, profileFolder, readProfiles, type Profile, type Profiles } from '../profiles/profile-file.ts';
import { checkedUrl, defaultUrl, isKey, type Target } from '../profiles/target.ts';
import { connectApp, connectOperator } from '../session/connect.ts';
import { action, type GlobalOptions, type Invocation } from '../session/invocation.ts';
import { apiPath } from '../session/paths.ts';
import { printList } from '../terminal/table.ts';

interface LoginOptions {
  operator?: boolean;
  keyFile?: string;
  keyStdin?: boolean;
}

export function addProfileCommands(program: Command): void {
  program
    .command('login')
    .description('store the service, an app and its key under a name')
    .option('--operator', "store the operator's key, which makes and deletes apps")
    .option('--key-file <file>', 'read the key from this file')
    .option('--key-stdin', 'read the key from stdin')
    .action(action<LoginOptions>(login));
  program.command('logout').description('forget a profile with its keys').action(action(logout));
  program.command('profiles').description('list what is stored').action(action(list));
  program.command('use').description('use this profile where none is named').argument('<profile>').action(action(use));
}

const profileName = ({ profile }: GlobalOptions, { current }: Profiles): string =>
  profile ?? (process.env['GRANARY_PROFILE'] || current);

/** Asks for what flags and the environment do not say, tries the key, and stores it. */
async function login(call: Invocation<LoginOptions>): Promise<void> {
  const { options, terminal, signal } = call;
  const stored = await readProfiles();
  const name = profileName(options, stored);
  const before: Partial<Profile> = stored.profiles[name] ?? {};
  const ask = async (question: string, fallback: string | undefined) => {
    if (!terminal.isInteractive) return fallback;
    const answer = await terminal.ask(`${question}${fallback === undefined ? '' : ` [${fallback}]`}: `, { signal });
    return answer === '' ? fallback : answer;
  };
  const env = process.env;
  const url = checkedUrl(
    options.url ?? (env['GRANARY_URL'] || (await ask('URL of the service', before.url ?? defaultUrl)) || defaultUrl),
  );
  assertSameService(name, before, url);
  const namedApp = options.app ?? (env['GRANARY_APP'] || undefined);
  // The operator's key is stored beside an app whose key is there.
  const app = options.operator
    ? before.appKey === undefined
      ? (namedApp ?? before.app)
      : before.app
    : (namedApp ?? (await ask('App', before.app)));
  if (!options.operator && !app) throw new UsageError('No app is named', 'Name it by --app.');
  const key = await readKey(call);
  const keys = options.operator ? { operatorKey: key } : { appKey: key };
  await tryKey(call, { ...before, url, app, ...keys }, options.operator === true);
  await changeProfiles((present) => {
    const now: Partial<Profile> = present.profiles[name] ?? {};
    assertSameService(name, now, url);
    const hasApp = options.operator && now.appKey !== undefined;
    present.profiles[name] = { ...now, url, app: hasApp ? now.app : app, ...keys };
    present.current = name;
  });
  const what = options.operator ? "the operator's key" : `the key of ${app}`;
  terminal.say(`The profile "${name}" has ${what} at ${url}. It is in ${profileFolder()}, for you alone.`);
}

/** Throws UsageError where a profile has keys of another service, which would get them. */
function assertSameService(name: string, { url: stored, appKey, operatorKey }: Partial<Profile>, url: string): void {
  if (stored === undefined || stored === url || (appKey ?? operatorKey) === undefined) return;
  const nextStep = `Name another one by --profile, or forget it by \`granary logout --profile ${name}\`.`;
  throw new UsageError(`The profile "${name}" has keys of ${stored}`, nextStep);
}

async function readKey({ options, terminal, signal }: Invocation<LoginOptions>): Promise<string> {
  const fromEnvironment = process.env[options.operator ? 'GRANARY_OPERATOR_KEY' : 'GRANARY_APP_KEY'];
  let key: string;
  if (options.keyFile !== undefined) {
    key = await readFile(options.keyFile, 'utf8').catch((error: Error) => {
      throw new UsageError(`The key cannot be read: ${error.message}`);
    });
  } else if (options.keyStdin) key = await terminal.readAll('The key');
  else if (fromEnvironment) key = fromEnvironment;
  else if (terminal.isInteractive) key = await terminal.ask('Key (not shown): ', { isSecret: true, signal });
  else throw new UsageError('There is no key', 'Give it by --key-stdin, --key-file or the environment.');
  if (!isKey(key.trim())) throw new UsageError('The key is empty, or has characters that no key has');
  return key.trim();
}

const noTarget = {
  profile: '',
  app: undefined,
  appKey: undefined,
  operatorKey: undefined,
  agentKey: undefined,
  userKey: undefined,
};

/** Throws where the service does not take the key: a profile that is stored works. */
async function tryKey({ signal }: Invocation, profile: Profile, isOperator: boolean): Promise<void> {
  const target: Target = { ...noTarget, ...profile };
  const service = await (isOperator ? connectOperator(target) : connectApp(target));
  const path = isOperator ? apiPath('applications') : apiPath('apps', profile.app!, 'health');
  try {
    await service.request('GET', path, { query: isOperator ? { limit: 1 } : {}, signal });
  } catch (error) {
    if (!isGranaryError(error)) throw error;
    // A key that may only write is a key, too.
    if (error.code === 'FORBIDDEN') return;
    if (error.code !== 'UNAUTHENTICATED') throw error;
    const owner = isOperator ? 'the operator' : `the app "${profile.app}"`;
    throw new Failure(`The service does not know this key of ${owner}: nothing was stored`, {
      exitCode: exitCodes.notAllowed,
    });
  }
}

async function logout({ options, terminal }: Invocation): Promise<void> {
  const stored = await readProfiles();
  const name = profileName(options, stored);
  if (!stored.profiles[name]) throw new UsageError(`There is no profile "${name}"`, '`granary profiles` lists them.');
  await changeProfiles((present) => {
    delete present.profiles[name];
    if (present.current === name) present.current = 'default';
  });
  terminal.say(`The profile "${name}" is forgotten. Its keys still work: \`granary keys delete\` revokes a key.`);
}

async function list({ terminal }: Invocation): Promise<void> {
  const { current, profiles } = await readProfiles();
  const items = Object.entries(profiles).map(([name, { url, app, appKey, operatorKey }]) => ({
    name,
    current: name === current,
    url,
    app,
    app_key: shownKey(appKey),
    operator_key: shownKey(operatorKey),
  }));
  await printList(terminal, items, {
    profile: ({ name }) => name,
    current: (item) => (item.current ? '*' : ''),
    url: ({ url }) => url,
    app: ({ app }) => app,
    'app key': (item) => item.app_key,
    'operator key': (item) => item.operator_key,
  });
}

/** Its last four characters, as lists of keys show them. */
const shownKey = (key: string | undefined): string | undefined => key && `…${key.slice(-4)}`;

async function use(call: Invocation): Promise<void> {
  const [name] = call.args<[string]>();
  let url: string | undefined;
  await changeProfiles((present) => {
    url = present.profiles[name]?.url;
    if (url === undefined) throw new UsageError(`There is no profile "${name}"`, '`granary profiles` lists them.');
    present.current = name;
  });
  call.terminal.say(`"${name}" is used now: ${url}`);
}
