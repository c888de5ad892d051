import { prepare } from './launch.mjs';

// A later release tests the upgrade from this one: it unpacks these sources and runs this script, so that the names and
// the build of this release stay its own business. Afterwards the services can run, and `buildImage` can pack them.
await prepare('services/operator');
