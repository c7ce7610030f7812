// What the recorder tells the application's user.
#pragma once
#include <exception>
#include <string_view>

namespace r3::recorder {

// "r3llvm: TEXT" on stderr, each text once a process.
void say_once(std::string_view text) noexcept;

// For what the recorder does beside the driver: its failure is told, and never the application's.
template <class F>
void aside(F&& f) noexcept {
  try {
    f();
  } catch (const std::exception& error) {
    say_once(error.what());
  } catch (...) {
    say_once("the recorder failed for an unknown reason");
  }
}

}  // namespace r3::recorder
