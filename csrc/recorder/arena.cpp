#include "recorder/arena.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "recorder/capturing.h"
#include "recorder/context.h"
#include "recorder/log.h"

namespace r3::recorder {
namespace {

constexpr std::uint64_t MiB = 1 << 20;
constexpr std::uint64_t grain = 512;            // of small allocations
constexpr std::uint64_t small_below = MiB;      // larger ones have physical memory of their own
constexpr std::uint64_t page = 2 * MiB;         // the least physical memory that the driver gives out
constexpr std::uint64_t host_page = 4096;       // what reservations are multiples of
constexpr std::uint64_t keep_empty = 64 * MiB;  // of slabs, a device
constexpr int ask_at_most = 8;                  // events that are still to come, before an allocation stops asking
constexpr std::uint64_t reservable = arena_size / 4 * 3;  // for the application's own reservations, in all

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Free ranges, never adjacent.
class Gaps {
 public:
  void give(std::uint64_t base, std::uint64_t length) {
    auto next = ranges_.lower_bound(base);
    if (next != ranges_.end() && base + length == next->first) {
      length += next->second;
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second == base) {
      --next;
      length = next->second += length;
    } else {
      ranges_.emplace_hint(next, base, length);
    }
    largest_ = std::max(largest_, length);
  }

  std::optional<std::uint64_t> take_first(std::uint64_t length) {
    if (length > largest_) return std::nullopt;
    std::uint64_t largest = 0;
    for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
      const auto [base, room] = *range;
      if (room < length) {
        largest = std::max(largest, room);
        continue;
      }
      ranges_.erase(range);
      if (room > length) ranges_.emplace(base + length, room - length);
      return base;
    }
    largest_ = largest;
    return std::nullopt;
  }

  std::optional<std::uint64_t> take_last(std::uint64_t length, std::uint64_t alignment) {
    for (auto range = ranges_.rbegin(); range != ranges_.rend(); ++range) {
      const auto [base, room] = *range;
      if (room < length) continue;
      const std::uint64_t at = (base + room - length) & ~(alignment - 1);
      if (at < base) continue;
      ranges_.erase(base);
      if (at > base) ranges_.emplace(base, at - base);
      if (at + length < base + room) ranges_.emplace(at + length, base + room - at - length);
      return at;
    }
    return std::nullopt;
  }

