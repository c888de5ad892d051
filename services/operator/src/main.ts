import { runOperator } from './operator';

void runOperator(process.argv.slice(2), { environment: process.env, directory: process.cwd() });
