import { copyFileSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import path from 'node:path';
import { runChild } from '../child';
import type { Cluster } from '../cluster/cluster';
import { writeFolderImage, type RunConfig } from '../image-programs';

const libraries = 'usr/lib/granary';
/** The variable by which the programs of an image find the libraries that were copied with them. */
export const libraryPath = `LD_LIBRARY_PATH=/${libraries}`;
const loader = /^\s*(\/lib\S+\/ld-linux\S+) /m;

/** Copies a program to /usr/bin of a layer, and the libraries that the linker finds for it here. */
export async function copyProgram(layer: string, name: string, file: string): Promise<void> {
  mkdirSync(path.join(layer, 'usr/bin'), { recursive: true });
  copyFileSync(realpathSync(file), path.join(layer, 'usr/bin', name));
  await copyLibraries(layer, file);
}

/** Copies the libraries that the linker finds here for a file, but for those in the folder `except`. */
export async function copyLibraries(layer: string, file: string, except?: string): Promise<void> {
  mkdirSync(path.join(layer, libraries), { recursive: true });
  const { output } = await runChild('ldd', [file]);
  for (const [, library = '', source = ''] of output.matchAll(/^\s*(\S+) => (\/\S+)/gm)) {
    if (except !== undefined && path.resolve(source).startsWith(`${except}/`)) continue;
    copyFileSync(source, path.join(layer, libraries, library));
  }
  const [, linker] = loader.exec(output) ?? [];
  if (linker === undefined) return;
  const target = path.join(layer, linker);
  if (existsSync(target)) return;
  mkdirSync(path.dirname(target), { recursive: true });
  copyFileSync(realpathSync(linker), target);
}

export interface LayerImage {
  name: string;
  config: RunConfig;
  /** A folder for temporary files. */
  directory: string;
  fill: (layer: string) => Promise<void>;
}

/** Loads `registry.local/<name>:1` into the cluster, an image with the layer that `fill` makes in an empty folder. */
export async function loadImage(cluster: Cluster, { name, config, directory, fill }: LayerImage): Promise<void> {
  const folder = mkdtempSync(path.join(directory, `${name}-`));
  const archive = `${folder}.tar`;
  await fill(folder);
  await writeFolderImage(archive, { reference: `registry.local/${name}:1`, config, folder });
  await cluster.load(archive);
  for (const each of [folder, archive]) rmSync(each, { recursive: true });
}

/** Loads an image with one program, by whose name the image is called. */
export async function loadProgram(
  cluster: Cluster,
  { program, directory }: { program: string; directory: string },
): Promise<void> {
  const name = path.basename(program);
  const config = { Entrypoint: [`/usr/bin/${name}`], Env: [libraryPath] };
  await loadImage(cluster, { name, config, directory, fill: (folder) => copyProgram(folder, name, program) });
}
