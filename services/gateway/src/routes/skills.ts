import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { strongEtag } from '@granary/shared/etag';
import { readJson, toPlain } from '@granary/shared/json/value';
import { json } from '../answer';
import { malformedJson } from '../problem';
import { limits, route } from '../route';
import { successSchema } from '../schemas';
import { validate } from '../validation';

const bodySchema = z.strictObject({ markdown: z.string().max(limits.skillsBytes) });
const markdownType = 'text/markdown';

export const skillsRoutes = [
  route({
    method: 'GET',
    path: '/skills/{app_id}/skills.md',
    id: 'getSkills',
    summary: 'Read what the application offers, in Markdown',
    tag: 'Skills',
    auth: { kind: 'public' },
    responses: { 200: { description: 'The document', schema: z.string(), contentType: markdownType } },
    handle: async ({ clients }, { path, call }) => {
      const { markdown } = await clients.data.getSkills({ appId: path.app_id }, call);
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
      'Markdown, or JSON `{markdown}`; the generated part stands between markers and stays. Empty text removes the ' +
      "owner's part.",
    tag: 'Skills',
    auth: { kind: 'app', permission: 'Admin' },
    body: {
      kind: 'raw',
      contentTypes: [markdownType, 'text/plain', 'application/json'],
      schema: z.union([z.string(), bodySchema]),
      limitBytes: limits.skillsBytes,
      mayBeEmpty: true,
    },
    responses: {
      200: { description: 'It is saved', schema: successSchema.extend({ app_id: z.string(), revision: z.int() }) },
    },
    handle: async ({ clients }, { path, body, call, incoming }) => {
      const isJson = /json/i.test(incoming.headers['content-type'] ?? '');
      const markdown = isJson
        ? validate(bodySchema, toPlain(readJson(body, { maxDepth: 64 })), 'body').markdown
        : markdownOf(body);
      const { revision } = await clients.data.putSkills({ appId: path.app_id, markdown }, call);
      const message = 'The document is saved';
      return json(200, { success: true, message, app_id: path.app_id, revision: Number(revision) });
    },
  }),
];

function markdownOf(body: Buffer): string {
  if (!isUtf8(body) || body.includes(0)) throw malformedJson('The text must be UTF-8 without U+0000');
  return body.toString('utf8');
}
