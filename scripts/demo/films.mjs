import { readFileSync } from 'node:fs';
import { fileOfPackage } from '../npm-package.mjs';

/** Beyond the packages of package.json, because it is 42 MB, and nothing but the demo reads a file of it. */
const datasets = {
  name: 'vega-datasets',
  version: '3.2.1',
  integrity: 'sha512-lTSwZA6yq6qSU2YZm+6bqILiIvTPPxn4itir7jPGFmHIdPvUfQ9pCzzcrklYywMJgLUbaIeSkZQdiJd6wBxPug==',
};

/** The films of vega-datasets; a film's id is its position in the file, so that loading them again updates them. */
export async function readFilms() {
  const text = readFileSync(await fileOfPackage(datasets, 'data/movies.json'), 'utf8');
  return JSON.parse(text).map((film, at) => ({ id: `film-${String(at + 1).padStart(4, '0')}`, ...film }));
}

/** The expected contents of the view: number and mean of rated films by genre (null is a genre too). */
export function ratingsByGenre(films) {
  const genres = new Map();
  for (const { 'Major Genre': genre, 'IMDB Rating': rating } of films) {
    if (rating === null) continue;
    const known = genres.get(genre) ?? { films: 0, sum: 0 };
    genres.set(genre, { films: known.films + 1, sum: known.sum + rating });
  }
  return new Map([...genres].map(([genre, { films, sum }]) => [genre, { films, mean: sum / films }]));
}
