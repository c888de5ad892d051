import { eventually } from '@granary/testing/eventually';
import { asCaller } from './changing-requests';
import { DescribedRequests, type DescribedOperation } from './described-requests';
import { newApp, operatorKey, send, type Answer, type Granary, type TestApp } from './granary';
import { pathNames, validRequests, type Subject, type ValidRequest } from './valid-requests';

/** A request of an operation, ready to be sent or to be altered before. */
export interface SubjectRequest extends ValidRequest {
  operation: DescribedOperation;
}

const wealthUtia = 100_000_000;

/** An application with documents, a view, a query and money, and what sends it requests of each operation. */
export class RequestSubject implements Subject {
  #names = 0;
  readonly #operations: ReadonlyMap<string, DescribedOperation>;

  private constructor(
    private readonly granary: Pick<Granary, 'url'>,
    readonly described: DescribedRequests,
    private readonly app: TestApp,
    /** Not of the name `default`, which a request may replace. */
    private readonly key: string,
  ) {
    this.#operations = new Map(described.operations.map((operation) => [operation.id, operation]));
  }

  static async prepare(granary: Pick<Granary, 'url'>): Promise<RequestSubject> {
    const described = await DescribedRequests.of(granary.url);
    const app = await newApp(granary);
    const make = async (path: string, body: object, headers?: Record<string, string>) => {
      const answer = await app.call<{ ticket_id?: string; app_key?: string }>('POST', path, body, headers);
      if (answer.status >= 300) throw new Error(`${path}: ${answer.status} ${answer.text}`);
      if (answer.body.ticket_id !== undefined) await app.ended(answer.body.ticket_id);
      return answer.body;
    };
    const own = `/api/apps/${app.appId}`;
    await app.store('docs', [
      { id: 'd1', n: 1, t: 'a' },
      { id: 'd2', n: 2, t: 'b' },
    ]);
    await make(`${own}/indexes`, { name: 'by_n', collection: 'docs', field_name: 'n', index_type: 'number' });
    for (const name of ['seen', 'changed']) {
      await make(`${own}/views`, { name, source_collections: ['docs'], query: {}, variables: { n: 'n' } });
    }
    const parameters = [{ name: 'n', field_path: 'n', default: 1 }];
    await make(`${own}/queries`, { name: 'of', source_collection: 'docs', base_query: {}, version: '1', parameters });
    await make(`${own}/faucet`, { amount: wealthUtia }, { 'x-operator-key': operatorKey });
    await eventually(async () => {
      const { body } = await app.call<{ balance: number }>('GET', `${own}/wallet`);
      return body.balance === wealthUtia;
    });
    const { app_key: key } = await make(`${own}/keys`, { name: 'tester', permissions: ['Admin', 'Read', 'Write'] });
    return new RequestSubject(granary, described, app, key!);
  }

  get appId(): string {
    return this.app.appId;
  }

  readonly newName = (): string => `n${++this.#names}`;

  readonly newCollection = async (): Promise<string> => {
    const name = this.newName();
    const made = await this.#call('POST', `/api/apps/${this.appId}/collections`, { name });
    if (made.status !== 201) throw new Error(`no collection: ${made.status} ${made.text}`);
    return name;
  };

  readonly newQuery = async (): Promise<string> => {
    const query = { name: this.newName(), source_collection: 'docs', base_query: {}, version: '1' };
    const made = await this.#call('POST', `/apps/${this.appId}/queries`, query);
    if (made.status !== 201) throw new Error(`no query: ${made.status} ${made.text}`);
    return query.name;
  };

  /** A valid request of an operation, by its place among those. */
  async request(operationId: string, at: number): Promise<SubjectRequest> {
    const made = await validRequests[operationId]![at]!(this);
    // It is altered before it is sent.
    return { ...structuredClone(made), operation: this.#operations.get(operationId)! };
  }

  send({ operation, path = {}, query = {}, body, wallet }: SubjectRequest): Promise<Answer> {
    const names: Record<string, string> = { ...pathNames, app_id: this.appId, ...path };
    const search = new URLSearchParams(query).toString();
    const target = `${operation.path.replace(/\{(\w+)\}/g, (_, name: string) => names[name]!)}${search && `?${search}`}`;
    const caller = operation.isOperators
      ? ({ kind: 'operator' } as const)
      : ({ kind: 'app', permission: 'Read' } as const);
    const asked = {
      path: target,
      ...(body === undefined ? {} : { body }),
      ...(wallet === undefined ? {} : { wallet }),
      other: {},
    };
    const method = operation.method as 'GET';
    return send(this.granary.url, method, target, asCaller({ auth: caller, method }, asked, this.key));
  }

  /** How many versions the documents have together. */
  async versions(): Promise<number> {
    const query = { root: `${this.appId}::docs`, include_history: true, limit: 1 };
    const { status, body } = await this.#call<{ total: number }>('POST', '/list', query);
    if (status !== 200) throw new Error(`no versions: ${status} ${JSON.stringify(body)}`);
    return body.total;
  }

  #call<T>(method: string, path: string, body: object): Promise<Answer<T>> {
    return send<T>(this.granary.url, method, path, { key: this.key, body });
  }
}
