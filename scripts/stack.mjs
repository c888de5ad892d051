import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { checkNode, prepare, readFlags } from './launch.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

const help = `Starts Granary as production runs it: a process for each service, on Postgres, Kafka and MinIO.

  npm run stack -- [--port <n>] [--data-dir <path>] [--operator-key <key>]
                   [--bus kafka|postgres] [--store minio|files] [--docker]

  --port <n>             port of the HTTP API on 127.0.0.1, 0 for any free one   (PORT, default 8080)
  --data-dir <path>      where the data is kept                                  (DATA_DIR, default .granary-stack)
  --operator-key <key>   key of the operator; else one is made and kept          (OPERATOR_KEY)
  --bus <name>           how events travel                                       (BUS, default kafka)
  --store <name>         where the bytes of blobs are kept                       (STORE, default minio)
  --docker               Postgres, Kafka and MinIO in containers, by deploy/compose.yaml
  -h, --help             this text

All other settings are variables of the environment, or lines of a file .env beside this program: .env.example has
them, docs/operations explains them.

Without --docker Kafka needs Java 17 and, the first time, Maven; MinIO needs Go the first time. Both are kept in
~/.cache/granary.`;

const flags = {
  '--port': 'PORT',
  '--data-dir': 'DATA_DIR',
  '--operator-key': 'OPERATOR_KEY',
  '--bus': 'BUS',
  '--store': 'STORE',
  '--docker': ['DOCKER', 'true'],
};

async function stack() {
  checkNode();
  if (!readFlags('stack', process.argv.slice(2), flags, help)) return;
  await prepare('deploy/stack');
  await import(pathToFileURL(path.join(root, 'deploy/stack/dist/main.js')).href);
}

stack().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
