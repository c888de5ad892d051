import { Command, Option } from 'commander';
import { addAppCommands } from './commands/apps.ts';
import { addCollectionCommands } from './commands/collections.ts';
import { addCompletionCommands } from './commands/completion.ts';
import { addDatasetCommands } from './commands/datasets.ts';
import { addDescriptionCommands } from './commands/descriptions.ts';
import { addDevCommand } from './commands/dev.ts';
import { addDocumentCommands } from './commands/documents.ts';
import { addFileCommands } from './commands/files.ts';
import { addIndexCommands } from './commands/indexes.ts';
import { addKeyCommands } from './commands/keys.ts';
import { addPayoutCommands } from './commands/payouts.ts';
import { addProfileCommands } from './commands/profiles.ts';
import { addQueryCommands } from './commands/queries.ts';
import { addQueryPlanCommands } from './commands/query-plans.ts';
import { addQueryCommand } from './commands/query.ts';
import { addStatusCommand } from './commands/status.ts';
import { addTailCommand } from './commands/tail.ts';
import { addTaskCommands } from './commands/tasks.ts';
import { addTransferCommands } from './commands/transfers.ts';
import { addTypesCommand } from './commands/types.ts';
import { addVerifyCommand } from './commands/verify.ts';
import { addViewCommands } from './commands/views.ts';
import { addWalletCommands } from './commands/wallet.ts';
import { version } from './session/version.ts';

/** The command line with all its commands. What a command does is loaded when it is called. */
export function buildProgram(): Command {
  const program = new Command('granary')
    .description(
      'Granary, an application data service, from the command line. The image has a program of the same name, which runs the services.',
    )
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
  addGroups(program);
  for (const command of commandsBelow(program)) command.copyInheritedSettings(program);
  return program;
}

function addGroups(program: Command): void {
  program.commandsGroup('Service and keys:');
  addProfileCommands(program);
  addStatusCommand(program);
  addAppCommands(program);
  addKeyCommands(program);
  program.commandsGroup('Documents:');
  addDocumentCommands(program);
  addQueryCommand(program);
  addTransferCommands(program);
  addTailCommand(program);
  addVerifyCommand(program);
  program.commandsGroup('Definitions:');
  addCollectionCommands(program);
  addIndexCommands(program);
  addQueryPlanCommands(program);
  addViewCommands(program);
  addQueryCommands(program);
  addDatasetCommands(program);
  program.commandsGroup('Files, tasks and money:');
  addFileCommands(program);
  addTaskCommands(program);
  addWalletCommands(program);
  addPayoutCommands(program);
  program.commandsGroup('Development:');
  addTypesCommand(program);
  addDescriptionCommands(program);
  addDevCommand(program);
  program.commandsGroup('This program:');
  addCompletionCommands(program);
}

/** All commands below one. */
export function* commandsBelow(command: Command): Generator<Command> {
  for (const each of command.commands) {
    yield each;
    yield* commandsBelow(each);
  }
}
