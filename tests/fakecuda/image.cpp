// What a device image says of its kernels and variables: PTX text, a cubin, or a fat binary that holds one of them.
#include <elf.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "fake.h"

namespace fake {
namespace {

// PTX -------------------------------------------------------------------------------------------------------------

std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    std::size_t end = at + 1;
    if (std::isspace(static_cast<unsigned char>(c))) {
      at = end;
      continue;
    }
    if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (text.substr(at, 2) == "/*") {
      at = std::min(text.find("*/", at), text.size() - 2) + 2;
      continue;
    }
    if (c == '"') {
      end = std::min(text.find('"', at + 1), text.size() - 1) + 1;
    } else if (!std::strchr(",;()[]{}=:@<>|", c)) {
      end = std::min(text.find_first_of(" \t\r\n,;()[]{}=:\"@<>|", at), text.size());
    }
    tokens.push_back(text.substr(at, end - at));
    at = end;
  }
  return tokens;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") ||
      text.starts_with("0D")) {
    text.remove_prefix(2);
    base = 16;
  }
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return negative ? -value : value;
}

std::size_t size_of_type(std::string_view type) {
  for (const std::size_t bits : {128, 64, 32, 16, 8}) {
    const std::string suffix = std::to_string(bits);
    if (type.size() == suffix.size() + 2 && type.starts_with('.') && type.ends_with(suffix) &&
        std::strchr("busf", type[1])) {
      return bits / 8;
    }
  }
  return 0;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens_of(text)) {}

  Image parse() {
    Image image;
    bool versioned = false, external = false;
    while (!finished()) {
      const auto token = next();
      if (token == ".version") versioned = true;
      if (token == ".extern") {
        external = true;
        continue;
      }
      if (token == ".entry") {
        image.entries.push_back(entry());
      } else if (token == ".func") {
        while (!finished() && peek() != "{" && peek() != ";") next();
        if (!finished() && next() == "{") body();
      } else if (token == ".global" || token == ".const") {
        Global found = global(token == ".const");
        if (!external) image.globals.push_back(std::move(found));
      }
      external = false;
    }
    require(versioned, CUDA_ERROR_INVALID_PTX);
    return image;
  }

 private:
  bool finished() const { return at_ >= tokens_.size(); }
  std::string_view peek() const {
    require(!finished(), CUDA_ERROR_INVALID_PTX);
    return tokens_[at_];
  }
  std::string_view next() {
    const auto token = peek();
    ++at_;
    return token;
  }

  struct Declaration {
    std::string name;
    std::size_t element, count, alignment;
  };

  // [.align N] .type [.ptr [.space] [.align N]] name[N]…
  Declaration declaration() {
    Declaration d{"", 0, 1, 0};
    while (peek().starts_with('.')) {
      const auto token = next();
      if (const std::size_t size = size_of_type(token)) d.element = size;
      if (token == ".align") {
        const std::size_t value = number(next());
        if (!d.element) d.alignment = value;
      }
      if (token == ".attribute") {
        while (next() != ")") {
        }
      }
    }
    d.name = next();
    while (!finished() && peek() == "[") {
      next();
      if (peek() != "]") d.count *= number(next());
      require(next() == "]", CUDA_ERROR_INVALID_PTX);
    }
    require(d.element, CUDA_ERROR_INVALID_PTX);
    if (!d.alignment) d.alignment = d.element;
    return d;
  }

  Entry entry() {
    Entry entry;
    entry.name = next();
    if (peek() == "(") {
      next();
      while (peek() != ")") {
        require(next() == ".param", CUDA_ERROR_INVALID_PTX);
        const Declaration d = declaration();
        const std::size_t offset = (entry.buffer + d.alignment - 1) / d.alignment * d.alignment;
        entry.parameters.push_back({offset, d.element * d.count});
        entry.buffer = offset + d.element * d.count;
        if (peek() == ",") next();
      }
      next();
    }
    while (peek() != "{" && peek() != ";") {
      const auto token = next();
      if (token != ".maxntid" && token != ".reqntid") continue;
      entry.max_threads = static_cast<int>(number(next()));
      while (peek() == ",") {
        next();
        entry.max_threads *= static_cast<int>(number(next()));
      }
    }
    if (next() == "{") std::tie(entry.instructions, entry.shared) = body();
    return entry;
  }

  // Up to the closing brace: how many statements, and how many bytes of shared memory.
  std::pair<std::size_t, std::size_t> body() {
    std::size_t statements = 0, shared = 0;
    for (int depth = 1; depth > 0;) {
      const auto token = next();
      depth += (token == "{") - (token == "}");
      statements += token == ";";
      if (token == ".shared") {
        const Declaration d = declaration();
        shared += d.element * d.count;
      }
    }
    return {statements, shared};
  }

  Global global(bool constant) {
    const Declaration d = declaration();
    Global global{d.name, d.element * d.count, std::vector<std::byte>(d.element * d.count), constant};
    std::size_t offset = 0;
    while (next() != ";") {
      const auto token = tokens_[at_ - 1];
      if (token.empty() || !(std::isdigit(static_cast<unsigned char>(token[0])) || token[0] == '-')) continue;
      const std::uint64_t value = number(token);
      if (offset + d.element > global.size) continue;
      std::memcpy(global.initial.data() + offset, &value, std::min<std::size_t>(d.element, 8));
      offset += d.element;
    }
    return global;
  }

  std::vector<std::string_view> tokens_;
  std::size_t at_ = 0;
};

// Cubins ----------------------------------------------------------------------------------------------------------

