// The recorder's device memory: every allocation of the application, at addresses that a replay can have again.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "driver/driver.h"
#include "snapshot/arena.h"

namespace r3::recorder {

// Where memory is asked for; by default on the current context's device.
struct Placement {
  std::optional<CUdevice> device;
  std::optional<CUstream> stream;  // may take what release_after() gave up in the same stream, at once
  CUmemoryPool pool = nullptr;     // told to those who ask the pointer
};

// A live allocation and what the driver would know of it.
struct Served {
  std::uint64_t base = 0, size = 0;  // as the application asked for it
  CUcontext context = nullptr;       // it ends with this one; null: mapped by the application itself
  CUmemoryPool pool = nullptr;
  std::uint64_t id = 0;  // unique in the process
};

// Virtual addresses in [arena_base, arena_base + arena_size) (snapshot/arena.h), reserved in full at the first
// allocation, backed by physical memory of the asking device as allocations need it and given back when they are freed.
// Thread-safe. Needs a current context.
class DeviceArena {
 public:
  DeviceArena();
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // The driver's promise of 512 bytes alignment (`alignment`: a power of two up to 2 MiB) and its codes:
  // CUDA_ERROR_OUT_OF_MEMORY and CUDA_ERROR_INVALID_VALUE (no bytes) are the application's to see;
  // CUDA_ERROR_NOT_SUPPORTED means that the arena cannot serve this one (the range is taken, no VMM, no context), so
  // that the driver should.
  CUresult allocate(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address, const Placement& where = {});

  // False: not the start of a live allocation. The memory may be given to the next that asks, so nothing on the device
  // may still use it (release), or only what lies in `stream` before this call (release_after), or what is in flight
  // while some stream captures, so that nobody may wait for it now (release_later).
  bool release(CUdeviceptr address);
  bool release_after(CUdeviceptr address, CUstream stream);
  bool release_later(CUdeviceptr address);
  // Gives back what lived in a context that is no more.
  void release_all(CUcontext context);

  // Lets kernels and copies of a device at what other devices have here, now and later, where the hardware can.
  void open_to(CUdevice device);

  // The application's own virtual memory management within the arena: an address range that it maps memory into.
  CUresult reserve(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address);
  bool unreserve(CUdeviceptr address, std::uint64_t size);  // false: no such reservation, or something is mapped there
  void mapped(CUdeviceptr address, std::uint64_t size);     // from now on live, as one allocation a call
  void unmapped(CUdeviceptr address, std::uint64_t size);   // about to be

  std::optional<Allocation> find(CUdeviceptr address) const;  // the live allocation that contains it
  std::optional<Served> block(CUdeviceptr address) const;     // likewise
  std::vector<Allocation> live() const;                       // sorted by base
  std::uint64_t idle(CUdevice device) const;  // bytes that are free, though the driver counts them as taken
  static bool owns(CUdeviceptr address) { return address - arena_base < arena_size; }

 private:
  friend class KeepMapped;
  struct State;
  State* state_;
};

// While one lives, nothing in the arena is unmapped: what other threads free stays readable, and what they unmap
// themselves waits.
class KeepMapped {
 public:
  KeepMapped();
  ~KeepMapped();
  KeepMapped(const KeepMapped&) = delete;
  KeepMapped& operator=(const KeepMapped&) = delete;
};

DeviceArena& arena();  // the process's; never destroyed, for applications free memory in their exit handlers

// Calls the driver for one context, the current one again afterwards.
class WithContext {
 public:
  explicit WithContext(CUcontext context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;
  explicit operator bool() const { return good_; }

 private:
  bool pushed_ = false, good_ = true;
};

}  // namespace r3::recorder
