declare module 'kafkajs/src/network/requestQueue' {
  /** The requests of one connection to a broker; only what kafka.ts mends. */
  class RequestQueue {
    pending: readonly unknown[];
    scheduleCheckPendingRequests(): void;
  }
  export = RequestQueue;
}
