import type { Request } from 'express';
import { clientUrl } from '../http/address';
import type { Answer } from '../http/answer';
import type { Compression } from '../http/compression';
import type { GatewayConfig } from '../config';
import { StaticAnswer } from '../http/static-answer';
import type { DocsPage } from './page';

/** Clients may invent addresses: more than these are not worth the memory. */
const keptMax = 4;

/** The page at /docs, which names the address that its reader uses. */
export class DocsPages {
  private readonly kept = new Map<string, StaticAnswer>();

  constructor(
    private readonly page: DocsPage,
    private readonly compression: Compression,
    private readonly config: GatewayConfig,
  ) {}

  async for(request: Request): Promise<Answer> {
    const url = clientUrl(request, this.config);
    let kept = this.kept.get(url);
    if (!kept) {
      const page = this.page(url);
      if (this.kept.size >= keptMax) return page;
      kept = new StaticAnswer(this.compression, page);
      this.kept.set(url, kept);
    }
    return kept.for(request);
  }
}
