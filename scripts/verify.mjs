import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkNode, prepare, readFlags } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Checks the hash chain of an app, over the HTTP API or from an export, and names the first height that does not fit.

  npm run verify -- --app <app_id> --key <key> [--url <url>] [--export <file>] [--known <height>:<hash>]
  npm run verify -- --from <file> [--known <height>:<hash>]

  --app <app_id>            the app                                              (GRANARY_APP)
  --key <key>               a key of it with Read                                (GRANARY_KEY)
  --url <url>               address of the gateway, default 127.0.0.1:8080       (GRANARY_URL)
  --export <file>           writes the chain to a file, which is then checked
  --from <file>             checks such a file; needs no service
  --known <height>:<hash>   a commit hash that was kept: the chain must contain it
  -h, --help                prints this text`;

const flags = {
  '--app': 'GRANARY_APP',
  '--key': 'GRANARY_KEY',
  '--url': 'GRANARY_URL',
  '--export': 'VERIFY_EXPORT',
  '--from': 'VERIFY_FROM',
  '--known': 'VERIFY_KNOWN',
};

async function verify() {
  checkNode();
  if (!readFlags('verify', process.argv.slice(2), flags, help)) return;
  // Relative paths refer to the directory of the user, as those of all commands do.
  const here = (process.env.npm_lifecycle_event === 'verify' && process.env.INIT_CWD) || process.cwd();
  for (const name of ['VERIFY_EXPORT', 'VERIFY_FROM']) {
    if (process.env[name]) process.env[name] = path.resolve(here, process.env[name]);
  }
  await prepare();
  await import(pathToFileURL(path.join(root, 'services/local/dist/verify/verify-main.js')).href);
}

verify().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
