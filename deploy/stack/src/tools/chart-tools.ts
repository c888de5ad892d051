import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { areGoProgramsInstalled, installGoPrograms, type GoPrograms } from './go-install';
import { runTool } from './tools';

const packages = [
  'helm.sh/helm/v4/cmd/helm@v4.3.1',
  'github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0',
  'github.com/zegl/kube-score/cmd/kube-score@v1.20.0',
  'github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2',
];

/**
 * Modules with the definitions of the resources that the charts make: kubeconform's own schemas would have to be
 * downloaded by each run.
 */
const definitions: Record<string, readonly string[]> = {
  'k8s.io/kubernetes@v1.36.3': ['api/openapi-spec/swagger.json'],
  'sigs.k8s.io/gateway-api@v1.6.0': ['config/crd/standard/gateway.networking.k8s.io_httproutes.yaml'],
  'github.com/prometheus-operator/prometheus-operator@v0.85.0': [
    'example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml',
    'example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml',
  ],
  'github.com/cert-manager/cert-manager@v1.21.2': ['deploy/crds/cert-manager.io_certificates.yaml'],
  'github.com/kedacore/keda/v2@v2.21.0': ['config/crd/bases/keda.sh_scaledobjects.yaml'],
};

const deploy = path.join(__dirname, '../../..');
/** A program of ours, which runs the Tiltfile. */
const tiltCheck = path.join(deploy, 'tilt/check');
/** A module with the versions: helm-unittest replaces one of its own, which `go install` refuses. */
const unittestModule = path.join(deploy, 'helm-unittest');
const unittestPackage = 'github.com/helm-unittest/helm-unittest/cmd/helm-unittest';

function folderName(): string {
  const versions = createHash('sha256').update(JSON.stringify([packages, definitions]));
  for (const file of ['main.go', 'go.mod', 'go.sum']) versions.update(readFileSync(path.join(tiltCheck, file)));
  for (const file of ['go.mod', 'go.sum']) versions.update(readFileSync(path.join(unittestModule, file)));
  return `chart-tools-${versions.digest('hex').slice(0, 12)}`;
}

const programs = (): GoPrograms => ({
  folderName: folderName(),
  title: 'Helm and the tools for charts',
  needed: 'the tools for charts are built by Go 1.21 or newer (the command go)',
  packages,
  complete: async (staging, env, signal) => {
    for (const [module, files] of Object.entries(definitions)) {
      const args = ['mod', 'download', '-json', module];
      const { Dir } = JSON.parse(await runTool('go', args, { cwd: staging, env, signal })) as { Dir: string };
      for (const file of files) await copyFile(path.join(Dir, file), path.join(staging, path.basename(file)));
    }
    const build = (name: string, cwd: string, source: string): Promise<string> =>
      runTool('go', ['build', '-trimpath', '-ldflags=-s -w', '-o', path.join(staging, name), source], {
        cwd,
        env,
        signal,
      });
    await build('tilt-check', tiltCheck, '.');
    await build('helm-unittest', unittestModule, unittestPackage);
  },
});

export function areChartToolsInstalled(): Promise<boolean> {
  return areGoProgramsInstalled(programs());
}

/**
 * The folder with `helm`, `kubeconform`, `kube-score`, `helm-docs`, `helm-unittest`, `tilt-check` and the definitions
 * of resources, installed if it is missing.
 */
export function prepareChartTools(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  return installGoPrograms(programs(), say, signal);
}
