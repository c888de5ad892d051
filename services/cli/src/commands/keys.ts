import { Option, type Command } from 'commander';
import { exitCodes, Failure, UsageError } from '../failure.ts';
import { assertFree, profilesWith, replaceKey } from '../profiles/stored-keys.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { printList } from '../terminal/table.ts';
import { jsonWith, objectArgument, definitionHelp } from './definition.ts';
import { handOver, type IssuedKey } from './issued-key.ts';
import { allOf } from '../session/listing.ts';
import { choicesParser } from './options.ts';
import { apiPath } from '../session/paths.ts';

interface Key {
  key_id: string;
  name: string;
  permissions: string[];
  pay_limits: object | null;
  last_four: string;
  created_at: string;
}

interface KeyOptions {
  permissions?: string[];
  payLimits?: string;
  saveAs?: string;
}

const permissions = ['Read', 'Write', 'Admin', 'Pay'] as const;

const permissionsOption = () =>
  new Option('--permissions <list>', `what it may do: ${permissions.join(', ')}, with commas between them`).argParser(
    choicesParser(permissions),
  );

export function addKeyCommands(program: Command): void {
  const keys = program.command('keys').description("keys of the app (a key with Admin, or the operator's)");
  keys.command('list').description('list the keys').action(action(list));
  keys
    .command('create')
    .description('make a key, which is shown once')
    .argument('<name>')
    .addOption(permissionsOption().makeOptionMandatory())
    .option('--pay-limits <json>', `bounds of a key with Pay: ${definitionHelp}`)
    .option('--save-as <profile>', 'store it in this profile; it is not printed')
    .action(action<KeyOptions>(create));
  keys
    .command('regenerate')
    .description('replace a key by a new one, also in the profiles that have it')
    .argument('[name]', 'name of the key', 'default')
    .addOption(permissionsOption())
    .option('--pay-limits <json>', `bounds of a key with Pay: ${definitionHelp}`)
    .option('--save-as <profile>', 'store it in this profile; it is not printed')
    .action(action<KeyOptions>(regenerate));
  keys
    .command('delete')
    .description('revoke a key')
    .argument('<key-id>', 'as `granary keys list` shows it')
    .action(action(remove));
}

async function list(call: Invocation): Promise<void> {
  const app = await call.appOrOperator();
  const keys = await allOf<Key>(app, apiPath('apps', app.id, 'keys'), 'keys', { signal: call.signal });
  await printList(call.terminal, keys, {
    key: (key) => key.key_id,
    name: ({ name }) => name,
    permissions: (key) => key.permissions.join(','),
    'ends with': (key) => key.last_four,
    'pay limits': (key) => key.pay_limits && shownLimits(key.pay_limits),
    created: (key) => key.created_at,
  });
}

/** The limits that there are. */
const shownLimits = (limits: object): object =>
  Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== null));

/** The body of a request for a key. */
async function bodyOf(call: Invocation<KeyOptions>, name: string): Promise<string> {
  const { permissions: allowed, payLimits } = call.options;
  const members = { name, permissions: allowed };
  if (payLimits === undefined) return JSON.stringify(members);
  const { text } = await objectArgument(call.terminal, payLimits, '{"spend_allowance": 1000000}');
  return jsonWith(`{"pay_limits":${text}}`, members);
}

async function create(call: Invocation<KeyOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { saveAs } = call.options;
  const body = await bodyOf(call, name);
  const app = await call.appOrOperator();
  const target = await call.target();
  if (saveAs !== undefined) await assertFree(saveAs, target.url);
  const path = apiPath('apps', app.id, 'keys');
  const created = await app.request<IssuedKey>('POST', path, { jsonText: body, signal: call.signal });
  await handOver(call, created, target, saveAs);
}

