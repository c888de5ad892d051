/** The part of negotiator 1.1 that is used. Its published types describe 0.6, which has no order of preference. */
declare module 'negotiator' {
  export default class Negotiator {
    constructor(request: { headers: Record<string, string> });
    /**
     * The encodings of `available` that the client accepts, the best first; between equals the order of `preferred`
     * decides.
     */
    encodings(available: readonly string[], options: { preferred: readonly string[] }): string[];
  }
}
