// The fat binary: how nvcc and clang wrap the device images of one translation unit.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

namespace r3 {

// The fat binary's bytes, header and body, that `data` is or points to: it may also be the wrapper that the compilers
// pass to __cudaRegisterFatBinary. Nothing: it is neither. Their hash is the name of the image in the store.
std::optional<std::span<const std::byte>> fat_binary(const void* data);

}  // namespace r3