constexpr unsigned parameter_info = 0x17, parameter_bytes = 0x19, maximal_threads = 0x05;

void read_information(Entry& entry, const std::byte* from, std::size_t size) {
  std::map<unsigned, Parameter> parameters;  // by ordinal
  for (std::size_t at = 0; at + 4 <= size;) {
    const unsigned format = std::to_integer<unsigned>(from[at]), attribute = std::to_integer<unsigned>(from[at + 1]);
    std::uint16_t value;
    std::memcpy(&value, from + at + 2, 2);
    const std::byte* payload = from + at + 4;
    if (attribute == parameter_info && format == 4) {
      std::uint16_t ordinal, offset;
      std::uint32_t rest;
      std::memcpy(&ordinal, payload + 4, 2);
      std::memcpy(&offset, payload + 6, 2);
      std::memcpy(&rest, payload + 8, 4);
      parameters[ordinal] = {offset, rest >> 18};
    }
    if (attribute == parameter_bytes) entry.buffer = value;
    if (attribute == maximal_threads && format == 4) {
      std::uint32_t dimensions[3];
      std::memcpy(dimensions, payload, sizeof dimensions);
      entry.max_threads = static_cast<int>(dimensions[0] * dimensions[1] * dimensions[2]);
    }
    at += 4 + (format == 4 ? value : 0);
  }
  for (const auto& [ordinal, parameter] : parameters) entry.parameters.push_back(parameter);
}

Image read_cubin(const std::byte* file) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
  const auto* names = reinterpret_cast<const char*>(file + sections[header->e_shstrndx].sh_offset);
  Image image;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const std::string_view name = names + sections[i].sh_name;
    if (!name.starts_with(".text.")) continue;
    Entry entry;
    entry.name = name.substr(6);
    entry.instructions = sections[i].sh_size / 16;
    bool found = false;
    for (unsigned j = 0; j < header->e_shnum; ++j) {
      const std::string_view other = names + sections[j].sh_name;
      if (other == ".nv.info." + entry.name) {
        read_information(entry, file + sections[j].sh_offset, sections[j].sh_size);
      }
      if (other == ".nv.shared." + entry.name) entry.shared = sections[j].sh_size;
      found |= other == ".nv.constant0." + entry.name;  // a kernel's parameters: device functions have none
    }
    if (found) image.entries.push_back(std::move(entry));
  }
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file + sections[i].sh_offset);
    const auto* strings = reinterpret_cast<const char*>(file + sections[sections[i].sh_link].sh_offset);
    for (std::size_t k = 0; k < sections[i].sh_size / sizeof *symbols; ++k) {
      const Elf64_Sym& symbol = symbols[k];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= header->e_shnum) continue;
      const Elf64_Shdr& section = sections[symbol.st_shndx];
      const std::string_view where = names + section.sh_name;
      const bool constant = where.starts_with(".nv.constant3");
      if (!constant && !where.starts_with(".nv.global")) continue;
      Global global{strings + symbol.st_name, symbol.st_size, std::vector<std::byte>(symbol.st_size), constant};
      if (section.sh_type != SHT_NOBITS) {
        std::memcpy(global.initial.data(), file + section.sh_offset + symbol.st_value, symbol.st_size);
      }
      image.globals.push_back(std::move(global));
    }
  }
  return image;
}

// Fat binaries ----------------------------------------------------------------------------------------------------

constexpr std::uint32_t wrapper_magic = 0x466243b1, fat_magic = 0xba55ed50;

struct Wrapper {
  std::uint32_t magic, version;
  const std::byte* data;
};

struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};

struct FatEntry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t compressed_bytes;
};

Image read_fat_binary(const std::byte* file) {
  FatHeader header;
  std::memcpy(&header, file, sizeof header);
  const std::byte* end = file + header.header_bytes + header.bytes;
  for (const std::byte* at = file + header.header_bytes; at < end;) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    const std::byte* payload = at + entry.header_bytes;
    if (entry.compressed_bytes == 0 && entry.kind == 2) return read_cubin(payload);
    if (entry.compressed_bytes == 0 && entry.kind == 1) {
      return Parser({reinterpret_cast<const char*>(payload), entry.bytes}).parse();
    }
    at = payload + entry.bytes;
  }
  throw Failure{CUDA_ERROR_NO_BINARY_FOR_GPU};  // none that is not compressed
}

}  // namespace

std::shared_ptr<const Image> read_image(const void* data) {
  require(data, CUDA_ERROR_INVALID_VALUE);
  const auto* bytes = static_cast<const std::byte*>(data);
  std::uint32_t magic;
  std::memcpy(&magic, data, 1);  // a text may be no longer than its terminator
  if (std::to_integer<int>(bytes[0]) == 0) throw Failure{CUDA_ERROR_INVALID_IMAGE};
  std::memcpy(&magic, data, sizeof magic);
  if (magic == wrapper_magic) {
    Wrapper wrapper;
    std::memcpy(&wrapper, data, sizeof wrapper);
    return read_image(wrapper.data);
  }
  if (magic == fat_magic) return std::make_shared<Image>(read_fat_binary(bytes));
  if (std::memcmp(data, ELFMAG, SELFMAG) == 0) return std::make_shared<Image>(read_cubin(bytes));
  const std::string_view text = static_cast<const char*>(data);
  require(std::ranges::all_of(text.substr(0, 64), [](unsigned char c) { return std::isprint(c) || std::isspace(c); }),
          CUDA_ERROR_INVALID_IMAGE);
  return std::make_shared<Image>(Parser(text).parse());
}

}  // namespace fake
