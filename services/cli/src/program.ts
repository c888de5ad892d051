import { Command, Option } from 'commander';
import { addCollectionCommands } from './commands/collections.ts';
import { addCompletionCommands } from './commands/completion.ts';
import { addDocumentCommands } from './commands/documents.ts';
import { addProfileCommands } from './commands/profiles.ts';
import { addQueryCommand } from './commands/query.ts';
import { addTailCommand } from './commands/tail.ts';
import { addVerifyCommand } from './commands/verify.ts';
import { version } from './session/version.ts';

/** The command line with all its commands. What a command does is loaded when it is called. */
export function buildProgram(): Command {
  const program = new Command('granary')
    .description('Granary, an application data service, from the command line.')
    .version(version)
    .option('--profile <name>', 'use this profile (GRANARY_PROFILE)')
    .option('--url <url>', 'the service (GRANARY_URL)')
    .option('--app <id>', 'the app (GRANARY_APP)')
    .option('--json', 'print JSON, for programs')
    .option('-q, --quiet', 'print data and errors only')
    .option('-y, --yes', 'do not ask before something is destroyed')
    .option('--no-color', 'print without colours (NO_COLOR)')
    .addOption(new Option('--debug', 'tell each request and its answer, without keys'))
    .addHelpText(
      'after',
      '\nKeys come from `granary login` or the environment (GRANARY_APP_KEY, GRANARY_OPERATOR_KEY), and are never flags.',
    )
    .showSuggestionAfterError()
    .exitOverride();
  program.configureHelp({ showGlobalOptions: false, sortSubcommands: false });
  addProfileCommands(program);
  addCollectionCommands(program);
  addDocumentCommands(program);
  addQueryCommand(program);
  addTailCommand(program);
  addVerifyCommand(program);
  addCompletionCommands(program);
  for (const command of commandsBelow(program)) command.copyInheritedSettings(program);
  return program;
}

/** All commands below one. */
export function* commandsBelow(command: Command): Generator<Command> {
  for (const each of command.commands) {
    yield each;
    yield* commandsBelow(each);
  }
}
