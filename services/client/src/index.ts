export { App, granary, type BatchOperation, type BatchResult, type FeedTokenRequest } from './app.ts';
export type { GranaryOptions, Task, TaskStatus } from './app.ts';
export {
  Collection,
  type ConditionalOptions,
  type Definition,
  type FindOptions,
  type IndexDefinition,
  type PatchOptions,
  type PutOptions,
  type StoredBatch,
  type Versioned,
} from './collection.ts';
export { Records, type Page, type PageOptions } from './documents/records.ts';
export { GranaryError, type ErrorCode, type PaymentOffer } from './errors.ts';
export { ChangeFeed, type AppChangesOptions, type ChangesOptions, type Subscription } from './feed/changes.ts';
export type { Catalog, ChangeEvent, Notice, Progress, Put, Remove, Reset } from './feed/events.ts';
export { Live, type FollowOptions } from './feed/live.ts';
export { Blobs, type DownloadOptions, type UploadedBlob, type UploadOptions } from './files/blobs.ts';
export type { ByteSource } from './files/bytes-source.ts';
export type { Export, ExportedFile, ExportFileOptions, ExportOptions } from './files/export.ts';
export type { ImportOptions, ImportReport } from './files/import.ts';
export type { CallOptions, Payer, Secret, WriteOptions } from './http/transport.ts';
export { exactNumber, type Numbers } from './numbers.ts';
export type {
  AnyApp,
  AppTypes,
  Condition,
  Filter,
  Json,
  JsonObject,
  Patch,
  SortField,
  Stored,
  Written,
} from './types.ts';
export { PredefinedQuery, View } from './view.ts';
