#include "recorder/reach.h"

#include <algorithm>
#include <cstring>

#include "recorder/arena.h"
#include "recorder/foreign.h"
#include "recorder/refusal.h"

namespace r3::recorder {
namespace {

std::string hex(std::uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

// Ranges of memory, sorted by base, as r3_scan_words looks them up.
class Table {
 public:
  Table(const Context& context, std::span<const Allocation> ranges, std::uint64_t reach)
      : context_(context), size_(ranges.size()), reach_(reach) {
    if (ranges.empty()) return;
    std::vector<std::uint64_t> columns(2 * size_);
    for (std::size_t i = 0; i < size_; ++i) {
      columns[i] = ranges[i].base;
      columns[size_ + i] = ranges[i].size;
      high_ = std::max(high_, ranges[i].base + ranges[i].size);
    }
    low_ = ranges.front().base;
    buffer_ = std::make_shared<DeviceBuffer>(columns.size() * 8 + size_);
    check(driver().cuMemcpyHtoDAsync(buffer_->address(), columns.data(), columns.size() * 8, context_.stream),
          "cuMemcpyHtoDAsync");
    check(driver().cuMemsetD8Async(flags(), 0, size_, context_.stream), "cuMemsetD8Async");
    check(driver().cuStreamSynchronize(context_.stream), "cuStreamSynchronize");
  }

  // Enqueues a look at all words of the range, which must be 8-byte aligned.
  void scan(CUdeviceptr base, std::uint64_t size) const {
    if (size_ == 0 || size < 8) return;
    context_.kernels.scan_words(base, size, low_, high_, buffer_->address(), buffer_->address() + 8 * size_, size_,
                                flags(), context_.stream, reach_);
  }

  // By range: whether a word that was scanned so far points into it. Waits for the scans.
  std::vector<std::uint8_t> found() const {
    std::vector<std::uint8_t> flags(size_);
    if (size_ != 0) {
      check(driver().cuMemcpyDtoHAsync(flags.data(), this->flags(), size_, context_.stream), "cuMemcpyDtoHAsync");
    }
    check(driver().cuStreamSynchronize(context_.stream), "a search for pointers");
    return flags;
  }

 private:
  CUdeviceptr flags() const { return buffer_->address() + 16 * size_; }

  const Context& context_;
  const std::size_t size_;
  const std::uint64_t reach_;
  std::uint64_t low_ = 0, high_ = 0;
  std::shared_ptr<DeviceBuffer> buffer_;
};

// A variable's words are looked for in a copy: constant memory need not be readable by a kernel of ours.
class Copies {
 public:
  Copies(const Context& context, std::span<const Variable> variables) {
    std::uint64_t bytes = 0;
    for (const Variable& variable : variables) bytes = place(bytes, variable) + variable.size;
    if (bytes == 0) return;
    buffer_ = std::make_shared<DeviceBuffer>(bytes);
    std::uint64_t end = 0;
    for (const Variable& variable : variables) {
      const std::uint64_t at = place(end, variable);
      end = at + variable.size;
      check(driver().cuMemcpyDtoDAsync(buffer_->address() + at, variable.base, variable.size, context.stream),
            "cuMemcpyDtoDAsync of a module variable");
      const std::uint64_t first = (at + 7) / 8 * 8;
      if (first < end) words_.push_back({buffer_->address() + first, end - first});
    }
  }

  std::span<const Allocation> words() const { return words_; }

 private:
  // Aligned as the variable is, so that the same words are aligned.
  static std::uint64_t place(std::uint64_t after, const Variable& variable) {
    return (after + 7) / 8 * 8 + variable.base % 8;
  }

  std::shared_ptr<DeviceBuffer> buffer_;
  std::vector<Allocation> words_;
};

// Memory that the kernel may read, on this device: our own kernels will.
void check_readable(const Context& context, const Allocation& allocation) {
  int ordinal = context.device;
  if (driver().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, allocation.base) == CUDA_SUCCESS &&
      ordinal != context.device) {
    throw Refusal("it can reach memory of another GPU (" + hex(allocation.base) + " on device " +
                  std::to_string(ordinal) + "), which a replay on one GPU does not have");
  }
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {context.device}};
  unsigned long long access = 0;
  if (driver().cuMemGetAccess && driver().cuMemGetAccess(&access, &here, allocation.base) == CUDA_SUCCESS &&
      access == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
    throw Refusal("it can reach memory that its GPU may not access (" + hex(allocation.base) + ")");
  }
}

void refuse_foreign(std::span<const std::byte> arguments) {
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, arguments.data() + at, sizeof word);
    if (DeviceArena::owns(word)) continue;
    if (const auto kind = find_foreign(word)) {
      throw Refusal(std::string("an argument points into ") + recorder::describe(*kind) +
                    ", whose address a replay cannot have; allocate it with cudaMalloc");
    }
  }
}

