/**
 * How the scalar of an indexed field is keyed, and how text from a URL is read for it; `any` where nothing is declared.
 * A `day` is a date without a time, an `integer` a number without a fraction: they compare as dates and numbers do.
 */
export type FieldType = 'any' | 'string' | 'number' | 'integer' | 'boolean' | 'date' | 'day';

/** Whether texts of a field compare as instants. */
export const isDateType = (type: FieldType): boolean => type === 'date' || type === 'day';
