import type { App } from '@granary/client';
import type { Command } from 'commander';
import { readProfiles } from '../profiles/profile-file.ts';
import { targetOf, type Target, type TargetFlags } from '../profiles/target.ts';
import { Terminal, type TerminalOptions } from '../terminal/terminal.ts';
import { connectApp, connectOperator, connectPublic, fetchWithLog, type ConnectOptions } from './connect.ts';

/** The options that every command takes. */
export interface GlobalOptions extends TargetFlags, TerminalOptions {
  /** Requests and their answers are told, without keys. */
  debug?: boolean | undefined;
}

/** Aborted by Ctrl-C. */
export const interruption = new AbortController();

/** A command that was called, with what it works with. */
export class Invocation<Options extends object = object> {
  readonly terminal: Terminal;
  readonly options: Options & GlobalOptions;
  readonly signal = interruption.signal;

  constructor(private readonly command: Command) {
    this.options = command.optsWithGlobals();
    this.terminal = new Terminal(process, this.options, this.signal);
  }

  /** The arguments in their order; `undefined` for one that may be left out, an array for the last of many. */
  args<Args extends unknown[]>(): Args {
    return this.command.processedArgs as Args;
  }

  /** The service, the app and the keys of the command; `app` is an app that an argument names. */
  async target(app = this.options.app): Promise<Target> {
    return targetOf({ ...this.options, app }, process.env, await readProfiles());
  }

  /** The app with its key; reads of everybody where there is none. */
  async app(options: ConnectOptions = {}): Promise<App> {
    return connectApp(await this.target(), { ...this.debugging, ...options });
  }

  /** For what both may do: the app's own key, or the operator's where there is no other. */
  async appOrOperator(app = this.options.app): Promise<App> {
    const target = await this.target(app);
    const isOperator = target.app !== undefined && target.appKey === undefined && target.operatorKey !== undefined;
    return isOperator ? connectOperator(target, this.debugging) : connectApp(target, this.debugging);
  }

  async operator(): Promise<App> {
    return connectOperator(await this.target(), this.debugging);
  }

  async everybody(options: ConnectOptions = {}): Promise<App> {
    return connectPublic(await this.target(), { ...this.debugging, ...options });
  }

  /** For what the client has no call of. */
  get fetch(): typeof fetch {
    const { debug } = this.debugging;
    return debug ? fetchWithLog(debug) : fetch;
  }

  private get debugging(): ConnectOptions {
    if (!this.options.debug) return {};
    return { debug: (line) => this.terminal.complain(this.terminal.styledMessage('dim', line)) };
  }
}

/** The action of a command, which `commander` calls. */
export const action = <Options extends object = object>(work: (call: Invocation<Options>) => Promise<void>) =>
  async function run(this: Command): Promise<void> {
    await work(new Invocation<Options>(this));
  };
