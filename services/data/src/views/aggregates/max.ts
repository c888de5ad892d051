import { extremeValue } from './extremes';

/** `$max`: the greatest value of a group. */
export const max = extremeValue('most');