async function regenerate(call: Invocation<KeyOptions>): Promise<void> {
  const [name] = call.args<[string]>();
  const { saveAs } = call.options;
  const { terminal, signal } = call;
  const body = await bodyOf(call, name);
  const app = await call.appOrOperator();
  const target = await call.target();
  const keys = await allOf<Key>(app, apiPath('apps', app.id, 'keys'), 'keys', { signal });
  const replaced = keys.find((key) => key.name === name);
  if (!replaced && !call.options.permissions) {
    throw new UsageError(`There is no key "${name}" of ${app.id}`, 'A new one needs --permissions.');
  }
  const users = replaced ? await usersOf(app.id, target.url, replaced) : [];
  if (saveAs !== undefined && !users.includes(saveAs)) await assertFree(saveAs, target.url);
  if (replaced) await terminal.confirm(`${warningOf(app.id, replaced)} where it is used.`, name, signal);
  const path = apiPath('apps', app.id, 'regenerate-key');
  const issued = await app.request<IssuedKey>('POST', path, { jsonText: body, signal });
  // The old key is worth nothing any more, and printing fails where nobody reads.
  const kept = await storeInAll(
    users.filter((profile) => profile !== saveAs),
    { url: target.url, app: app.id, appKey: issued.app_key },
    replaced?.last_four ?? '',
  );
  await handOver(call, issued, target, saveAs, kept.names.length > 0);
  for (const profile of kept.names) terminal.say(`The profile "${profile}" had the key, and has the new one.`);
  if (replaced && process.env['GRANARY_APP_KEY']?.endsWith(replaced.last_four)) {
    terminal.say('GRANARY_APP_KEY has the replaced key.');
  }
  if (kept.failure) throw kept.failure;
}

/**
 * Stores a key in each of these profiles that still has the replaced one, told by its last four characters.
 * Resolves to the names of the profiles that have the new key, and to the failure that kept others from it: a key
 * that is not stored has to be printed before its failure is.
 */
async function storeInAll(
  profiles: readonly string[],
  { appKey, ...others }: { url: string; app: string; appKey: string | null },
  lastFour: string,
): Promise<{ names: string[]; failure?: Failure }> {
  const names: string[] = [];
  let failure: Failure | undefined;
  if (appKey === null) return { names };
  for (const name of profiles) {
    try {
      if (await replaceKey(name, { ...others, appKey }, lastFour)) names.push(name);
    } catch (error) {
      const nextStep = `\`granary login --profile ${name}\` stores the new key.`;
      const problem = `The profile "${name}" has the replaced key still: ${(error as Error).message}`;
      failure ??= new Failure(problem, { nextStep });
    }
  }
  return failure ? { names, failure } : { names };
}

const usersOf = (app: string, url: string, { last_four: lastFour }: Key) => profilesWith({ url, app, lastFour });

const warningOf = (app: string, { name, last_four: lastFour }: Key) =>
  `The key "${name}" of ${app}, which ends with ${lastFour}, stops working within a second`;

async function remove(call: Invocation): Promise<void> {
  const [id] = call.args<[string]>();
  const { terminal, signal } = call;
  const app = await call.appOrOperator();
  const keys = await allOf<Key>(app, apiPath('apps', app.id, 'keys'), 'keys', { signal });
  const key = keys.find((each) => each.key_id === id);
  if (key) {
    const { url } = await call.target();
    const users = await usersOf(app.id, url, key);
    const use = users.length > 0 ? `; the profile ${users.map((each) => `"${each}"`).join(', ')} has it` : '';
    await terminal.confirm(`${warningOf(app.id, key)}${use}.`, id, signal);
  } else {
    const isName = keys.some(({ name }) => name === id);
    const problem = isName ? `"${id}" is the name of a key` : `There is no key "${id}" of ${app.id}`;
    const nextStep = 'A key is revoked by its id, which `granary keys list` shows.';
    throw new Failure(problem, { nextStep, exitCode: exitCodes.notFound });
  }
  await app.request('DELETE', apiPath('apps', app.id, 'keys', id), { signal });
  terminal.say(`The key ${id} is revoked.`);
}
