import { prepareReleaseBefore } from '@granary/stack/tools/release-before';
import path from 'node:path';
import { postgresService } from './backends/backends';
import { hostAddress } from './cluster/cluster';
import { buildImage, writeRelease } from './image-programs';
import type { Release } from './proof/proof';
import type { Say } from './say';

/**
 * Values that the release before needs here. Its migrations do not wait for a Postgres that cannot be reached, such as
 * before the network policies let a new pod through, and one failure of each of the five containers exceeds its own
 * limit.
 */
const valuesBefore = ['--set', 'migrations.backoffLimit=30'];

/** A release whose image was built. */
export interface BuiltRelease extends Release {
  image: string;
  /** The file with the image. */
  archive: string;
}

export interface Releases {
  release: BuiltRelease;
  releaseBefore: BuiltRelease;
}

interface BuildOptions {
  /** The services of the charts. */
  components: readonly string[];
  /** The folder that the archives are written to. */
  directory: string;
  say: Say;
}

/** The folder of the release before; undefined where its sources are missing and need not be there. */
export async function findReleaseBefore(say: Say): Promise<string | undefined> {
  try {
    return await prepareReleaseBefore(say);
  } catch (error) {
    if (process.env.REQUIRE_STACK === '1') throw error;
    say(`UPGRADES ARE TESTED FROM THIS RELEASE ITSELF: ${(error as Error).message}`);
    return undefined;
  }
}

/**
 * Writes this release as it is published, and builds the image of the one before, whose folder is `before`: it is
 * installed with the chart in its sources, because 0.1.0 was not published.
 */
export async function buildReleases(
  root: string,
  before: string | undefined,
  options: BuildOptions,
): Promise<Releases> {
  const [release, releaseBefore] = await Promise.all([
    publishRelease(root, options),
    buildReleaseBefore(before ?? root, options),
  ]);
  return { release, releaseBefore };
}

async function publishRelease(root: string, { components, directory, say }: BuildOptions): Promise<BuiltRelease> {
  const folder = path.join(directory, 'release');
  const { files, reference, digest } = await writeRelease(root, { output: folder });
  say(`release: ${reference}, ${digest}`);
  const inFolder = (file: string): string => path.join(folder, file);
  // The chart pulls the image of its release.
  const values = valuesOf(inFolder(files.minimalValues), components);
  return { chart: inFolder(files.chart), values, image: reference, archive: inFolder(files.imageArchive) };
}

async function buildReleaseBefore(
  sources: string,
  { components, directory, say }: BuildOptions,
): Promise<BuiltRelease> {
  const tag = 'before';
  const archive = path.join(directory, `image-${tag}.tar`);
  const image = `registry.local/granary/granary:${tag}`;
  const { digest, bytes } = await buildImage(sources, { output: archive, reference: image });
  say(`image ${tag}: ${digest}, ${(bytes / 1e6).toFixed(0)} MB`);
  const chart = path.join(sources, 'charts/granary');
  const values = valuesOf(path.join(chart, 'ci/minimal-values.yaml'), components);
  return { chart, values: [...values, '--set', `image.tag=${tag}`, ...valuesBefore], image, archive };
}

/** Requests of resources are small, so that two copies and those of a rollout fit on one small machine. */
function valuesOf(file: string, components: readonly string[]): string[] {
  const requests = components.flatMap((name) => [
    [`components.${name}.resources.requests.cpu`, '80m'],
    [`components.${name}.resources.requests.memory`, '96Mi'],
  ]);
  const settings = [
    ['postgres.host', postgresService],
    ['postgres.tls.mode', 'disable'],
    ['objectStorage.endpoint', `http://${hostAddress}:9000`],
    ...requests,
  ];
  const flags = settings.flatMap(([name, value]) => ['--set', `${name}=${value}`]);
  return ['-f', file, ...flags];
}
