#include "store/fat_binary.h"

#include <cstdint>
#include <cstring>

namespace r3 {
namespace {

struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  const void* more;
};
constexpr std::uint32_t wrapper_magic = 0x466243b1;

struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_size;
  std::uint64_t size;  // of what follows the header
};
constexpr std::uint32_t header_magic = 0xba55ed50;

std::uint32_t magic_of(const void* data) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, data, sizeof magic);
  return magic;
}

}  // namespace

std::optional<std::span<const std::byte>> fat_binary(const void* data) {
  if (!data) return std::nullopt;
  if (magic_of(data) == wrapper_magic) {
    Wrapper wrapper;
    std::memcpy(&wrapper, data, sizeof wrapper);
    data = wrapper.data;
  }
  if (!data || magic_of(data) != header_magic) return std::nullopt;
  Header header;
  std::memcpy(&header, data, sizeof header);
  return std::span(static_cast<const std::byte*>(data), header.header_size + header.size);
}

}  // namespace r3
