/** The place of a change in the log. */
interface Place {
  /** The cursor by which a feed goes on behind it; missing if another event of the same change follows. */
  cursor?: string;
  height: number;
  place: number;
  /** The collection of a document; a row has `view` in its place. */
  collection?: string;
  view?: string;
  /** The subscriptions that it is for, where there are several. */
  as?: string[];
  /** When it was committed, in RFC 3339. */
  at?: string;
  /** The last change of its commit for this feed. */
  last?: true;
}

/** A new version of a document, or a row that is new or has changed. */
export interface Put<D> extends Place {
  event: 'put';
  id: string;
  version?: number;
  sha256?: string | null;
  /** Null where the text is not stored any more; not there with `documents: false`. */
  document?: D | null;
}

/** A document or row that is not there for this feed any more. */
export interface Remove extends Place {
  event: 'remove';
  /** Not there where the whole collection was dropped, or only its hash may be told. */
  id?: string;
  id_sha256?: string;
  version?: number | null;
  reason: 'deleted' | 'filtered' | 'erased' | 'dropped';
}

/** The feed cannot go on from its cursor: read what is there anew. The next step of the feed throws CURSOR_GONE. */
export interface Reset {
  event: 'reset';
  code: string;
  message: string;
  cursor?: undefined;
}

/** The cursor has moved by changes that are not for this feed. */
export interface Progress {
  event: 'progress';
  cursor: string;
  /** The last commit of the app. */
  head: number;
}

/** Definitions of the app may have changed. */
export interface Catalog {
  event: 'catalog';
  cursor?: undefined;
}

export type ChangeEvent<D> = Put<D> | Remove | Reset;
export type Notice = Progress | Catalog;

/** The first event of a connection. */
export interface Ready {
  event: 'ready';
  head: number;
}

/** The last event of a connection. */
export interface End {
  event: 'end';
  code: string;
  message: string;
  retry: boolean;
  retry_after_ms?: number;
}
