import { spawn } from 'node:child_process';

/**
 * Runs a program to its end and answers `{ code, output }`. A signal that ends us ends it first, so that nothing is
 * left running; `show` passes its output through as it comes.
 */
export function runChild(command, args, { cwd, env = process.env, show = false }) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env,
      stdio: show ? ['ignore', 'inherit', 'inherit'] : ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text) => (output += text));
    let signalled;
    const pass = (signal) => {
      signalled = signal;
      child.kill(signal);
    };
    process.on('SIGINT', pass).on('SIGTERM', pass);
    const done = () => process.off('SIGINT', pass).off('SIGTERM', pass);
    child.on('error', (error) => {
      done();
      reject(error);
    });
    child.on('close', (code) => {
      done();
      // With our own handlers gone the signal now ends us the way it was meant to.
      if (signalled) process.kill(process.pid, signalled);
      else resolve({ code, output });
    });
  });
}