class Search {
 public:
  Search(const Context& context, std::vector<Allocation> live)
      : context_(context), live_(std::move(live)), seen_(live_.size()), table_(context, live_, device::pointer_reach) {}

  void follow(std::span<const std::byte> arguments) {
    for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, arguments.data() + at, sizeof word);
      if (!DeviceArena::owns(word + device::pointer_reach) && !DeviceArena::owns(word - device::pointer_reach))
        continue;
      const auto after = std::upper_bound(live_.begin(), live_.end(), word,
                                          [](std::uint64_t a, const Allocation& b) { return a < b.base; });
      const auto index = static_cast<std::size_t>(after - live_.begin());
      if (after != live_.end() && after->base - word <= device::pointer_reach) add(index);
      if (index > 0 && word - live_[index - 1].base < live_[index - 1].size + device::pointer_reach) add(index - 1);
    }
  }

  void follow_all() {
    for (std::size_t i = 0; i < live_.size(); ++i) add(i);
  }

  void follow_words(std::span<const Allocation> memory) {
    for (const Allocation& range : memory) table_.scan(range.base, range.size);
  }

  // What was found and all that it leads to, which is looked up in a second table, too.
  std::vector<Allocation> run(const Table& others) {
    std::vector<Allocation> found;
    do {
      for (; done_ < todo_.size(); ++done_) {
        const Allocation& next = live_[todo_[done_]];
        table_.scan(next.base, next.size);
        others.scan(next.base, next.size);
      }
      const auto flags = table_.found();
      for (std::size_t i = 0; i < flags.size(); ++i) {
        if (flags[i]) add(i);
      }
    } while (done_ < todo_.size());
    for (std::size_t i = 0; i < live_.size(); ++i) {
      if (seen_[i]) found.push_back(live_[i]);
    }
    return found;
  }

 private:
  void add(std::size_t index) {
    if (seen_[index]) return;
    check_readable(context_, live_[index]);
    seen_[index] = true;
    todo_.push_back(index);
  }

  const Context& context_;
  const std::vector<Allocation> live_;
  std::vector<bool> seen_;
  std::vector<std::size_t> todo_;
  std::size_t done_ = 0;
  const Table table_;
};

// What memory must not point into, since it has no fixed address.
struct Other {
  Allocation range;
  const Variable* variable = nullptr;  // or foreign memory
  ForeignKind kind{};
};

std::vector<Other> others_of(std::span<const Variable> variables) {
  std::vector<Other> others;
  for (const Variable& variable : variables) others.push_back({{variable.base, variable.size}, &variable, {}});
  for (const ForeignRange& range : foreign_ranges()) others.push_back({{range.base, range.size}, nullptr, range.kind});
  std::ranges::sort(others, {}, [](const Other& other) { return other.range.base; });
  return others;
}

}  // namespace

Reached reach(const Context& context, std::span<const std::byte> arguments, std::span<const Variable> variables,
              bool all) {
  refuse_foreign(arguments);
  const std::vector<Other> others = others_of(variables);
  std::vector<Allocation> ranges;
  for (const Other& other : others) ranges.push_back(other.range);
  const Table in_memory(context, ranges, 0), in_variables(context, ranges, 0);
  const Copies copies(context, variables);
  for (const Allocation& range : copies.words()) in_variables.scan(range.base, range.size);

  Search search(context, arena().live());
  search.follow(arguments);
  if (all) search.follow_all();
  search.follow_words(copies.words());
  Reached reached;
  reached.allocations = search.run(in_memory);

  const auto of_memory = in_memory.found(), of_variables = in_variables.found();
  const auto warn = [&](const std::string& text) {
    if (std::ranges::find(reached.warnings, text) == reached.warnings.end()) reached.warnings.push_back(text);
  };
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::string what =
        others[i].variable ? "the module variable " + others[i].variable->name : std::string(describe(others[i].kind));
    if (of_memory[i] && others[i].variable) {
      throw Refusal("its memory holds a pointer to " + what + ", whose address a replay cannot have");
    }
    if (of_memory[i]) warn("its memory holds a pointer into " + what + ", which is not recorded");
    // The kernel need not use that variable: whether it does, its module says.
    if (of_variables[i]) warn("a module variable holds a pointer to " + what + ", whose address a replay cannot have");
  }
  return reached;
}

}  // namespace r3::recorder
