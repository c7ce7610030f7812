// Stackful coroutines: one per CUDA thread that may have to wait.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace r3 {

// Stacks for the fibres of one worker, each with a guard page below it. Kept from launch to launch.
class StackPool {
 public:
  explicit StackPool(std::size_t stack_bytes);
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  std::size_t stack_bytes() const { return stack_bytes_; }
  void* take();  // the stack's top; throws std::bad_alloc
  void give(void* top);
  bool contains(std::uint64_t address) const;  // in any stack or guard page
  bool is_guard(std::uint64_t address) const;

 private:
  struct Slab {
    std::uint64_t base, bytes;
  };
  std::size_t stack_bytes_;
  std::vector<Slab> slabs_;
  std::vector<void*> free_;
};

}  // namespace r3
