#include "recorder/profile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <thread>

#include "snapshot/record.h"
#include "snapshot/snapshot.h"

namespace r3::recorder {
namespace {

constexpr std::size_t n_slots = 1024;     // launches that were not read yet: about what a stream's queue holds
constexpr std::size_t most_times = 1000;  // of a kernel in the profile
constexpr auto tick = std::chrono::milliseconds(5);
constexpr float not_measured = -1;

}  // namespace

// Event pairs of one context, used in turn, and a gate each: a word in mapped memory that the stream waits for.
class Profile::Pool {
 public:
  struct Slot {
    CUevent start = nullptr, end = nullptr;
    std::uint32_t gate = 0;                    // the value that opens it
    std::atomic<unsigned> held{0};             // ticks that it has been shut for, and one; 0: it is open
    bool launching = false, launched = false;  // to be waited for; to be read
    std::string kernel;
    std::uint64_t index = 0;
  };

  Pool(Profile& profile, CUcontext context) : profile_(profile), context_(context) {
    void* words = nullptr;
    check(driver().cuMemHostAlloc(&words, n_slots * sizeof(std::uint32_t), CU_MEMHOSTALLOC_DEVICEMAP),
          "cuMemHostAlloc");
    words_ = static_cast<std::uint32_t*>(words);
    std::fill_n(words_, n_slots, 0);
    if (!driver().cuStreamWaitValue32 || driver().cuMemHostGetDevicePointer(&device_words_, words, 0) != CUDA_SUCCESS) {
      device_words_ = 0;
    }
  }

  // Null: more launches are under way in other threads than there are slots.
  Slot* take(const std::string& kernel, std::uint64_t index) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[next_];
    if (slot.launching) return nullptr;
    if (slot.launched) read(slot);
    if (!slot.start) {
      check(driver().cuEventCreate(&slot.start, CU_EVENT_DEFAULT), "cuEventCreate");
      check(driver().cuEventCreate(&slot.end, CU_EVENT_DEFAULT), "cuEventCreate");
    }
    next_ = (next_ + 1) % n_slots;
    slot.launching = true;
    slot.kernel = kernel;
    slot.index = index;
    return &slot;
  }

  void give_back(Slot& slot, bool launched) {
    const std::lock_guard lock(mutex_);
    slot.launching = false;
    slot.launched = launched;
  }

