import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { messageOf } from './errors.mjs';
import { installWhenNeeded } from './install.mjs';
import { checkNode, userDirectory } from './launch.mjs';
import { transpile } from './transpile.mjs';

// The command line of this checkout, as `npx granary` runs that of the package. What is said here is no data.
const root = path.dirname(import.meta.dirname);
const say = (/** @type {string} */ line) => console.error(line);
try {
  checkNode();
  await installWhenNeeded(root, say, 'run');
  await transpile(root, say, 'services/cli');
} catch (error) {
  console.error(messageOf(error));
  process.exit(1);
}
process.chdir(userDirectory('granary'));
await import(pathToFileURL(path.join(root, 'services/cli/dist/main.js')).href);
