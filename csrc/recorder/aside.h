// What the recorder does beside the driver: its failure is told, and is never the application's.
#pragma once
#include <exception>

#include "recorder/log.h"

namespace r3::recorder {

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
