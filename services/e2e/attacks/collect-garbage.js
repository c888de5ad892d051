'use strict';
// Preloaded into the process that is attacked: it collects all garbage at SIGUSR2. V8 does that by itself when a
// process allocates, which one does not that nobody calls any more: its memory would then show garbage for minutes,
// and not what is still referenced.

const { setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc');
process.on('SIGUSR2', () => collectGarbage());
