import { createHash } from 'node:crypto';
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

/** Its OpenAPI document describes all resources; kubeconform's own schemas would have to be downloaded by each run. */
const kubernetes = 'k8s.io/kubernetes@v1.36.3';

const versions = createHash('sha256')
  .update([...packages, kubernetes].join())
  .digest('hex');

const programs: GoPrograms = {
  folderName: `chart-tools-${versions.slice(0, 12)}`,
  title: 'Helm and the tools for charts',
  needed: 'the tools for charts are built by Go 1.21 or newer (the command go)',
  packages,
  complete: async (staging, env, signal) => {
    const args = ['mod', 'download', '-json', kubernetes];
    const { Dir } = JSON.parse(await runTool('go', args, { cwd: staging, env, signal })) as { Dir: string };
    await copyFile(path.join(Dir, 'api/openapi-spec/swagger.json'), path.join(staging, 'kubernetes.json'));
  },
};

export function areChartToolsInstalled(): Promise<boolean> {
  return areGoProgramsInstalled(programs);
}

/** The folder with `helm`, `kubeconform`, `kube-score`, `helm-docs` and `kubernetes.json`, installed if it is missing. */
export function prepareChartTools(say: (line: string) => void, signal?: AbortSignal): Promise<string> {
  return installGoPrograms(programs, say, signal);
}
