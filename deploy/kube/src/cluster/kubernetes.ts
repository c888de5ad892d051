/** The members of the objects of Kubernetes that are read here, as kubectl prints them in JSON. */
export interface List<T> {
  items: T[];
}

export interface Pod {
  metadata: { name: string; labels: Record<string, string>; deletionTimestamp?: string };
  status: { phase: string; podIP?: string; containerStatuses?: { ready: boolean; restartCount: number }[] };
}

export interface Job {
  metadata: { name: string };
  status: { conditions?: { type: string; reason?: string }[] };
}

/** An object that is made here. */
export interface Resource {
  apiVersion: string;
  kind: string;
  metadata: { name: string; labels?: Record<string, string> };
  [member: string]: unknown;
}
