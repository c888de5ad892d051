// Node's `--require` of this file lets a process collect all of its garbage at SIGUSR2. V8 collects while a process
// allocates: one that nobody calls keeps its garbage for minutes, so that its memory does not tell what it still needs.
const { setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc');
process.on('SIGUSR2', () => collectGarbage());
