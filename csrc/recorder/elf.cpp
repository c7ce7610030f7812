#include "recorder/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace r3::recorder {
namespace {

using Bytes = std::span<const std::byte>;

// An entry of a table in the file; nothing: the file ends before.
template <class T>
std::optional<T> at(Bytes file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::string_view text_at(Bytes file, const Elf64_Shdr& table, std::uint64_t offset) {
  if (table.sh_offset > file.size() || table.sh_size > file.size() - table.sh_offset || offset >= table.sh_size) {
    return {};
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + table.sh_offset + offset);
  return {text, strnlen(text, table.sh_size - offset)};
}

}  // namespace

std::optional<std::size_t> elf_size(const void* data) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return std::nullopt;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ehsize != sizeof header ||
      (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)) ||
      (header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr))) {
    return std::nullopt;
  }
  std::uint64_t end = std::max({std::uint64_t{header.e_ehsize}, header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr),
                                header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr)});
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes + header.e_phoff + i * sizeof segment, sizeof segment);
    end = std::max(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

std::vector<std::string> cubin_variables(Bytes cubin) {
  const auto header = at<Elf64_Ehdr>(cubin, 0);
  if (!header) return {};
  const auto section = [&](std::uint64_t index) {
    return at<Elf64_Shdr>(cubin, header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto names = section(header->e_shstrndx);
  std::vector<std::string> found;
  for (unsigned i = 0; names && i < header->e_shnum; ++i) {
    const auto symbols = section(i);
    if (!symbols || symbols->sh_type != SHT_SYMTAB) continue;
    const auto texts = section(symbols->sh_link);
    for (std::uint64_t entry = 0; texts && entry + sizeof(Elf64_Sym) <= symbols->sh_size; entry += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(cubin, symbols->sh_offset + entry);
      if (!symbol) break;
      if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_shndx == SHN_UNDEF) continue;
      const auto where = section(symbol->st_shndx);
      const std::string_view place = where ? text_at(cubin, *names, where->sh_name) : std::string_view{};
      const std::string_view name = text_at(cubin, *texts, symbol->st_name);
      const bool variable = place == ".nv.global" || place == ".nv.global.init" || place == ".nv.constant3";
      // Those of the compiler's own making ("$str") cannot change.
      if (variable && !name.empty() && name.find('$') == std::string_view::npos) found.emplace_back(name);
    }
  }
  return found;
}

}  // namespace r3::recorder
