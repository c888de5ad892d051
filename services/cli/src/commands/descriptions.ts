import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { UsageError } from '../failure.ts';
import { action, type Invocation } from '../session/invocation.ts';
import { apiPath } from '../session/paths.ts';
import { printObject } from '../terminal/table.ts';
import type { Terminal } from '../terminal/terminal.ts';

interface OpenapiOptions {
  service?: boolean;
}

/** Commands that print the descriptions of an app, for programs and for agents. */
export function addDescriptionCommands(program: Command): void {
  program
    .command('openapi')
    .description('print the OpenAPI document of the app')
    .option('--service', 'that of all calls of the service')
    .action(action<OpenapiOptions>(openapi));
  const skills = program.command('skills').description('the skills document, which describes the app to agents');
  skills.command('show', { isDefault: true }).description('print it').action(action(showSkills));
  skills
    .command('put')
    .description("set the owner's part of it; an empty file removes that")
    .argument('<file>', 'Markdown, or - for stdin')
    .action(action(putSkills));
}

async function openapi(call: Invocation<OpenapiOptions>): Promise<void> {
  const { signal } = call;
  if (call.options.service) {
    const service = await call.everybody();
    return printText(call.terminal, await service.text('/openapi.json', { signal }));
  }
  const app = await call.app();
  const { openapiPath } = await import('../types/types-file.ts');
  await printText(call.terminal, await app.text(openapiPath(app), { signal }));
}

async function showSkills(call: Invocation): Promise<void> {
  const app = await call.app();
  await printText(call.terminal, await app.text(skillsPath(app.id), { signal: call.signal }));
}

async function putSkills(call: Invocation): Promise<void> {
  const [file] = call.args<[string]>();
  const { terminal, signal } = call;
  const read = async () => (file === '-' ? terminal.readAll('Markdown') : readFile(file, 'utf8'));
  const markdown = await read().catch((error: Error) => {
    throw error instanceof UsageError ? error : new UsageError(`The document cannot be read: ${error.message}`);
  });
  const app = await call.app();
  await printObject(terminal, await app.request<object>('PUT', skillsPath(app.id), { json: { markdown }, signal }));
}

const skillsPath = (appId: string): string => apiPath('skills', appId, 'skills.md');

/** Prints a text as it is, with an end of its last line. */
const printText = (terminal: Terminal, text: string): Promise<void> => terminal.print(text.replace(/\n$/, ''));
