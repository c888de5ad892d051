import { readFileSync } from 'node:fs';
import { runChecks } from './run.js';
import type { Target } from './checks.js';

const targets = JSON.parse(readFileSync(0, 'utf8')) as Target[];
console.log(JSON.stringify(await runChecks(targets)));
