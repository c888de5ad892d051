/** A live view that is whole, as those who change the documents of its sources need it. */
export interface LiveView {
  number: bigint;
  tableNumber: bigint;
  queryText: string;
  layoutText: string;
  sourceCollections: string[];
  /** Whether the changes of its rows are logged. */
  keepsChanges: boolean;
  /** The numbers of the source collections, by name. */
  sourceNumbers: ReadonlyMap<string, bigint>;
}

/** A live view in the JSON of the catalog, with numbers as text: a bigint does not fit a number of JSON. */
export interface LiveViewRow {
  number: string;
  table_number: string;
  query_text: string;
  layout_text: string;
  sources: string[];
  keeps_changes: boolean;
  source_numbers: Record<string, string>;
}

export const toLiveView = (view: LiveViewRow): LiveView => ({
  number: BigInt(view.number),
  tableNumber: BigInt(view.table_number),
  queryText: view.query_text,
  layoutText: view.layout_text,
  sourceCollections: view.sources,
  keepsChanges: view.keeps_changes,
  sourceNumbers: new Map(Object.entries(view.source_numbers).map(([name, number]) => [name, BigInt(number)])),
});
