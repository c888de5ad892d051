import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { messageOf } from './errors.mjs';
import { transpile } from './transpile.mjs';
import { generateTypes } from './types.mjs';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

/** Builds what a developer needs: all services as `npm start` does, and the types of the protos. */
export async function build() {
  await generateTypes();
  await transpile(root);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await build();
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
