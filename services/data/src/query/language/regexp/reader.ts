/** An expression that is not one, or one that is not supported: at which of its characters, from 1, and why. */
export class RegexpSyntaxError extends Error {
  constructor(
    readonly position: number,
    readonly reason: string,
  ) {
    super(`at character ${position}: ${reason}`);
  }
}

/** Reads the characters of an expression one after the other. */
export class Reader {
  at = 0;

  constructor(readonly characters: readonly string[]) {}

  get isAtEnd(): boolean {
    return this.at >= this.characters.length;
  }

  peek(ahead = 0): string | undefined {
    return this.characters[this.at + ahead];
  }

  /** The next character. Throws where the expression ends. */
  next(reasonAtEnd: string, start: number): string {
    const character = this.characters[this.at];
    if (character === undefined) throw this.error(start, reasonAtEnd);
    this.at += 1;
    return character;
  }

  /** Whether the given text comes next; it is then read. */
  take(text: string): boolean {
    for (let ahead = 0; ahead < text.length; ahead += 1) if (this.peek(ahead) !== text[ahead]) return false;
    this.at += text.length;
    return true;
  }

  /** Reads to the end of the next occurrence of a text, and returns what comes before it; undefined without one. */
  takeThrough(text: string): string | undefined {
    for (let end = this.at; end + text.length <= this.characters.length; end += 1) {
      if (this.characters.slice(end, end + text.length).join('') !== text) continue;
      const before = this.characters.slice(this.at, end).join('');
      this.at = end + text.length;
      return before;
    }
    return undefined;
  }

  /** `start` is the place of the part that is wrong. */
  error(start: number, reason: string): RegexpSyntaxError {
    return new RegexpSyntaxError(start + 1, reason);
  }
}
