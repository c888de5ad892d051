import type { App } from '@granary/client';
import { Argument, type Command } from 'commander';
import type { Continuation, NameKind } from '../completion/words.ts';
import type { Shell } from '../completion/scripts.ts';
import { readProfiles } from '../profiles/profile-file.ts';
import { targetOf } from '../profiles/target.ts';
import { connectApp, connectOperator } from '../session/connect.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { apiPath } from '../session/paths.ts';

/** Whoever types waits for it. */
const namesTimeoutMs = 300;

export function addCompletionCommands(program: Command): void {
  program
    .command('completion')
    .description('print what makes a shell complete commands and names')
    .addArgument(new Argument('<shell>').choices(['bash', 'zsh', 'fish'] satisfies Shell[]))
    .action(action(printScript));
  program
    .command('__complete', { hidden: true })
    .argument('[words...]')
    .allowUnknownOption()
    .action(action((call) => complete(program, call)));
}

async function printScript(call: Invocation): Promise<void> {
  const [shell] = call.args<[Shell]>();
  const { completionScripts } = await import('../completion/scripts.ts');
  await call.terminal.write(completionScripts[shell]);
}

/** Prints how a line may go on, a candidate on each line. Names that cannot be had in time are left out. */
async function complete(program: Command, call: Invocation): Promise<void> {
  const [words] = call.args<[string[]]>();
  const { continuationOf } = await import('../completion/words.ts');
  const continuation = continuationOf(program, words);
  const names = continuation.names ? await namesOf(continuation.names, continuation).catch(() => []) : [];
  const typed = words.at(-1) ?? '';
  for (const word of [...continuation.words, ...names.filter((name) => name.startsWith(typed))]) {
    // A shell gives a meaning to other characters; names of the service have none of these.
    if (/^[\w.:@%+=-]+$/.test(word)) await call.terminal.print(word);
  }
}

async function namesOf(kind: NameKind, { options: flags }: Continuation): Promise<string[]> {
  const profiles = await readProfiles();
  if (kind === 'profile') return Object.keys(profiles.profiles);
  const { profile, url, app } = flags;
  const target = targetOf({ profile, url, app }, process.env, profiles);
  const options = { timeoutMs: namesTimeoutMs, retries: 0 };
  if (kind === 'app') {
    if (target.operatorKey === undefined) return target.app === undefined ? [] : [target.app];
    const operator = await connectOperator(target, options);
    const path = apiPath('applications');
    const { applications } = await operator.request<{ applications: Array<{ app_id: string }> }>('GET', path, options);
    return applications.map(({ app_id: id }) => id);
  }
  return listNames(await connectApp(target, options), kind);
}

interface Named {
  name: string;
}

const listOf = { collection: 'collections', index: 'indexes', query: 'queries', view: 'views' } as const;

async function listNames(app: App, kind: Exclude<NameKind, 'app' | 'profile'>): Promise<string[]> {
  const list = listOf[kind];
  const path = apiPath('apps', app.id, list);
  const answer = await app.request<Named[] | Partial<Record<string, Named[]>>>('GET', path);
  const things = Array.isArray(answer) ? answer : (answer[list] ?? []);
  return things.map(({ name }) => name);
}
