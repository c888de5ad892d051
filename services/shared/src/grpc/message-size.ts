/** The largest message in either direction: a result of 32 MiB and its envelope. */
export const messageBytesMax = 40 * 1024 * 1024;
