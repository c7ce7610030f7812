// The dotted parts of an instruction or intrinsic name. A translation takes those that it knows; one that is left over
// makes the whole thing unsupported, so that no modifier is ignored by accident.
#pragma once
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include <optional>

#include "simt/device_math.h"

namespace r3 {

class Modifiers {
 public:
  Modifiers() = default;
  explicit Modifiers(llvm::StringRef dotted) {
    if (!dotted.empty()) dotted.split(parts_, '.');
  }

  bool empty() const { return parts_.empty(); }
  llvm::StringRef front() const { return parts_.empty() ? llvm::StringRef() : parts_.front(); }
  llvm::StringRef back() const { return parts_.empty() ? llvm::StringRef() : parts_.back(); }

  // Removes the first occurrence of `name`; false when there is none.
  bool take(llvm::StringRef name) {
    auto* found = llvm::find(parts_, name);
    if (found == parts_.end()) return false;
    parts_.erase(found);
    return true;
  }

  llvm::StringRef take_front() {
    if (parts_.empty()) return {};
    llvm::StringRef part = parts_.front();
    parts_.erase(parts_.begin());
    return part;
  }

  void take_back() { parts_.pop_back(); }

  // Removes every part that starts with `prefix`.
  void take_prefixed(llvm::StringRef prefix) {
    llvm::erase_if(parts_, [&](llvm::StringRef part) { return part.starts_with(prefix); });
  }

  // The first of `names` that occurs, removed; empty when none does.
  llvm::StringRef take_any(std::initializer_list<llvm::StringRef> names) {
    for (llvm::StringRef name : names) {
      if (take(name)) return name;
    }
    return {};
  }

  std::optional<Rounding> take_rounding() {
    llvm::StringRef name = take_any({"rn", "rz", "rm", "rp", "rna"});
    if (name.empty()) return std::nullopt;
    if (name == "rz") return Rounding::kTowardZero;
    if (name == "rm") return Rounding::kDown;
    if (name == "rp") return Rounding::kUp;
    return name == "rn" ? Rounding::kNearest : Rounding::kNearestAway;
  }

 private:
  llvm::SmallVector<llvm::StringRef, 8> parts_;
};

}  // namespace r3
