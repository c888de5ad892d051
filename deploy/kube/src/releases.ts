import { prepareReleaseBefore } from '@granary/stack/tools/release-before';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { postgresService } from './backends/backends';
import { hostAddress } from './cluster/cluster';
import { buildImage } from './image-programs';
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

/** Builds the images of this release and of the one before, whose folder is `before`. */
export async function buildReleases(
  root: string,
  before: string | undefined,
  options: BuildOptions,
): Promise<Releases> {
  const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as { version: string };
  const [release, releaseBefore] = await Promise.all([
    buildRelease(root, version, options),
    buildRelease(before ?? root, 'before', options),
  ]);
  return { release, releaseBefore: { ...releaseBefore, values: [...releaseBefore.values, ...valuesBefore] } };
}

async function buildRelease(
  sources: string,
  tag: string,
  { components, directory, say }: BuildOptions,
): Promise<BuiltRelease> {
  const archive = path.join(directory, `image-${tag}.tar`);
  const image = `registry.local/granary/granary:${tag}`;
  const { digest, bytes } = await buildImage(sources, { output: archive, reference: image });
  say(`image ${tag}: ${digest}, ${(bytes / 1e6).toFixed(0)} MB`);
  const chart = path.join(sources, 'charts/granary');
  return { chart, values: valuesOf(chart, tag, components), image, archive };
}

/** Requests of resources are small, so that two copies and those of a rollout fit on one small machine. */
function valuesOf(chart: string, tag: string, components: readonly string[]): string[] {
  const requests = components.flatMap((name) => [
    [`components.${name}.resources.requests.cpu`, '80m'],
    [`components.${name}.resources.requests.memory`, '96Mi'],
  ]);
  const settings = [
    ['image.tag', tag],
    ['postgres.host', postgresService],
    ['postgres.tls.mode', 'disable'],
    ['objectStorage.endpoint', `http://${hostAddress}:9000`],
    ...requests,
  ];
  const flags = settings.flatMap(([name, value]) => ['--set', `${name}=${value}`]);
  return ['-f', path.join(chart, 'ci/minimal-values.yaml'), ...flags];
}
