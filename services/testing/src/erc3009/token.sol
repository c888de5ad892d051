// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// A token for tests with the EIP-712 domain of USDC on test networks. Its storage may be empty, for its code is put at the address of USDC.
contract TestUsdc is ERC20, ERC3009 {
    constructor() ERC20("USDC", "USDC") EIP712("USDC", "2") {}

    function name() public pure override returns (string memory) {
        return "USDC";
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    function mint(address account, uint256 value) external {
        _mint(account, value);
    }

    /// Several calls of this token in one transaction.
    function batch(bytes[] calldata calls) external {
        for (uint256 at = 0; at < calls.length; at++) {
            (bool succeeded, ) = address(this).call(calls[at]);
            require(succeeded);
        }
    }
}
