const timeoutMs = 5_000;

/** Where a connection leads. */
export interface Target {
  host: string;
  port: number;
}

/**
 * The command by which a pod of the image tries connections to `targets`, all at once. It prints a
 * list of JSON: `open`, `timeout`, as where a policy drops what comes, or the code of another error.
 */
export function connectCommand(targets: readonly Target[]): string[] {
  const program = `const net = require('node:net');
    const open = ({ host, port }) => new Promise((done) => {
      const socket = net.connect({ host, port, timeout: ${timeoutMs} });
      const end = (result) => { socket.destroy(); done(result); };
      socket.on('connect', () => end('open')).on('timeout', () => end('timeout')).on('error', ({ code }) => end(code));
    });
    Promise.all(${JSON.stringify(targets)}.map(open)).then((all) => console.log(JSON.stringify(all)));`;
  return ['/usr/bin/node', '-e', program];
}
