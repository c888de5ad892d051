// The program of the image: `granary <service> [migrate]`, or a tool. Everything else is in environment variables.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.dirname(fileURLToPath(import.meta.url));
const services = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'];

const operator = 'services/operator/dist/main.js';

/**
 * The file of each tool, its sentence in the list, and the arguments that come before those of the caller.
 * @type {Record<string, [file: string, does: string, ...first: string[]]>}
 */
const tools = {
  topics: [operator, 'creates the topics that are missing in Kafka', 'topics'],
  'dead-letters': [operator, 'lists and replays events that a consumer could not apply', 'dead-letters'],
  seed: ['services/finance/dist/main.js', 'makes the seed of the wallets in KEY_FILE, or prints one', 'seed'],
  payouts: [operator, 'shows payouts that wait for a person', 'payouts'],
  'ledger-verify': [operator, 'derives every balance from the entries of the ledger', 'ledger-verify'],
  smoke: ['smoke.mjs', 'stores and reads a document through a gateway'],
};

const usage = `granary <service> [migrate] | <tool> [options]

This is the program inside the image, which runs Granary. Users of the API have another one of the same name: the command
line that the npm package \`granary\` installs.

Services: ${services.join(', ')}. With \`migrate\` the schema of its database is made or renewed, and the program ends.

Tools:
${Object.entries(tools)
  .map(([name, [, does]]) => `  ${name.padEnd(14)} ${does}`)
  .join('\n')}
`;

/**
 * The file of a command, and the arguments that it begins with; undefined if there is no such command.
 * @param {string} command
 * @returns {[file: string, ...first: string[]] | undefined}
 */
function find(command) {
  if (services.includes(command)) return [`services/${command}/dist/main.js`];
  const tool = Object.hasOwn(tools, command) ? tools[command] : undefined;
  if (!tool) return undefined;
  const [file, , ...first] = tool;
  return [file, ...first];
}

const [command = '--help', ...args] = process.argv.slice(2);
const found = find(command);
if (found) {
  const [file, ...first] = found;
  const program = path.join(root, file);
  if (!existsSync(program)) throw new Error(`${program} is missing: this image is not complete`);
  process.argv = [process.execPath, program, ...first, ...args];
  await import(pathToFileURL(program).href);
} else if (command === '--help' || command === '-h') {
  console.log(usage);
} else {
  console.error(`There is no command ${command}.\n\n${usage}`);
  process.exitCode = 2;
}
