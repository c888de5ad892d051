/** How the scalar of an indexed field is keyed, and how text from a URL is read for it; `any` where nothing is declared. */
export type FieldType = 'any' | 'string' | 'number' | 'boolean' | 'date';
