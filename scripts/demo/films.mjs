import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));

/** The films of vega-datasets; a film's id is its position in the file, so that loading them again updates them. */
export function readFilms() {
  const file = path.join(root, 'node_modules/vega-datasets/data/movies.json');
  let text;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new Error(`${file} cannot be read. Install the packages with npm ci.`, { cause: error });
  }
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
