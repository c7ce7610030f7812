#include "recorder/log.h"

#include <unistd.h>

#include <exception>
#include <mutex>
#include <set>

namespace r3::recorder {

void say(const std::string& text) noexcept {
  try {
    const std::string line = "r3llvm: " + text + "\n";
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody listens
  } catch (const std::exception&) {                                    // no memory, no words
  }
}

void say_once(const std::string& text) noexcept {
  try {
    static auto& mutex = *new std::mutex;
    static auto& said = *new std::set<std::string>;
    {
      const std::lock_guard lock(mutex);
      if (!said.insert(text).second) return;
    }
    say(text);
  } catch (const std::exception&) {
  }
}

}  // namespace r3::recorder
