import vm from 'node:vm';
import NodeEnvironment from 'jest-environment-node';

/**
 * The environment of Node, whose global object is that of a plain context. In the one that jest makes, each access to a
 * global such as `Math` or `Buffer` calls back into C++ and a proxy, which took from a quarter to a half of the
 * processor time in profiles of workers. The proxy only removes what a suite has added to the global object at its end.
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
