// Launches pass together, a recorded one alone: what it finds in memory, no other launch changes meanwhile.
#pragma once
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace r3::recorder {

inline constexpr std::chrono::seconds forever = std::chrono::hours(24 * 365);

class Turnstile {
 public:
  // Of a launch that is not recorded: two atomic additions when none is.
  class Together {
   public:
    explicit Together(Turnstile& turnstile) : turnstile_(turnstile) {
      while (turnstile_.inside_.fetch_add(1), turnstile_.closed_) {
        turnstile_.inside_.fetch_sub(1);
        const std::lock_guard wait(turnstile_.alone_);
      }
    }
    ~Together() { turnstile_.inside_.fetch_sub(1); }
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    Turnstile& turnstile_;
  };

  class Alone {
   public:
    // After `patience` it goes on with whoever is inside, and is false.
    explicit Alone(Turnstile& turnstile, std::chrono::seconds patience = forever)
        : turnstile_(turnstile), lock_(turnstile.alone_, patience) {
      if (!lock_) return;
      turnstile_.closed_ = true;
      const auto end = std::chrono::steady_clock::now() + patience;
      while (turnstile_.inside_ != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
    ~Alone() {
      if (lock_) turnstile_.closed_ = false;
    }
    explicit operator bool() const { return lock_ && turnstile_.inside_ == 0; }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    Turnstile& turnstile_;
    std::unique_lock<std::timed_mutex> lock_;
  };

 private:
  std::atomic<unsigned> inside_{0};
  std::atomic<bool> closed_{false};
  std::timed_mutex alone_;
};

}  // namespace r3::recorder
