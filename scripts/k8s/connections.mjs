const timeoutMs = 5_000;

/**
 * The command by which a pod of the image tries connections to `targets`, as `{host, port}`, all at once. It prints a
 * list of JSON: `open`, `timeout`, as where a policy drops what comes, or the code of another error.
 */
export function connectCommand(targets) {
  const program = `const net = require('node:net');
    const open = ({ host, port }) => new Promise((done) => {
      const socket = net.connect({ host, port, timeout: ${timeoutMs} });
      const end = (found) => { socket.destroy(); done(found); };
      socket.on('connect', () => end('open')).on('timeout', () => end('timeout')).on('error', ({ code }) => end(code));
    });
    Promise.all(${JSON.stringify(targets)}.map(open)).then((all) => console.log(JSON.stringify(all)));`;
  return ['/usr/bin/node', '-e', program];
}
