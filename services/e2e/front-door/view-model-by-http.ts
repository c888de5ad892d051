import type { FollowedPage } from '../../data/test/support/view-follower';
import type { ModelMethods } from '../../data/test/support/live-view-model';
import { send, type Answer, type StoreAnswer, type Task } from '../support/granary';

interface ViewClient {
  /** Of a gateway. */
  url: string;
  /** The key of the app whose views are tested. */
  key: string;
}

/**
 * By the ticket that the model has named: the one that the gateway has made. Of all clients, for each polls the tickets
 * of all.
 */
export type Tickets = Map<string, string>;

/** What the model of live views does, by requests to a gateway. Throws where one is not answered with success. */
export function methodsByHttp({ url, key }: ViewClient, tickets: Tickets): ModelMethods {
  const ask = async <T>(method: string, path: string, body?: object | string): Promise<Answer<T>> => {
    const answer = await send<T>(url, method, path, { key, body });
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer;
  };
  const ticketIn = ({ body }: Answer<{ ticket_id?: string | null }>): string => body.ticket_id ?? '';
  return {
    createCollection: async ({ appId, name }) => {
      await ask('POST', `/api/apps/${appId}/collections`, { name });
      return {};
    },
    deleteCollection: async ({ appId, name }) => {
      await ask('DELETE', `/api/apps/${appId}/collections/${name}?force=true&cascade=true`);
      return {};
    },
    createIndex: async ({ appId, name, collection, fieldName, indexType, ticketId }) => {
      const index = { name, collection, field_name: fieldName, index_type: indexType };
      const made = ticketIn(await ask('POST', `/api/apps/${appId}/indexes`, index));
      if (made !== '') tickets.set(ticketId, made);
      return { ticketId: made === '' ? '' : ticketId };
    },
    createView: async ({ appId, name, queryJson, sourceCollections, refreshMode, keepsChanges, ticketId }) => {
      const view = { name, source_collections: sourceCollections, refresh_mode: refreshMode, changes: keepsChanges };
      // The query keeps its numbers as they are written.
      const body = `${JSON.stringify(view).slice(0, -1)},"query":${queryJson.toString()}}`;
      tickets.set(ticketId, ticketIn(await ask('POST', `/api/apps/${appId}/views`, body)));
      return {};
    },
    refreshView: async ({ appId, name, ticketId }) => {
      tickets.set(ticketId, ticketIn(await ask('POST', `/api/apps/${appId}/views/${name}/refresh`)));
      return { ticketId };
    },
    deleteView: async ({ appId, name }) => {
      await ask('DELETE', `/api/apps/${appId}/views/${name}`);
      return {};
    },
    listViews: async ({ appId }) => {
      const { body } = await ask<{ views: Array<{ status: string }> }>('GET', `/api/apps/${appId}/views?limit=100`);
      return body;
    },
    getJob: async ({ ticketId }) => {
      const { status } = (await ask<Task>('GET', `/api/tasks/${tickets.get(ticketId)!}`)).body;
      return typeof status === 'string' ? { status, error: '' } : { status: 'Failed', error: status.Failed.error };
    },
    readView: async ({ appId, name, parameters }) => {
      const query = new URLSearchParams(parameters.map(({ name, value }): [string, string] => [name, value]));
      return { json: Buffer.from((await ask('GET', `/api/views/${appId}/${name}/data?${query.toString()}`)).text) };
    },
    follow: async ({ appId, view, since, limit }) => {
      const path = `/api/apps/${appId}/changes?view=${view}&since=${since}&limit=${limit}`;
      const { status, body, text } = await send<FollowedPage & { code?: string }>(url, 'GET', path, { key });
      if (body.code === 'CURSOR_GONE') return undefined;
      if (status !== 200) throw new Error(`GET ${path}: ${status} ${text}`);
      return body;
    },
    store: async ({ body }) => {
      const { results } = (await ask<StoreAnswer>('POST', '/store', body.toString())).body;
      return { resultsJson: Buffer.from(JSON.stringify(results)) };
    },
    batch: async ({ appId, body }) => {
      await ask('POST', `/api/apps/${appId}/batch`, body.toString());
      return {};
    },
    eraseDocument: async ({ appId, collection, id }) => {
      await ask('DELETE', `/api/apps/${appId}/collections/${collection}/documents/${id}?erase=true`);
      return {};
    },
  };
}
