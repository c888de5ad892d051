import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { copyFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { cacheFolder } from './cache';
import { installGoPrograms, type GoPrograms } from './go-install';
import { withProgress } from '@granary/local/start/progress';
import { findGo, MissingToolError, runTool } from './tools';

const kube = path.join(__dirname, '../../../kube');

const helm3Version = 'v3.22.0';
const helm3: GoPrograms = {
  folderName: `helm-${helm3Version}`,
  title: 'Helm 3',
  needed: 'Helm 3 is built by Go 1.21 or newer (the command go)',
  packages: [`helm.sh/helm/v3/cmd/helm@${helm3Version}`],
};

const metricsServerVersion = 'v0.9.0';
const metricsServer: GoPrograms = {
  folderName: `metrics-server-${metricsServerVersion}`,
  title: 'the metrics server of Kubernetes',
  needed: 'the metrics server of Kubernetes is built by Go 1.21 or newer (the command go)',
  packages: [`sigs.k8s.io/metrics-server/cmd/metrics-server@${metricsServerVersion}`],
  // It is alone in its image, without libraries.
  env: { CGO_ENABLED: '0' },
};

/** A module with the versions: Traefik replaces some of its own, which `go install` refuses. */
const traefikModule = path.join(kube, 'ingress');
const traefikPackage = 'github.com/traefik/traefik/v3/cmd/traefik';

function traefik(): GoPrograms {
  const versions = createHash('sha256');
  for (const file of ['go.mod', 'go.sum']) versions.update(readFileSync(path.join(traefikModule, file)));
  return {
    folderName: `traefik-${versions.digest('hex').slice(0, 12)}`,
    title: 'the ingress controller Traefik',
    needed: 'Traefik is built by Go 1.26 or newer (the command go)',
    packages: [],
    // It is alone in its image, without libraries.
    env: { CGO_ENABLED: '0' },
    complete: async (staging, env, signal) => {
      const go = (...args: string[]): Promise<string> => runTool('go', args, { cwd: traefikModule, env, signal });
      await go('build', '-trimpath', '-ldflags=-s -w', '-o', path.join(staging, 'traefik'), traefikPackage);
      const gatewayApi = (await go('list', '-m', '-f', '{{.Dir}}', 'sigs.k8s.io/gateway-api')).trim();
      const definitions = path.join(gatewayApi, 'config/crd/standard');
      for (const name of await readdir(definitions)) {
        if (name.startsWith('gateway.')) await copyFile(path.join(definitions, name), path.join(staging, name));
      }
    },
  };
}

/** Compiles the programs of Kubernetes into the cache, where `deploy/kube` finds them, if they are missing. */
export async function prepareKubernetes(say: (line: string) => void): Promise<void> {
  if (process.platform !== 'linux') throw new MissingToolError('Kubernetes is run on Linux only.');
  await findGo('Kubernetes is compiled by Go 1.26 or newer (the command go)');
  const env = { ...process.env, KUBE_HOME: path.join(await cacheFolder(), 'kube') };
  const program = path.join(kube, 'build.sh');
  await withProgress(say, 'Building Kubernetes by Go (minutes, the first time)', () =>
    runTool('bash', [program], { cwd: kube, env, signal: undefined }),
  );
}

/** The program of Helm 3, which the chart works with too. Built if it is missing. */
export async function prepareHelm3(say: (line: string) => void): Promise<string> {
  return path.join(await installGoPrograms(helm3, say), 'helm');
}

/** The program that measures pods for their autoscaling. Built if it is missing. */
export async function prepareMetricsServer(say: (line: string) => void): Promise<string> {
  return path.join(await installGoPrograms(metricsServer, say), 'metrics-server');
}

/** The folder with the ingress controller `traefik` and the definitions of Gateway API. Built if it is missing. */
export async function prepareTraefik(say: (line: string) => void): Promise<string> {
  return installGoPrograms(traefik(), say);
}
