/** A file of the folder of an app, by its path in the folder. */
export interface FileFacts {
  file: string;
  bytes: number;
  sha256: string;
}

/** The list of the files of a collection, which are in the order of the documents that describe them. */
export interface ListFacts extends FileFacts {
  count: number;
  /** Bytes of the lines of the documents that describe them, which the service makes again at an upload. */
  document_bytes: number;
}

/** The file of the documents of a collection. */
export interface CollectionFacts extends FileFacts {
  name: string;
  /** All of them, also those that are deleted softly. */
  documents: number;
  /** Documents that look as if they described an uploaded file. */
  blobs: number;
  /** The files of the collection that are in the folder; undefined where there are none. */
  uploads?: ListFacts;
}

/** The contents of the folder of an app. It is written last, so that a folder that has it is whole. */
export interface Manifest {
  /** 2 where there are uploaded files, which programs of 0.1.0 and before would leave out without a word. */
  granary_export: 1 | 2;
  app: string;
  height: number;
  exported_at: string;
  collections: CollectionFacts[];
  files: FileFacts[];
  left_out: string[];
}
