/** The part of jsdom that the tests use. Its published types add the DOM to the globals of every file. */
declare module 'jsdom' {
  export class JSDOM {
    constructor(html: string, options?: { runScripts?: 'outside-only' });
    readonly window: {
      document: { querySelectorAll(selector: string): Iterable<{ tabIndex: number }> };
      eval(script: string): unknown;
      close(): void;
    };
  }
}
