import { randomBytes } from 'node:crypto';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface DemoApp {
  appId: string;
  /** Its first key, with the permissions Admin, Read and Write. */
  key: string;
}

/** Creates the demo app at the first start and stores its key in the data directory; later starts return it. */
export async function demoApp(url: string, operatorKey: string, dataDir: string): Promise<DemoApp> {
  const path = join(dataDir, 'demo-app.json');
  const kept = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (kept !== undefined) return JSON.parse(kept) as DemoApp;
  // An app_id is never reused, so after the app was deleted or its key was lost, a new app is created.
  for (const appId of ['demo', `demo-${randomBytes(3).toString('hex')}`]) {
    const response = await fetch(`${url}/api/applications`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-operator-key': operatorKey },
      body: JSON.stringify({ app_id: appId, name: 'Demo', description: 'Made by the first start' }),
    });
    if (response.status === 409) continue;
    if (response.status !== 201)
      throw new Error(`the demo app could not be created: ${response.status} ${await response.text()}`);
    const { app_key: key } = (await response.json()) as { app_key: string };
    await keep(path, { appId, key });
    return { appId, key };
  }
  throw new Error('the demo app could not be created');
}

async function keep(path: string, app: DemoApp): Promise<void> {
  const file = await open(path, 'w', 0o600);
  try {
    await file.writeFile(JSON.stringify(app));
    await file.sync();
  } finally {
    await file.close();
  }
}

/**
 * Returns five commands that can be pasted into a shell, one after the other. The key may be a shell variable.
 * `isPublic`: the collection that the first command creates can be read without a key.
 */
export function curlLines(url: string, { appId, key }: DemoApp, isPublic = true): string[] {
  const header = key.startsWith('$') ? `"X-App-Key: ${key}"` : `'X-App-Key: ${key}'`;
  return [
    `curl -X POST ${url}/store -H ${header} -H 'Content-Type: application/json' -d '{"root":"${appId}::notes","data":[{"id":"first","text":"Hello","stars":5},{"text":"World","stars":3}]}'`,
    `curl -X POST ${url}/list -H ${header} -H 'Content-Type: application/json' -d '{"root":"${appId}::notes","find":{"stars":{"gte":4}}}'`,
    `curl -X POST ${url}/api/apps/${appId}/indexes -H ${header} -H 'Content-Type: application/json' -d '{"name":"by_stars","collection":"notes","field_name":"stars","index_type":"number"}'`,
    `curl '${url}/api/apps/${appId}/collections/notes/data?stars=5'${isPublic ? '' : ` -H ${header}`}`,
    `curl ${url}/health`,
  ];
}
