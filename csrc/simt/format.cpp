#include "simt/format.h"

#include <cstdio>
#include <cstring>

namespace r3 {
namespace {

class Arguments {
 public:
  explicit Arguments(const void* buffer) : start_(static_cast<const char*>(buffer)), at_(start_) {}

  template <typename T>
  T next() {
    std::size_t offset = (static_cast<std::size_t>(at_ - start_) + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value;
    std::memcpy(&value, start_ + offset, sizeof value);
    at_ = start_ + offset + sizeof(T);
    return value;
  }

 private:
  const char* start_;
  const char* at_;
};

template <typename T>
void print(std::string& text, const std::string& conversion, T value) {
  char buffer[512];
  int n = std::snprintf(buffer, sizeof buffer, conversion.c_str(), value);
  if (n < 0) return;
  if (static_cast<std::size_t>(n) < sizeof buffer) {
    text.append(buffer, static_cast<std::size_t>(n));
    return;
  }
  std::string large(static_cast<std::size_t>(n) + 1, 0);
  std::snprintf(large.data(), large.size(), conversion.c_str(), value);
  text.append(large, 0, static_cast<std::size_t>(n));
}

}  // namespace

std::int32_t format_device(std::string& text, const char* format, const void* buffer) {
  Arguments arguments(buffer);
  std::int32_t conversions = 0;
  for (const char* p = format; *p;) {
    if (*p != '%') {
      text += *p++;
      continue;
    }
    if (p[1] == '%') {
      text += '%';
      p += 2;
      continue;
    }
    const char* specification = p;
    std::string conversion = "%";
    ++p;
    while (*p && std::strchr("-+ #0", *p)) conversion += *p++;
    if (*p == '*') {
      conversion += std::to_string(arguments.next<std::int32_t>());
      ++p;
    }
    while ((*p >= '0' && *p <= '9') || *p == '.') conversion += *p++;
    int longs = 0;
    for (; *p == 'h' || *p == 'l'; ++p) longs += *p == 'l';
    const char kind = *p;
    if (!kind || !std::strchr("diuoxXfFeEgGaAcsp", kind)) {  // the device prints what it does not know as it stands
      text.append(specification, p);
      continue;
    }
    ++p;
    ++conversions;
    if (std::strchr("di", kind)) {
      if (longs)
        print(text, conversion + "ll" + kind, static_cast<long long>(arguments.next<std::int64_t>()));
      else
        print(text, conversion + kind, arguments.next<std::int32_t>());
    } else if (std::strchr("uoxX", kind)) {
      if (longs)
        print(text, conversion + "ll" + kind, static_cast<unsigned long long>(arguments.next<std::uint64_t>()));
      else
        print(text, conversion + kind, arguments.next<std::uint32_t>());
    } else if (std::strchr("fFeEgGaA", kind)) {
      print(text, conversion + kind, arguments.next<double>());
    } else if (kind == 'c') {
      print(text, conversion + kind, arguments.next<std::int32_t>());
    } else if (kind == 's') {
      const char* value = arguments.next<const char*>();
      print(text, conversion + kind, value ? value : "(null)");
    } else if (kind == 'p') {
      print(text, conversion + kind, arguments.next<void*>());
    }
  }
  return conversions;
}

}  // namespace r3
