import type { Request } from 'express';
import { clientUrl } from '../http/address';
import type { Answer } from '../http/answer';
import type { Compression } from '../http/compression';
import type { GatewayConfig } from '../config';
import { StaticAnswer } from '../http/static-answer';
import type { DocsPage } from './page';

/** Pages cached by address. Clients can send any address, so the number is bounded. */
const cachedMax = 4;

/** The page at /docs, with the address that the client uses. */
export class DocsPages {
  private readonly cached = new Map<string, StaticAnswer>();

  constructor(
    private readonly page: DocsPage,
    private readonly compression: Compression,
    private readonly config: GatewayConfig,
  ) {}

  async for(request: Request): Promise<Answer> {
    const url = clientUrl(request, this.config);
    let answer = this.cached.get(url);
    if (!answer) {
      const page = this.page(url);
      if (this.cached.size >= cachedMax) return page;
      answer = new StaticAnswer(this.compression, page);
      this.cached.set(url, answer);
    }
    return answer.for(request);
  }
}
