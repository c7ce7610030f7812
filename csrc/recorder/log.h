// What the recorder tells the user: "r3llvm: …" on stderr.
#pragma once
#include <string>

namespace r3::recorder {

void say(const std::string& text) noexcept;
void say_once(const std::string& text) noexcept;  // not again in this process

}  // namespace r3::recorder
