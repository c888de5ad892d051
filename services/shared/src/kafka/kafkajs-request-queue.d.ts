declare module 'kafkajs/src/network/requestQueue' {
  /** The requests of one connection to a broker; only the members that client.ts uses. */
  class RequestQueue {
    pending: readonly unknown[];
    scheduleCheckPendingRequests(): void;
  }
  export = RequestQueue;
}
