#include "recorder/say.h"

#include <unistd.h>

#include <mutex>
#include <set>
#include <string>

namespace r3::recorder {

void say_once(std::string_view text) noexcept {
  try {
    static auto& mutex = *new std::mutex;
    static auto& said = *new std::set<std::string, std::less<>>;  // exit handlers may still have something to say
    const std::lock_guard lock(mutex);
    if (!said.emplace(text).second) return;
    const std::string line = "r3llvm: " + std::string(text) + "\n";
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody reads it
  } catch (...) {  // no memory for a message: nothing to be done
  }
}

}  // namespace r3::recorder
