import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildClient } from './client.mjs';
import { messageOf } from './errors.mjs';
import { transpile } from './transpile.mjs';
import { generateTypes } from './types.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

/** Builds what a developer needs: all services as `npm start` does, the types of the protos, and the client. */
export async function build() {
  await generateTypes();
  await transpile(root);
  await buildClient();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await build();
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