  void hold(Slot& slot, CUstream stream) {
    if (!device_words_) return;
    const auto at = static_cast<std::size_t>(&slot - slots_.data());
    if (driver().cuStreamWaitValue32(stream, device_words_ + at * sizeof(std::uint32_t), slot.gate + 1,
                                     CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
      return;
    }
    ++slot.gate;
    slot.held = 1;
  }

  void release(Slot& slot) {
    if (slot.held.exchange(0) != 0) word(slot).store(slot.gate, std::memory_order_seq_cst);
  }

  // A launch may itself wait for the device (to load a kernel's code, to make room for its stack): then it waits for
  // the gate.
  void release_late() {
    for (Slot& slot : slots_) {
      unsigned held = slot.held;
      if (held == 0) continue;
      if (held < 3) {
        slot.held.compare_exchange_strong(held, held + 1);
      } else {
        release(slot);
      }
    }
  }

  void read_all() {
    const std::lock_guard lock(mutex_);
    if (std::ranges::none_of(slots_, &Slot::launched)) return;  // the context may be gone
    CUcontext present = nullptr;
    driver().cuCtxGetCurrent(&present);
    driver().cuCtxSetCurrent(context_);
    for (std::size_t i = 0; i < n_slots; ++i) {
      Slot& slot = slots_[(next_ + i) % n_slots];
      if (slot.launched) read(slot);
    }
    driver().cuCtxSetCurrent(present);
  }

 private:
  std::atomic_ref<std::uint32_t> word(Slot& slot) { return std::atomic_ref(words_[&slot - slots_.data()]); }

  void read(Slot& slot) {
    slot.launched = false;
    float milliseconds = 0;
    if (driver().cuEventSynchronize(slot.end) != CUDA_SUCCESS ||
        driver().cuEventElapsedTime(&milliseconds, slot.start, slot.end) != CUDA_SUCCESS) {
      return;
    }
    profile_.add(slot.kernel, slot.index, milliseconds / 1000);
  }

  Profile& profile_;
  const CUcontext context_;
  std::mutex mutex_;
  std::array<Slot, n_slots> slots_;
  std::size_t next_ = 0;
  std::uint32_t* words_ = nullptr;
  CUdeviceptr device_words_ = 0;
};

Profile::Profile(std::filesystem::path file) : file_(std::move(file)) {}

Profile::~Profile() = default;

Profile::Pool& Profile::pool() {
  Context& context = current_context();
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Pool>& pool = pools_[&context];
  if (!pool) pool = std::make_unique<Pool>(*this, context.handle);
  if (!watched_) std::thread([this] { watch(); }).detach();
  watched_ = true;
  return *pool;
}

CUresult Profile::measure(const std::string& kernel, std::uint64_t index, CUstream stream,
                          const std::function<CUresult()>& real) {
  Pool* pool = nullptr;
  Pool::Slot* slot = nullptr;
  bool good = false;
  {
    const Relaxed relaxed;
    try {
      add(kernel, index, not_measured);
      pool = &this->pool();
      slot = pool->take(kernel, index);
    } catch (const std::exception&) {  // no context, no events: the launch goes unmeasured
    }
    if (slot) {
      pool->hold(*slot, stream);
      good = driver().cuEventRecord(slot->start, stream) == CUDA_SUCCESS;
    }
  }
  const CUresult code = real();
  if (slot) {
    const Relaxed relaxed;
    good = good && code == CUDA_SUCCESS && driver().cuEventRecord(slot->end, stream) == CUDA_SUCCESS;
    pool->release(*slot);
    pool->give_back(*slot, good);
  }
  return code;
}

void Profile::add(const std::string& kernel, std::uint64_t index, float seconds) {
  const std::lock_guard lock(times_mutex_);
  std::vector<float>& all = times_[kernel].seconds;
  if (index >= all.size()) all.resize(index + 1, not_measured);
  all[index] = seconds;
}

// They are never destroyed.
std::vector<Profile::Pool*> Profile::pools() {
  const std::lock_guard lock(mutex_);
  std::vector<Pool*> all;
  for (const auto& [context, pool] : pools_) all.push_back(pool.get());
  return all;
}

void Profile::watch() {
  for (;;) {
    std::this_thread::sleep_for(tick);
    for (Pool* pool : pools()) pool->release_late();
  }
}

void Profile::read_all() {
  const Relaxed relaxed;
  for (Pool* pool : pools()) pool->read_all();
}

void Profile::write(std::uint64_t graph_launches, std::uint64_t captured_launches) {
  read_all();
  const std::lock_guard lock(times_mutex_);
  std::vector<KernelTimes> kernels;
  for (const auto& [name, times] : times_) {
    KernelTimes kernel{name, times.seconds.size(), 0, 0, {}};
    std::vector<float> measured;
    std::ranges::copy_if(times.seconds, std::back_inserter(measured), [](float time) { return time >= 0; });
    kernel.seconds = std::accumulate(measured.begin(), measured.end(), 0.0);
    if (!measured.empty()) {
      const auto middle = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 2);
      std::ranges::nth_element(measured, middle);
      kernel.median_seconds = *middle;
    }
    kernel.times.assign(times.seconds.begin(), times.seconds.begin() + static_cast<std::ptrdiff_t>(
                                                                           std::min(times.seconds.size(), most_times)));
    kernels.push_back(std::move(kernel));
  }
  std::ranges::stable_sort(kernels, std::ranges::greater(), &KernelTimes::seconds);
  Journal(file_).append(profile_line(kernels, graph_launches, captured_launches));
}

}  // namespace r3::recorder
