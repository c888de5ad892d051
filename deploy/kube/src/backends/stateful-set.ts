import type { Resource } from '../cluster/kubernetes';

interface Mount {
  name: string;
  mountPath: string;
}

interface Probe {
  tcpSocket?: { port: number };
  httpGet?: { path: string; port: number };
}

export interface Container {
  name: string;
  image: string;
  command?: string[];
  args?: string[];
  workingDir?: string;
  env?: { name: string; value: string }[];
  volumeMounts?: Mount[];
  readinessProbe?: Probe;
}

export interface StatefulSetOptions {
  /** The port of its Service. */
  port: number;
  /** Containers that end before `container` starts. */
  before?: Container[];
  container: Container;
  /** Volumes of Secrets. */
  volumes?: { name: string; secret: { secretName: string } }[];
}

export const secret = (name: string, stringData: Record<string, string>): Resource => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name },
  stringData,
});

/** A StatefulSet of one pod with a volume at /data, and its Service, as PodSecurity `restricted` admits them. */
export function statefulSet(
  name: string,
  { port, before = [], container, volumes = [] }: StatefulSetOptions,
): Resource[] {
  const metadata = { name };
  const labels = { app: name };
  const complete = ({ volumeMounts = [], ...other }: Container) => ({
    ...other,
    resources: { requests: { cpu: '50m', memory: '256Mi' } },
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    volumeMounts: [...volumeMounts, { name: 'data', mountPath: '/data' }, { name: 'tmp', mountPath: '/tmp' }],
  });
  const securityContext = {
    runAsNonRoot: true,
    runAsUser: 65532,
    fsGroup: 65532,
    seccompProfile: { type: 'RuntimeDefault' },
    // By default each start of a pod would let a group write the files, which Postgres refuses.
    fsGroupChangePolicy: 'OnRootMismatch',
  };
  const spec = {
    securityContext,
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    initContainers: before.map(complete),
    containers: [complete(container)],
    volumes: [...volumes, { name: 'tmp', emptyDir: {} }],
  };
  const claim = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } };
  return [
    { apiVersion: 'v1', kind: 'Service', metadata, spec: { selector: labels, ports: [{ port }] } },
    {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata,
      spec: {
        serviceName: name,
        selector: { matchLabels: labels },
        template: { metadata: { labels }, spec },
        volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: claim }],
      },
    },
  ];
}
