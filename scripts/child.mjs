import { spawn } from 'node:child_process';

/**
 * Runs a program to its end and returns `{ code, output }`. A signal to this process first ends the program, so that
 * nothing keeps running; `show` prints its output as it arrives.
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
      // Without our handlers the signal now ends this process as usual.
      if (signalled) process.kill(process.pid, signalled);
      else resolve({ code, output });
    });
  });
}
