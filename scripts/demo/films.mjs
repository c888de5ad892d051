import { readFileSync } from 'node:fs';
import { fileOfPackage } from '../npm-package.mjs';

/**
 * @typedef {{ id: string, Title: string | number | null, 'Major Genre': string | null, 'IMDB Rating': number | null,
 *   'US Gross': number | null }} Film What the demo reads of a film, which has more.
 */

/** Beyond the packages of package.json, because it is 42 MB, and nothing but the demo reads a file of it. */
const datasets = {
  name: 'vega-datasets',
  version: '3.2.1',
  integrity: 'sha512-lTSwZA6yq6qSU2YZm+6bqILiIvTPPxn4itir7jPGFmHIdPvUfQ9pCzzcrklYywMJgLUbaIeSkZQdiJd6wBxPug==',
};

/**
 * The films of vega-datasets; a film's id is its position in the file, so that loading them again updates them.
 * @returns {Promise<Film[]>}
 */
export async function readFilms() {
  const text = readFileSync(await fileOfPackage(datasets, 'data/movies.json'), 'utf8');
  /** @type {Omit<Film, 'id'>[]} */
  const films = JSON.parse(text);
  return films.map((film, index) => ({ id: `film-${String(index + 1).padStart(4, '0')}`, ...film }));
}

/** The rating of a film, 0 if it has none. @param {Film} film */
export const ratingOf = (film) => film['IMDB Rating'] ?? 0;

/**
 * The expected contents of the view: number and mean of rated films by genre (null is a genre too).
 * @param {Film[]} films
 */
export function ratingsByGenre(films) {
  /** @type {Map<string | null, { films: number, sum: number }>} */
  const genres = new Map();
  for (const { 'Major Genre': genre, 'IMDB Rating': rating } of films) {
    if (rating === null) continue;
    const totals = genres.get(genre) ?? { films: 0, sum: 0 };
    genres.set(genre, { films: totals.films + 1, sum: totals.sum + rating });
  }
  return new Map([...genres].map(([genre, { films, sum }]) => [genre, { films, mean: sum / films }]));
}