  bool is_all(std::uint64_t length) const { return ranges_.size() == 1 && ranges_.begin()->second == length; }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // base → length
  std::uint64_t largest_ = 0;                      // none is longer
};

bool has(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver().cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

std::optional<std::uint64_t> stream_id(CUstream stream) {
  unsigned long long id = 0;
  if (!driver().cuStreamGetId || driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return std::nullopt;
  return id;
}

}  // namespace

WithContext::WithContext(CUcontext context) {
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  if (current == context) return;
  good_ = pushed_ = driver().cuCtxPushCurrent(context) == CUDA_SUCCESS;
}

WithContext::~WithContext() {
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

struct DeviceArena::State {
  enum class Kind { small, large, application };
  struct Held {
    Served block;
    std::uint64_t footprint;
    CUdevice device;
    Kind kind;
  };
  struct Device {
    std::uint64_t granularity = 0;  // 0: cannot serve
    bool rdma = false;
    std::uint64_t empty = 0;  // bytes of slabs with nothing in them
  };
  struct Chunk {  // physical memory
    std::uint64_t length;
    CUdevice device;
  };
  struct Slab {
    CUdevice device;
    std::uint64_t length;
    Gaps gaps;
  };
  struct Pending {  // given up, perhaps still in use on the device
    Held held;
    CUevent event;                        // null: until the context has been synchronised
    std::optional<std::uint64_t> stream;  // its unique number
  };

  mutable std::mutex mutex;
  unsigned keepers = 0;                                       // KeepMapped
  std::vector<std::pair<std::uint64_t, std::uint64_t>> kept;  // to be unmapped after the last
  std::condition_variable none_kept;
  bool tried = false, usable = false;
  Gaps addresses;
  std::map<CUdevice, Device> devices;
  std::set<CUdevice> accessors;
  std::map<std::uint64_t, Chunk> chunks;
  std::map<std::uint64_t, Slab> slabs;
  std::map<std::uint64_t, Held> live;
  std::vector<Pending> pending;
  std::map<CUcontext, std::vector<CUevent>> events;  // to be used again
  std::map<CUcontext, unsigned long long> context_ids;
  std::map<std::uint64_t, std::uint64_t> reservations;
  std::uint64_t reserved = 0, next_id = 1ull << 62;  // the driver's own numbers start from 1

  bool ready() {
    if (tried) return usable;
    tried = true;
    CUdeviceptr at = 0;
    if (!driver().cuMemAddressReserve || !driver().cuMemCreate) {
      say_once("the driver has no virtual memory management: memory has no fixed addresses, nothing can be recorded");
      return false;
    }
    const CUresult code = driver().cuMemAddressReserve(&at, arena_size, 0, arena_base, 0);
    if (code == CUDA_SUCCESS && at == arena_base) {
      addresses.give(arena_base, arena_size);
      return usable = true;
    }
    if (code == CUDA_SUCCESS) driver().cuMemAddressFree(at, arena_size);
    say_once("cannot reserve 1 TiB at 0x300000000000 (cuMemAddressReserve: " +
             (code == CUDA_SUCCESS ? std::string("another address") : error_name(code)) +
             "): memory has no fixed addresses, nothing can be recorded; lift any `ulimit -v`, switch sanitizers off");
    return false;
  }

  Device& device(CUdevice id) {
    const auto [found, fresh] = devices.try_emplace(id);
    if (fresh) {
      std::size_t granularity = 0;
      CUmemAllocationProp properties = properties_on(id, false);
      if (has(id, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
          driver().cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
              CUDA_SUCCESS) {
        found->second.granularity = std::max<std::uint64_t>(granularity, page);
      } else {
        say_once("device " + std::to_string(id) + " has no virtual memory management: its memory cannot be recorded");
      }
      found->second.rdma = has(id, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
      open_to(id);  // copies between devices go without peer access for the driver's own memory, not for this
    }
    return found->second;
  }

  static CUmemAllocationProp properties_on(CUdevice id, bool rdma) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id};
    properties.allocFlags.gpuDirectRDMACapable = rdma;
    return properties;
  }

  static CUmemAccessDesc access_of(CUdevice id) {
    return {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }

  static bool can_access(CUdevice accessor, CUdevice owner) {
    int can = 0;
    return driver().cuDeviceCanAccessPeer(&can, accessor, owner) == CUDA_SUCCESS && can != 0;
  }

  void open_to(CUdevice accessor) {
    if (!accessors.insert(accessor).second) return;
    for (const auto& [base, chunk] : chunks) {
      if (chunk.device == accessor || !can_access(accessor, chunk.device)) continue;
      const CUmemAccessDesc access = access_of(accessor);
      const CUresult code = driver().cuMemSetAccess(base, chunk.length, &access, 1);
      if (code != CUDA_SUCCESS) say_once("peer access to recorded memory: cuMemSetAccess: " + error_name(code));
    }
  }

  // Physical memory at [base, base + length).
  CUresult commit(std::uint64_t base, std::uint64_t length, CUdevice id) {
    bool& rdma = devices[id].rdma;
    CUmemAllocationProp properties = properties_on(id, rdma);
    CUmemGenericAllocationHandle handle = 0;
    CUresult code = driver().cuMemCreate(&handle, length, &properties, 0);
    if (rdma && code != CUDA_SUCCESS && code != CUDA_ERROR_OUT_OF_MEMORY) {  // the device can, the machine cannot
      properties = properties_on(id, rdma = false);
      code = driver().cuMemCreate(&handle, length, &properties, 0);
    }
    if (code != CUDA_SUCCESS) return code;
    code = driver().cuMemMap(base, length, 0, handle, 0);
    driver().cuMemRelease(handle);  // the mapping keeps the memory
    if (code != CUDA_SUCCESS) return code;
    std::vector<CUmemAccessDesc> access{access_of(id)};
    for (const CUdevice other : accessors) {
      if (other != id && can_access(other, id)) access.push_back(access_of(other));
    }
    code = driver().cuMemSetAccess(base, length, access.data(), access.size());
    if (code == CUDA_SUCCESS) {
      chunks[base] = {length, id};
    } else {
      driver().cuMemUnmap(base, length);
    }
    return code;
  }

  void decommit(std::uint64_t base, std::uint64_t length) {
    if (keepers != 0) {
      kept.emplace_back(base, length);
      return;
    }
    chunks.erase(base);
    const CUresult code = driver().cuMemUnmap(base, length);
    if (code == CUDA_SUCCESS) {
      addresses.give(base, length);
    } else if (code != CUDA_ERROR_DEINITIALIZED) {  // the range stays out of use
      say_once("freed memory was not given back: cuMemUnmap: " + error_name(code));
    }
  }

  // Addresses with memory behind them.
  CUresult take(std::uint64_t length, CUdevice id, std::uint64_t* base) {
    const auto at = addresses.take_first(length);
    if (!at) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult code = commit(*at, length, id);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) addresses.give(*at, length);  // else something is wrong with the range
    *base = *at;
    return code;
  }

  CUresult place(Held& held) {
    if (held.kind == Kind::large) return take(held.footprint, held.device, &held.block.base);
    Device& on = devices[held.device];
    for (auto& [start, slab] : slabs) {
      if (slab.device != held.device) continue;
      const bool empty = slab.gaps.is_all(slab.length);
      const auto at = slab.gaps.take_first(held.footprint);
      if (!at) continue;
      if (empty) on.empty -= slab.length;
      held.block.base = *at;
      return CUDA_SUCCESS;
    }
    std::uint64_t start = 0;
    const std::uint64_t length = on.granularity;
    if (const CUresult code = take(length, held.device, &start); code != CUDA_SUCCESS) return code;
    Slab& slab = slabs[start] = {held.device, length, {}};
    slab.gaps.give(start, length);
    held.block.base = *slab.gaps.take_first(held.footprint);
    return CUDA_SUCCESS;
  }

  void free(const Held& held) {
    if (held.kind == Kind::large) return decommit(held.block.base, held.footprint);
    const auto at = std::prev(slabs.upper_bound(held.block.base));
    Slab& slab = at->second;
    slab.gaps.give(held.block.base, held.footprint);
    if (!slab.gaps.is_all(slab.length)) return;
    Device& on = devices[held.device];
    if (on.empty + slab.length <= keep_empty) {
      on.empty += slab.length;
      return;
    }
    const auto [start, length] = std::pair(at->first, slab.length);
    slabs.erase(at);
    decommit(start, length);
  }

  void drop_empty() {
    for (auto at = slabs.begin(); at != slabs.end();) {
      const auto [start, slab] = std::pair(at->first, &at->second);
      if (!slab->gaps.is_all(slab->length)) {
        ++at;
        continue;
      }
      const std::uint64_t length = slab->length;
      devices[slab->device].empty -= length;
      at = slabs.erase(at);
      decommit(start, length);
    }
  }

  CUevent event_in(CUcontext context) {
    auto& spare = events[context];
    CUevent event = nullptr;
    if (!spare.empty()) {
      event = spare.back();
      spare.pop_back();
    } else if (driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      return nullptr;
    }
    return event;
  }

  void recycle(CUcontext context, CUevent event) {
    if (event) events[context].push_back(event);
  }

  // After a kernel's fault every call fails, and so must an allocation for which no other call is made.
  bool broken(CUcontext context) {
    const CUevent event = event_in(context);
    const CUresult code = event ? driver().cuEventQuery(event) : CUDA_ERROR_UNKNOWN;
    recycle(context, event);
    return code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY;
  }

  static bool done(const Pending& given_up, bool wait) {
    if (capturing()) return false;
    if (!given_up.event) {
      const WithContext owner(given_up.held.block.context);
      return !owner || driver().cuCtxSynchronize() != CUDA_ERROR_NOT_READY;
    }
    const CUresult code = wait ? driver().cuEventSynchronize(given_up.event) : driver().cuEventQuery(given_up.event);
    return code != CUDA_ERROR_NOT_READY;  // after any other error nothing runs in that context any more
  }

  // What lived in a context that is no more.
  void forget(CUcontext context) {
    events.erase(context);
    std::erase_if(pending, [&](const Pending& given_up) {
      if (given_up.held.block.context != context) return false;
      free(given_up.held);
      return true;
    });
    std::erase_if(live, [&](const auto& entry) {
      const Held& held = entry.second;
      if (held.block.context != context || held.kind == Kind::application) return false;
      free(held);
      return true;
    });
    drop_empty();
  }

  // A context whose end we did not see, and whose handle has been given to another.
  void recognise(CUcontext context) {
    unsigned long long id = 0;
    if (!driver().cuCtxGetId || driver().cuCtxGetId(context, &id) != CUDA_SUCCESS) return;
    const auto [known, fresh] = context_ids.try_emplace(context, id);
    if (!fresh && std::exchange(known->second, id) != id) forget(context);
  }

  // Frees what the device has finished with.
  void collect(bool wait) {
    int busy = 0;
    std::erase_if(pending, [&](const Pending& given_up) {
      if (busy >= ask_at_most) return false;
      if (!done(given_up, wait)) {
        ++busy;
        return false;
      }
      recycle(given_up.held.block.context, given_up.event);
      free(given_up.held);
      return true;
    });
  }

  // What the same stream gave up is behind all that used it, for whatever this stream does next.
  bool reuse(Held& held, std::optional<std::uint64_t> stream) {
    if (!stream) return false;
    for (auto at = pending.begin(); at != pending.end(); ++at) {
      const Held& old = at->held;
      if (at->stream != stream || old.device != held.device || old.footprint != held.footprint ||
          old.kind != held.kind) {
        continue;
      }
      held.block.base = old.block.base;
      recycle(at->held.block.context, at->event);
      pending.erase(at);
      return true;
    }
    return false;
  }

  std::optional<Held> give_up(CUdeviceptr address) {
    const auto found = live.find(address);
    if (found == live.end() || found->second.kind == Kind::application) return std::nullopt;
    const Held held = found->second;
    live.erase(found);
    return held;
  }

  const Held* holding(CUdeviceptr address) const {
    const auto after = live.upper_bound(address);
    if (after == live.begin()) return nullptr;
    const Held& held = std::prev(after)->second;
    return address - held.block.base < held.block.size ? &held : nullptr;
  }
};

DeviceArena::DeviceArena() : state_(new State) {}
DeviceArena::~DeviceArena() { delete state_; }

CUresult DeviceArena::allocate(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address,
                               const Placement& where) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  State::Held held{};
  if (driver().cuCtxGetCurrent(&held.block.context) != CUDA_SUCCESS || !held.block.context ||
      driver().cuCtxGetDevice(&held.device) != CUDA_SUCCESS) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  held.device = where.device.value_or(held.device);
  const auto stream = where.stream ? stream_id(*where.stream) : std::nullopt;

  const std::lock_guard lock(state_->mutex);
  const Relaxed relaxed;
  if (!state_->ready()) return CUDA_ERROR_NOT_SUPPORTED;
  state_->recognise(held.block.context);
  if (state_->broken(held.block.context)) return CUDA_ERROR_NOT_SUPPORTED;
  const std::uint64_t granularity = state_->device(held.device).granularity;
  if (granularity == 0 || size > arena_size || alignment > page) return CUDA_ERROR_NOT_SUPPORTED;
  held.kind = size < small_below && alignment <= grain ? State::Kind::small : State::Kind::large;
  held.footprint = round_up(size, held.kind == State::Kind::small ? grain : granularity);
  if (!state_->reuse(held, stream)) {
    state_->collect(false);
    CUresult code = state_->place(held);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
      state_->collect(true);
      state_->drop_empty();
      code = state_->place(held);
    }
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return code;
    if (code != CUDA_SUCCESS) {
      if (code != CUDA_ERROR_NOT_SUPPORTED) say_once("memory at a fixed address: " + error_name(code));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  held.block.size = size;
  held.block.pool = where.pool;
  held.block.id = state_->next_id++;
  state_->live[held.block.base] = held;
  *address = held.block.base;
  return CUDA_SUCCESS;
}

bool DeviceArena::release(CUdeviceptr address) {
  const std::lock_guard lock(state_->mutex);
  const Relaxed relaxed;
  const auto held = state_->give_up(address);
  if (held) state_->free(*held);
  return held.has_value();
}

bool DeviceArena::release_after(CUdeviceptr address, CUstream stream) {
  CUcontext context = nullptr;
  if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
      driver().cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
    driver().cuCtxGetCurrent(&context);
  }
  const WithContext there(context);
  const std::lock_guard lock(state_->mutex);
  const Relaxed relaxed;
  auto held = state_->give_up(address);
  if (!held) return false;
  held->block.context = context;  // the event's
  State::Pending given_up{*held, state_->event_in(context), stream_id(stream)};
  if (given_up.event && driver().cuEventRecord(given_up.event, stream) != CUDA_SUCCESS) {
    state_->recycle(given_up.held.block.context, given_up.event);
    given_up.event = nullptr;
  }
  if (!given_up.event) given_up.stream.reset();
  state_->pending.push_back(given_up);
  return true;
}

bool DeviceArena::release_later(CUdeviceptr address) {
  const std::lock_guard lock(state_->mutex);
  const auto held = state_->give_up(address);
  if (held) state_->pending.push_back({*held, nullptr, std::nullopt});
  return held.has_value();
}

void DeviceArena::release_all(CUcontext context) {
  const std::lock_guard lock(state_->mutex);
  state_->forget(context);
}

void DeviceArena::open_to(CUdevice device) {
  const std::lock_guard lock(state_->mutex);
  const Relaxed relaxed;
  state_->open_to(device);
}

CUresult DeviceArena::reserve(std::uint64_t size, std::uint64_t alignment, CUdeviceptr* address) {
  alignment = std::max(alignment, page);
  const bool sound = size != 0 && size % host_page == 0 && (alignment & (alignment - 1)) == 0;
  if (!sound || size > reservable) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(state_->mutex);
  if (!state_->ready() || state_->reserved + size > reservable) return CUDA_ERROR_NOT_SUPPORTED;
  const std::uint64_t length = round_up(size, page);
  const auto at = state_->addresses.take_last(length, alignment);
  if (!at) return CUDA_ERROR_NOT_SUPPORTED;
  state_->reservations[*at] = size;
  state_->reserved += length;
  *address = *at;
  return CUDA_SUCCESS;
}

bool DeviceArena::unreserve(CUdeviceptr address, std::uint64_t size) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->reservations.find(address);
  if (found == state_->reservations.end() || found->second != size) return false;
  const auto inside = state_->live.lower_bound(address);
  if (inside != state_->live.end() && inside->first < address + size) return false;
  state_->reservations.erase(found);
  state_->reserved -= round_up(size, page);
  state_->addresses.give(address, round_up(size, page));
  return true;
}

void DeviceArena::mapped(CUdeviceptr address, std::uint64_t size) {
  const std::lock_guard lock(state_->mutex);
  const Served block{.base = address, .size = size, .id = state_->next_id++};
  state_->live[address] = {block, size, 0, State::Kind::application};
}

void DeviceArena::unmapped(CUdeviceptr address, std::uint64_t size) {
  std::unique_lock lock(state_->mutex);
  state_->none_kept.wait(lock, [this] { return state_->keepers == 0; });
  auto at = state_->live.lower_bound(address);
  while (at != state_->live.end() && at->first < address + size) {
    at = at->second.kind == State::Kind::application ? state_->live.erase(at) : std::next(at);
  }
}

std::optional<Allocation> DeviceArena::find(CUdeviceptr address) const {
  const std::lock_guard lock(state_->mutex);
  const State::Held* held = state_->holding(address);
  if (!held) return std::nullopt;
  return Allocation{held->block.base, held->block.size};
}

std::optional<Served> DeviceArena::block(CUdeviceptr address) const {
  const std::lock_guard lock(state_->mutex);
  const State::Held* held = state_->holding(address);
  if (!held) return std::nullopt;
  return held->block;
}

std::vector<Allocation> DeviceArena::live() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<Allocation> all;
  all.reserve(state_->live.size());
  for (const auto& [base, held] : state_->live) all.push_back({base, held.block.size});
  return all;
}

std::uint64_t DeviceArena::idle(CUdevice device) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->devices.find(device);
  return found == state_->devices.end() ? 0 : found->second.empty;
}

KeepMapped::KeepMapped() {
  const std::lock_guard lock(arena().state_->mutex);
  ++arena().state_->keepers;
}

KeepMapped::~KeepMapped() {
  DeviceArena::State& state = *arena().state_;
  const std::lock_guard lock(state.mutex);
  if (--state.keepers != 0) return;
  const Relaxed relaxed;
  for (const auto& [base, length] : std::exchange(state.kept, {})) state.decommit(base, length);
  state.none_kept.notify_all();
}

DeviceArena& arena() {
  static auto& instance = *new DeviceArena;
  return instance;
}

}  // namespace r3::recorder
