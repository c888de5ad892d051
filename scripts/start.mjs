import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkAddress, checkNode, prepare, readFlags } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Starts Granary: all of its services in one process, on an embedded Postgres.

  npm start -- [--port <n>] [--data-dir <path>] [--operator-key <key>]

  --port <n>             port of the HTTP API on 127.0.0.1, 0 for any free one   (PORT, default 8080)
  --data-dir <path>      where data is stored                                    (DATA_DIR, default .granary)
  --operator-key <key>   key of the operator; generated and stored by default    (OPERATOR_KEY)
  -h, --help             prints this text

All other settings are environment variables, or lines of a file .env in the checkout: .env.example lists
them, docs/operations explains them. On a server, see docs/server.md.`;

const flags = { '--port': 'PORT', '--data-dir': 'DATA_DIR', '--operator-key': 'OPERATOR_KEY' };

async function start() {
  checkNode();
  if (!readFlags('start', process.argv.slice(2), flags, help)) return;
  await checkAddress();
  await prepare('services/local');

  // Ctrl-C arrives twice, from the terminal and through npm. Until the services handle signals the first one ends us;
  // after that they stop once, and these listeners keep the second one from interrupting the stop.
  let loaded = false;
  for (const [signal, code] of Object.entries({ SIGINT: 130, SIGTERM: 143 })) {
    process.on(signal, () => {
      if (!loaded) process.exit(code);
    });
  }
  await import(pathToFileURL(path.join(root, 'services/local/dist/main.js')).href);
  loaded = true;
}

start().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
