import type { Response } from 'express';

/** What is known about one request while it is answered; kept for its log line. */
export interface Exchange {
  requestId: string;
  startedAtMs: number;
  /** The path of the route, without values. */
  route?: string;
  appId?: string;
  /** Public code of the error that was answered. */
  code?: string;
  /** A caller with a key or a signature: the answer is for nobody else. */
  isPrivate: boolean;
  /** Methods that the path answers, collected while none of its routes was for this one. */
  allowed: Set<string>;
  /** Run once the response is closed. */
  releases: Array<() => void>;
}

const exchanges = new WeakMap<Response, Exchange>();

export function beginExchange(response: Response, exchange: Exchange): void {
  exchanges.set(response, exchange);
}

export function exchangeOf(response: Response): Exchange {
  const exchange = exchanges.get(response);
  if (!exchange) throw new Error('the request was not begun');
  return exchange;
}
