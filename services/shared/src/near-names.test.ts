import { editDistance, nearestName } from './near-names';

describe('the nearest name', () => {
  it.each([
    ['recpes', 'recipes'],
    ['recieps', 'recipes'],
    ['recipse', 'recipes'],
    ['Recipes', 'recipes'],
    ['recipesss', 'recipes'],
    ['cipes', 'recipes'],
    ['nots', 'notes'],
    ['gtr', 'gt'],
  ])('of %s is %s, within two edits and in any case', (name, meant) => {
    expect(nearestName(name, ['people', 'recipes', 'notes', 'gt'])).toBe(meant);
  });

  it.each([
    ['recip', ['recipesx'], 'three edits'],
    ['xy', ['ab', 'x'], 'nothing in common'],
    ['recipes', ['recipes'], 'the name itself'],
    ['', ['a'], 'an empty name'],
    ['recipes', [], 'no candidates'],
  ])('of %j among %j is none: %s', (name, candidates) => {
    expect(nearestName(name, candidates)).toBeUndefined();
  });

  it('is the nearest of several, and the first of those that are as near', () => {
    expect(nearestName('notes', ['notices', 'votes', 'nodes'])).toBe('votes');
    expect(nearestName('notes', ['votes', 'Notes', 'nodes'])).toBe('Notes');
  });
});

it('is the distance of all pairs of short texts as counted without a limit', () => {
  const texts = ['', 'a', 'b', 'ab', 'ba', 'aab', 'aba', 'abab', 'baab', 'abcd', 'acbd', 'badc', 'dcba'];
  for (const from of texts) {
    for (const to of texts) {
      const whole = editDistance(from, to, 99);
      for (const limit of [0, 1, 2, 3]) {
        expect(Math.min(editDistance(from, to, limit), limit + 1)).toBe(Math.min(whole, limit + 1));
      }
    }
  }
});
