// Cubins are ELF files.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace r3::recorder {

// How long the ELF file at `data` is, from its headers. Nothing: it is none, or of another kind than cubins are.
std::optional<std::size_t> elf_size(const void* data);

// The device variables that a cubin defines: objects in .nv.global, .nv.global.init and .nv.constant3.
std::vector<std::string> cubin_variables(std::span<const std::byte> cubin);

}  // namespace r3::recorder
