// Device variables: which ones have an address that a recording must keep, and their initial bytes.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class Constant;
class DataLayout;
class GlobalValue;
class GlobalVariable;
class Module;
}  // namespace llvm

namespace r3 {

enum DeviceSpace : unsigned {
  as_generic = 0,
  as_global = 1,
  as_shared = 3,
  as_constant = 4,
  as_local = 5,
  as_param = 101
};

// A variable with state or a host-visible symbol, as opposed to constant data that only code refers to.
bool is_device_variable(const llvm::GlobalVariable& variable);

// The bytes of an initialiser. Pointers to globals are resolved by `address`; nothing if one of them has none.
std::optional<std::vector<char>> constant_bytes(
    const llvm::Constant& constant, const llvm::DataLayout& layout,
    const std::function<std::optional<std::uint64_t>(const llvm::GlobalValue&)>& address);

}  // namespace r3
