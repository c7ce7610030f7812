#include "recorder/staging.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>

#include "recorder/log.h"

namespace r3::recorder {
namespace {

constexpr std::size_t buffer_bytes = 16 * chunk_bytes;
constexpr std::size_t page_bytes = 4096;
constexpr unsigned n_buffers = 16;  // enough to keep the bus busy while some are compressed

}  // namespace

// Pinned buffers that go round: filled by the device, emptied by the writer.
class Staging::Ring {
 public:
  Ring() {
    // Not the driver's memory, which would go with the context while the writer still reads it.
    memory_ = std::aligned_alloc(page_bytes, n_buffers * buffer_bytes);
    if (!memory_) throw std::bad_alloc();
    check(driver().cuMemHostRegister(memory_, n_buffers * buffer_bytes, CU_MEMHOSTREGISTER_PORTABLE),
          "cuMemHostRegister");
    for (unsigned i = 0; i < n_buffers; ++i) {
      check(driver().cuEventCreate(&events_[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "cuEventCreate");
      free_.push_back(i);
    }
  }

  std::optional<unsigned> try_take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const unsigned taken = free_.front();
    free_.pop_front();
    return taken;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    given_back_.wait(lock, [this] { return !free_.empty(); });
  }

  void give_back(unsigned buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
    given_back_.notify_one();
  }

  std::byte* data(unsigned buffer) const { return static_cast<std::byte*>(memory_) + buffer * buffer_bytes; }
  CUevent filled(unsigned buffer) const { return events_[buffer]; }

 private:
  void* memory_ = nullptr;
  CUevent events_[n_buffers] = {};
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::deque<unsigned> free_;
};

Staging::Staging(Writer& writer) : writer_(writer) {
  writer.starved = [this] { return starved_ != 0; };
  std::thread([this] { work(); }).detach();
}

Staging::~Staging() = default;

std::shared_future<void> Staging::copy(Batch batch) {
  writer_.open(batch.launch);
  if (batch.awaited()) ++starved_;
  Job job{std::move(batch), {}};
  std::shared_future<void> copied = job.copied.get_future().share();
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return copied;
}

bool Staging::busy() {
  const std::lock_guard lock(mutex_);
  return !jobs_.empty();
}

void Staging::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
}

void Staging::work() {
  const Relaxed relaxed;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty(); });
    Job& job = jobs_.front();  // stays where it is while others come
    lock.unlock();
    const auto launch = job.batch.launch;
    try {
      check(driver().cuCtxSetCurrent(job.batch.context->handle), "cuCtxSetCurrent");
      if (!launch->refused() && !writer_.failed()) copy_to_host(job.batch);
    } catch (const std::exception& error) {
      launch->refuse(std::string("its memory could not be copied: ") + error.what());
    }
    if (job.batch.awaited()) --starved_;
    job.copied.set_value();
    writer_.close(launch);
    job.batch.buffer.reset();  // may wait for whatever runs on the device
    lock.lock();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

void Staging::copy_to_host(Batch& batch) {
  std::unique_ptr<Ring>& made = rings_[batch.context];
  if (!made) made = std::make_unique<Ring>();
  Ring& ring = *made;
  const CUstream stream = batch.context->copies;

  struct Flying {
    unsigned buffer;
    std::vector<Filled::Part> parts;
  };
  std::deque<Flying> flying;
  const auto land = [&] {
    Flying next = std::move(flying.front());
    flying.pop_front();
    const CUresult code = driver().cuEventSynchronize(ring.filled(next.buffer));
    if (code != CUDA_SUCCESS) ring.give_back(next.buffer);
    check(code, "a copy to the host");
    writer_.store({batch.launch, ring.data(next.buffer), std::move(next.parts),
                   [&ring, buffer = next.buffer] { ring.give_back(buffer); }});
  };
  const auto take = [&] {
    for (;;) {
      if (const auto buffer = ring.try_take()) return *buffer;
      if (!flying.empty()) {
        land();
        continue;
      }
      ++starved_;
      ring.wait();
      --starved_;
    }
  };

  try {
    for (std::size_t piece = 0, done = 0; piece < batch.pieces.size();) {
      flying.push_back({take(), {}});
      const unsigned buffer = flying.back().buffer;
      std::size_t filled = 0;
      // As many pieces as fit, each cut between chunks only.
      while (piece < batch.pieces.size()) {
        const Piece& from = batch.pieces[piece];
        const std::size_t rest = from.size - done, room = buffer_bytes - filled;
        const std::size_t size = rest <= room ? rest : room / chunk_bytes * chunk_bytes;
        if (size == 0) break;
        check(driver().cuMemcpyDtoHAsync(ring.data(buffer) + filled, from.source + done, size, stream),
              "cuMemcpyDtoHAsync");
        flying.back().parts.push_back({filled, size, from.hashes + done / chunk_bytes});
        filled = (filled + size + 255) / 256 * 256;
        done += size;
        if (done == from.size) {
          ++piece;
          done = 0;
        }
      }
      check(driver().cuEventRecord(ring.filled(buffer), stream), "cuEventRecord");
    }
    while (!flying.empty()) land();
  } catch (...) {
    driver().cuStreamSynchronize(stream);  // nothing writes into the buffers that go back
    for (const Flying& lost : flying) ring.give_back(lost.buffer);
    throw;
  }
}

}  // namespace r3::recorder
