import { extremeValue } from './extremes';

/** `$min`: the least value of a group. */
export const min = extremeValue('least');
