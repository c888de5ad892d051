import vm from 'node:vm';
import NodeEnvironment from 'jest-environment-node';

/**
 * The environment of Node, whose global object is that of a plain context. In the one that jest makes, each access to a global such
 * as `Math` or `Buffer` calls back into C++ and a proxy, which took a third to a half of the processor time of suites; and no suite
 * depends on what it is for, the removal of what a suite adds to the global object.
 */
export default class TestEnvironment extends NodeEnvironment {
  constructor(...options: ConstructorParameters<typeof NodeEnvironment>) {
    const { createContext } = vm;
    // The constructor of jest has no option for it.
    vm.createContext = () => createContext(vm.constants.DONT_CONTEXTIFY);
    try {
      super(...options);
    } finally {
      vm.createContext = createContext;
    }
  }
}
