// Device memory on its way to the host, in a thread of its own.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "recorder/context.h"
#include "recorder/writer.h"

namespace r3::recorder {

struct Piece {
  CUdeviceptr source;
  std::uint64_t size;
  std::string* hashes;  // where those of its chunks go: it starts where one starts
};

struct Batch {
  Context* context;
  std::shared_ptr<Pending> launch;
  std::vector<Piece> pieces;
  // What the pieces lie in, freed when all is copied; null: they are the application's memory, and it waits.
  std::shared_ptr<DeviceBuffer> buffer;

  bool awaited() const { return !buffer; }
};

class Staging {
 public:
  explicit Staging(Writer& writer);  // throws std::system_error
  ~Staging();

  // The future is ready when the pieces may change again.
  std::shared_future<void> copy(Batch batch);
  bool busy();
  void wait();  // until no copy of ours is left on the device

 private:
  class Ring;
  struct Job {
    Batch batch;
    std::promise<void> copied;
  };

  void work();
  void copy_to_host(Batch& batch);

  Writer& writer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;                             // the first is being worked on
  std::map<Context*, std::unique_ptr<Ring>> rings_;  // of the thread
  std::atomic<unsigned> starved_{0};                 // who waits for buffers
};

}  // namespace r3::recorder
