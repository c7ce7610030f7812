// Device memory: every block that the application holds, whatever call it came from. All but registered host memory
// lies in the arena, so that a recording finds it at the same address.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "snapshot/arena.h"

namespace r3::hostcuda {

struct Block {
  enum class Kind { device, pinned, managed, variable, managed_variable, registered };
  std::uint64_t base = 0, size = 0;
  Kind kind = Kind::device;
  unsigned flags = 0;  // of the call that made it

  bool in_arena() const { return kind != Kind::registered; }
};

class Memory {
 public:
  std::uint64_t allocate(std::uint64_t size, Block::Kind kind, unsigned flags = 0);  // 0: out of memory
  bool release(std::uint64_t base, std::initializer_list<Block::Kind> kinds);        // false: no such block
  void release_all(std::initializer_list<Block::Kind> kinds);

  bool register_host(std::uint64_t base, std::uint64_t size, unsigned flags);  // false: overlaps a block
  bool unregister_host(std::uint64_t base) { return release(base, {Block::Kind::registered}); }

  std::optional<Block> find(std::uint64_t address) const;  // the block that contains it
  std::vector<Block> blocks() const;                       // sorted by base
  bool contains(std::uint64_t address, std::uint64_t size) const;

  std::uint64_t total() const;  // bytes of the machine's memory that are the device's
  std::uint64_t used() const;

  const Arena& arena() const { return arena_; }

 private:
  Arena arena_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t used_ = 0;
};

// The process's one. Throws std::system_error when the arena's addresses are taken.
Memory& memory();

inline std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
inline void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

inline bool arena_address(std::uint64_t address) { return address - arena_base < arena_size; }

}  // namespace r3::hostcuda
