import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { strongEtag } from '@granary/shared/http/etag';
import { readJson, toPlain } from '@granary/shared/json/value';
import { json } from '../http/answer';
import { malformedJson } from '../errors/problem';
import { etagHeader, revalidationHeader } from '../openapi/headers';
import { mayReadPrivate } from '../pipeline/access';
import { idempotency, idempotencyHeader, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { successSchema } from '../validation/schemas';
import { validate } from '../validation/validate';

const bodySchema = z.strictObject({
  markdown: z
    .string()
    .max(bodyLimits.skillsBytes - Buffer.byteLength('{"markdown":""}'))
    .describe("The owner's part of the document; 256 KiB are the limit of the whole body"),
});
const textSchema = z.string().describe("The owner's part of the document");
const exampleText = 'Short notes with stars.';
const markdownType = 'text/markdown';

export const skillsRoutes = [
  route({
    method: 'GET',
    path: '/skills/{app_id}/skills.md',
    id: 'getSkills',
    summary: 'Read what the application offers, in Markdown',
    description:
      'Collections with their indexed fields, views, queries and examples with curl, kept current by the service, and ' +
      'what the owner wrote. Collections and views that are private are described to a key that has `Read`.',
    tag: 'Skills',
    auth: { kind: 'reader' },
    headers: revalidationHeader,
    responses: {
      200: {
        description: 'The document',
        schema: z.string(),
        headers: etagHeader,
        contentTypes: [markdownType],
        example: '# demo\n\nShort notes with stars.\n',
      },
      304: { description: 'It has not changed', headers: etagHeader },
    },
    handle: async ({ clients }, { caller, path, call }) => {
      const request = { appId: path.app_id, mayReadPrivate: mayReadPrivate(caller, path.app_id) };
      const { markdown } = await clients.data.getSkills(request, call);
      const body = Buffer.from(markdown);
      const headers = { 'Content-Type': `${markdownType}; charset=utf-8`, ETag: strongEtag(body) };
      return { status: 200, body, headers };
    },
  }),
  route({
    method: 'PUT',
    path: '/skills/{app_id}/skills.md',
    id: 'putSkills',
    summary: "Set the owner's part of the document",
    description:
      'Markdown, or JSON with a member `markdown`. The generated part is between markers and stays. Empty text removes ' +
      "the owner's part.",
    tag: 'Skills',
    auth: { kind: 'app', permission: 'Admin' },
    headers: idempotencyHeader,
    body: {
      kind: 'raw',
      content: {
        [markdownType]: { schema: textSchema, example: exampleText },
        'text/plain': { schema: textSchema, example: exampleText },
        'application/json': { schema: bodySchema, example: { markdown: exampleText } },
      },
      limitBytes: bodyLimits.skillsBytes,
      mayBeEmpty: true,
    },
    responses: {
      200: {
        description: 'It is saved',
        schema: successSchema.extend({
          app_id: z.string().describe('The application'),
          revision: z.int().describe('Grows with each change'),
        }),
        example: { success: true, message: 'The document is saved', app_id: 'demo', revision: 1 },
      },
      413: { description: 'The text is too large', codes: ['SKILLS_TOO_LARGE'] },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call, incoming } = request;
      const isJson = /json/i.test(incoming.headers['content-type'] ?? '');
      const markdown = isJson
        ? validate(bodySchema, toPlain(readJson(body, { maxDepth: 64 })), 'body').markdown
        : markdownOf(body);
      const saved = await clients.data.putSkills(
        { appId: path.app_id, markdown, idempotency: idempotency(request, Buffer.from(markdown)) },
        call,
      );
      const answer = {
        success: true,
        message: 'The document is saved',
        app_id: path.app_id,
        revision: Number(saved.revision),
      };
      return json(200, answer, replayedHeader(saved.replayed === true));
    },
  }),
];

function markdownOf(body: Buffer): string {
  if (!isUtf8(body) || body.includes(0)) throw malformedJson('The text must be UTF-8 without U+0000');
  return body.toString('utf8');
}
