/** The part of jsdom that the tests use. Its published types add the DOM to the globals of every file. */
declare module 'jsdom' {
  interface PageElement {
    tabIndex: number;
    localName: string;
    textContent: string;
    getAttribute(name: string): string | null;
  }

  export class JSDOM {
    constructor(html: string, options?: { runScripts?: 'outside-only' });
    readonly window: {
      document: { querySelectorAll(selector: string): Iterable<PageElement> };
      eval(script: string): unknown;
      close(): void;
    };
  }
}
