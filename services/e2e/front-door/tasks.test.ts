import { eventually, eventuallyHolds } from '@granary/testing/eventually';
import { borrowGranary, newApp, transports, type Granary, type Task, type TestApp } from '../support/granary';

interface Page {
  app_id: string;
  tasks: Task[];
  next_cursor?: string;
}

describe.each(transports)('the tasks of an app (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('films', [{ id: 'a', year: 1979 }]);
    const view = { name: 'v', query: {}, source_collections: ['films'] };
    await app.ended(
      (await app.call<{ ticket_id: string }>('POST', `/api/apps/${app.appId}/views`, view)).body.ticket_id,
    );
  });

  const list = (query = '') => app.call<Page>('GET', `/api/apps/${app.appId}/tasks${query}`);
  const tickets = ({ tasks }: Page) => tasks.map(({ ticket_id }) => ticket_id);
  const listed = async (query = '') => tickets((await list(query)).body);
  const refresh = async () => {
    const path = `/api/apps/${app.appId}/views/v/refresh`;
    const { ticket_id: ticket } = (await app.call<{ ticket_id: string }>('POST', path)).body;
    await app.ended(ticket);
    return ticket;
  };
  /** An import that waits for its file. */
  const beginImport = async () => {
    const body = { collection: 'films', format: 'ndjson' };
    const made = await app.call<{ import_id: string }>('POST', `/api/apps/${app.appId}/imports`, body);
    expect(made.status).toBe(201);
    return made.body.import_id;
  };

  test('pages have each task once, the newest first and as its ticket shows it, while new ones are added', async () => {
    for (let count = 0; count < 4; count += 1) await refresh();
    const { body } = await eventuallyHolds(
      list,
      ({ body: { tasks } }) => tasks.length === 5 && tasks.every(({ status }) => status === 'Completed'),
    );
    expect(Object.keys(body)).toEqual(['app_id', 'tasks']);
    expect(body.app_id).toBe(app.appId);
    const times = body.tasks.map(({ created_at }) => String(created_at));
    expect(times).toEqual([...times].sort().reverse());
    for (const task of body.tasks) expect((await app.call('GET', `/api/tasks/${task.ticket_id}`)).body).toEqual(task);

    const first = await list('?limit=2');
    expect(first.headers.get('link')).toBe(
      `</api/apps/${app.appId}/tasks?limit=2&cursor=${first.body.next_cursor}>; rel="next"`,
    );
    const added = await refresh();
    await eventually(async () => (await listed()).includes(added));
    const read = tickets(first.body);
    for (let cursor = first.body.next_cursor; cursor !== undefined;) {
      const page = (await list(`?limit=2&cursor=${cursor}`)).body;
      read.push(...tickets(page));
      cursor = page.next_cursor;
    }
    expect(read).toEqual(tickets(body));
    expect(await listed('?limit=1')).toEqual([added]);
  });

  test('a status selects the tasks in that state, over pages', async () => {
    const waiting = await beginImport();
    const broken = await beginImport();
    const headers = { 'content-type': 'application/octet-stream', 'upload-offset': '0', 'upload-complete': '?1' };
    const path = `/api/apps/${app.appId}/imports/${broken}`;
    expect((await app.call('PATCH', path, Buffer.from('no JSON\n'), headers)).status).toBe(400);
    await refresh();
    await eventuallyHolds(listed, (all) => all.length === 4);
    await eventuallyHolds(
      () => listed('?status=Failed'),
      (found) => found.join() === broken,
    );
    expect((await list('?status=Failed')).body.tasks[0]).toEqual(await app.ended(broken));
    // The event that the refresh is complete may come after its ticket says so.
    await eventuallyHolds(
      () => listed('?status=StoringData'),
      (found) => found.join() === waiting,
    );
    const completed = await eventuallyHolds(
      () => list('?status=Completed&limit=1'),
      ({ body }) => !!body.next_cursor,
    );
    const link = /^<(.*)>; rel="next"$/.exec(completed.headers.get('link')!)![1]!;
    expect(link).toContain('status=Completed&limit=1&');
    const last = (await app.call<Page>('GET', link)).body;
    expect(last.tasks.map(({ status }) => status)).toEqual(['Completed']);
    expect(last.next_cursor).toBeUndefined();
    for (const none of ['Pending', 'PaymentBroadcast', 'PaymentConfirming', 'PaymentConfirmed'])
      expect(await listed(`?status=${none}`)).toEqual([]);
  });

  test('a misspelt status is refused with the names of all, and so are other parameters, limits and cursors', async () => {
    const problem = async (query: string) => (await list(query)) as unknown as { status: number; body: Problem };
    const names = ['Pending', 'PaymentBroadcast', 'PaymentConfirming', 'PaymentConfirmed', 'StoringData', 'Completed'];
    const wrong = await problem('?status=failed');
    expect([wrong.status, wrong.body.code]).toEqual([400, 'VALIDATION_FAILED']);
    for (const name of [...names, 'Failed']) expect(wrong.body.details['status']![0]).toContain(`"${name}"`);
    for (const query of ['?status=', '?stauts=Failed', '?limit=0', '?limit=1001', '?limit=x', '?cursor=', '?offset=1'])
      expect([query, (await problem(query)).body.code]).toEqual([query, 'VALIDATION_FAILED']);
    const encoded = (key: unknown) => Buffer.from(JSON.stringify(key)).toString('base64url');
    for (const cursor of [
      'x',
      encoded(['1']),
      encoded(['9'.repeat(16), 'a']),
      encoded(['a', 'b']),
      encoded(['1', '\0']),
    ])
      expect([cursor, (await problem(`?cursor=${cursor}`)).body.code]).toEqual([cursor, 'INVALID_CURSOR']);
    expect((await list('?limit=1000')).status).toBe(200);
  });

  test('an app sees no task of another one', async () => {
    const other = await newApp(granary);
    expect((await other.call('GET', `/api/apps/${app.appId}/tasks`)).body['code']).toBe('FORBIDDEN');
    await eventuallyHolds(listed, (all) => all.length === 1);
    const { next_cursor: cursor } = (await list('?limit=1')).body;
    expect(cursor).toBeUndefined();
    expect((await other.call<Page>('GET', `/api/apps/${other.appId}/tasks`)).body).toEqual({
      app_id: other.appId,
      tasks: [],
    });
  });
});

interface Problem {
  code: string;
  details: Record<string, string[]>;
}
