const timeoutMs = 5_000;

/** The host and the port that a connection leads to. */
export interface Target {
  host: string;
  port: number;
}

/**
 * The command by which a pod of the image tries connections to `targets`, all at once. It prints a JSON list of the
 * results: `open`, `timeout` where a policy drops the packets, or the code of another error.
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
