// The recorder's device memory: every allocation of the application, at addresses that a replay can have again.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "driver/driver.h"
#include "snapshot/arena.h"

namespace r3::recorder {

// Virtual addresses in [arena_base, arena_base + arena_size) (snapshot/arena.h), reserved in full at the first
// allocation, backed by physical memory of the asking device as allocations need it and given back when they are freed.
// Thread-safe. Needs a current context.
class DeviceArena {
 public:
  DeviceArena();
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // The driver's promise of 512 bytes alignment (`alignment`: a power of two) and its codes: CUDA_ERROR_OUT_OF_MEMORY
  // and CUDA_ERROR_INVALID_VALUE (no bytes) are the application's to see; CUDA_ERROR_NOT_SUPPORTED means that the arena
  // cannot serve this one (the range is taken, no VMM), so that the driver should.
  CUresult allocate(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address);

  // False: not the start of a live allocation. The memory may be given to the next that asks, so nothing on the device
  // may still use it (release), or only what lies in `stream` before this call (release_after).
  bool release(CUdeviceptr address);
  bool release_after(CUdeviceptr address, CUstream stream);

  // The application's own virtual memory management within the arena: an address range that it maps memory into.
  CUresult reserve(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address);
  bool unreserve(CUdeviceptr address, std::uint64_t size);  // false: no such reservation
  void mapped(CUdeviceptr address, std::uint64_t size);     // from now on live, as one allocation a call
  void unmapped(CUdeviceptr address, std::uint64_t size);

  std::optional<Allocation> find(CUdeviceptr address) const;  // the live allocation that contains it
  std::vector<Allocation> live() const;                       // sorted by base
  static bool owns(CUdeviceptr address) { return address - arena_base < arena_size; }

 private:
  struct State;
  State* state_;
};

DeviceArena& arena();  // the process's; never destroyed, for applications free memory in their exit handlers

}  // namespace r3::recorder
