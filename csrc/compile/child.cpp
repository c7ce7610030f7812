#include "compile/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace r3 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t log_bytes = 64 * 1024;
constexpr std::size_t note_bytes = 1024;

// What the child leaves in a shared page: it stays readable however the child ends.
struct Blackboard {
  int out_of_memory;
  std::size_t note_size;
  char note[note_bytes];
};

Blackboard* blackboard = nullptr;  // set in a child only
std::uint64_t address_limit = 0;   // the child's RLIMIT_AS; 0: none
std::mutex fork_mutex;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
};

class SharedPage {
 public:
  SharedPage() {
    void* page = ::mmap(nullptr, sizeof(Blackboard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    board_ = static_cast<Blackboard*>(page);
  }
  ~SharedPage() { ::munmap(board_, sizeof(Blackboard)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  Blackboard* get() const { return board_; }

 private:
  Blackboard* board_;
};

// ---- the child's side
// ------------------------------------------------------------------------------------------------

std::uint64_t address_space_bytes() {  // async-signal-safe
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[64];
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  std::uint64_t pages = 0;
  for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; ++i) pages = pages * 10 + std::uint64_t(text[i] - '0');
  return pages * std::uint64_t(::sysconf(_SC_PAGESIZE));
}

void write_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(1);
    data += n;
    size -= std::size_t(n);
  }
}

[[noreturn]] void out_of_memory() {
  if (blackboard) blackboard->out_of_memory = 1;
  ::_exit(1);
}

// A failed allocation often shows as a null access or an abort: tell those apart while the address space can be looked
// at.
void on_crash(int signal) {
  constexpr std::uint64_t slack = 16ull << 20;
  if (address_limit && address_space_bytes() + slack >= address_limit) out_of_memory();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void set_limit(__rlimit_resource resource, rlim_t soft) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(soft, limit.rlim_max);
  limit.rlim_max = limit.rlim_cur;
  ::setrlimit(resource, &limit);
}

void confine(const Limits& limits, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  ::prctl(PR_SET_DUMPABLE, 0);            // RLIMIT_CORE does not hold back a core_pattern that is a pipe
  set_limit(RLIMIT_CORE, 0);
  if (limits.memory_bytes) {
    address_limit = address_space_bytes() + limits.memory_bytes;
    set_limit(RLIMIT_AS, address_limit);
  }

  // The parent's handlers mean nothing here. An interrupt is the parent's to act on.
  static std::array<char, 64 * 1024> alternate;
  stack_t stack{};
  stack.ss_sp = alternate.data();
  stack.ss_size = alternate.size();
  ::sigaltstack(&stack, nullptr);
  struct sigaction crash{};
  crash.sa_handler = on_crash;
  crash.sa_flags = int(SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) ::sigaction(signal, &crash, nullptr);
  for (const int signal : {SIGTERM, SIGHUP, SIGALRM, SIGPIPE, SIGUSR1, SIGUSR2, SIGTRAP}) ::signal(signal, SIG_DFL);
  ::signal(SIGINT, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  std::set_new_handler(out_of_memory);
  // exit() inside a library must not run the parent's atexit handlers: this one is registered last, so it runs first.
  ::on_exit([](int status, void*) { ::_exit(status); }, nullptr);
}

[[noreturn]] void child_main(const Limits& limits, pid_t parent, int payload_fd, int log_fd,
                             const std::function<std::string()>& work) {
  ::dup2(log_fd, STDERR_FILENO);
  confine(limits, parent);
  char kind = 1;
  std::string payload;
  try {
    payload = work();
  } catch (const std::bad_alloc&) {
    out_of_memory();
  } catch (const std::exception& error) {
    kind = 0;
    payload = error.what();
  } catch (...) {
    kind = 0;
    payload = "unknown exception";
  }
  // Framed, so that the parent knows a whole payload from the start of one.
  const std::uint64_t size = payload.size();
  write_all(payload_fd, &kind, 1);
  write_all(payload_fd, reinterpret_cast<const char*>(&size), sizeof size);
  write_all(payload_fd, payload.data(), payload.size());
  ::_exit(0);
}

// ---- the parent's side
// -----------------------------------------------------------------------------------------------

// Appends what can be read now; false at the end of the stream.
bool drain(int fd, std::string& text) {
  std::array<char, 64 * 1024> buffer;
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) {
      text.append(buffer.data(), std::size_t(n));
    } else if (n == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

void keep_tail(std::string& text) {
  if (text.size() > log_bytes) text.erase(0, text.size() - log_bytes);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return int(std::clamp<long long>(left + 1, 0, 3'600'000));
}

// A child that is killed and reaped on every way out of the parent's function.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (!reaped_) kill();
  }
  bool ended(int options = WNOHANG) {
    for (;;) {
      const pid_t result = ::waitpid(pid_, &status_, options);
      if (result == 0) return false;
      if (result < 0 && errno == EINTR) continue;
      if (result < 0) status_ = 0;  // SIGCHLD is ignored in this process: the kernel reaped it for us
      return reaped_ = true;
    }
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ended(0);
  }
  int status() const { return status_; }

 private:
  pid_t pid_;
  int status_ = 0;
  bool reaped_ = false;
};

void unframe(const std::string& raw, ChildOutcome& outcome) {
  constexpr std::size_t header = 1 + sizeof(std::uint64_t);
  if (raw.size() < header) return;
  std::uint64_t size = 0;
  std::memcpy(&size, raw.data() + 1, sizeof size);
  if (raw.size() - header != size) return;
  outcome.kind = raw[0] ? ChildOutcome::Kind::ok : ChildOutcome::Kind::failed;
  outcome.code = 0;
  outcome.payload = raw.substr(header);
}

bool says_out_of_memory(const std::string& log) {
  return log.find("LLVM ERROR: out of memory") != std::string::npos || log.find("std::bad_alloc") != std::string::npos;
}

}  // namespace

std::unique_lock<std::mutex> parent_lock() {
  if (blackboard) return {};  // a child is alone
  return std::unique_lock(fork_mutex);
}

void note(std::string_view text) {
  if (!blackboard) return;
  blackboard->note_size = std::min(text.size(), note_bytes);
  std::memcpy(blackboard->note, text.data(), blackboard->note_size);
}

ChildOutcome run_in_child(const Limits& limits, const std::function<std::string()>& work) {
  SharedPage page;
  Pipe payload, log;
  const pid_t parent = ::getpid();
  pid_t pid = -1;
  {
    std::unique_lock lock(fork_mutex);
    pid = ::fork();
    if (pid == 0) {
      lock.unlock();  // the child's copy of it
      blackboard = page.get();
      child_main(limits, parent, payload.write.get(), log.write.get(), work);
    }
  }
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  Child child(pid);
  payload.write.reset();
  log.write.reset();

  // The end of a pipe is no sign of the child's end: a sibling forked meanwhile holds its write ends too. Its pidfd is.
  const Descriptor exited(int(::syscall(SYS_pidfd_open, pid, 0)));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(std::clamp(limits.seconds, 0.0, 1e9)));
  ChildOutcome outcome;
  std::string raw;
  bool timed_out = false;
  std::array<pollfd, 3> fds{{{payload.read.get(), POLLIN, 0}, {log.read.get(), POLLIN, 0}, {exited.get(), POLLIN, 0}}};
  while (!child.ended()) {
    if (Clock::now() >= deadline) {
      timed_out = true;
      child.kill();
      break;
    }
    int wait = milliseconds_until(deadline);
    if (exited.get() < 0) wait = std::min(wait, 2);  // a kernel without pidfds
    ::poll(fds.data(), fds.size(), wait);
    if (fds[0].fd >= 0 && fds[0].revents && !drain(fds[0].fd, raw)) fds[0].fd = -1;
    if (fds[1].fd >= 0 && fds[1].revents && !drain(fds[1].fd, outcome.log)) fds[1].fd = -1;
    keep_tail(outcome.log);
  }
  drain(payload.read.get(), raw);
  drain(log.read.get(), outcome.log);
  keep_tail(outcome.log);

  const Blackboard& board = *page.get();
  outcome.note.assign(board.note, std::min(board.note_size, note_bytes));
  const int status = child.status();
  if (WIFSIGNALED(status)) {
    outcome.kind = ChildOutcome::Kind::signalled;
    outcome.code = WTERMSIG(status);
  } else {
    outcome.kind = ChildOutcome::Kind::exited;
    outcome.code = WEXITSTATUS(status);
  }
  unframe(raw, outcome);
  const bool finished = outcome.kind == ChildOutcome::Kind::ok || outcome.kind == ChildOutcome::Kind::failed;
  if (!finished) {
    if (timed_out) {
      outcome.kind = ChildOutcome::Kind::timed_out;
    } else if (board.out_of_memory || says_out_of_memory(outcome.log)) {
      outcome.kind = ChildOutcome::Kind::out_of_memory;
    }
  }
  return outcome;
}

std::string describe(const ChildOutcome& outcome, const Limits& limits) {
  std::string text;
  char number[64];
  switch (outcome.kind) {
    case ChildOutcome::Kind::ok:
      return "ok";
    case ChildOutcome::Kind::failed:
      return outcome.payload;
    case ChildOutcome::Kind::exited:
      text = "exited with status " + std::to_string(outcome.code);
      break;
    case ChildOutcome::Kind::signalled: {
      const char* name = ::sigabbrev_np(outcome.code);
      text = "killed by " + (name ? "SIG" + std::string(name) : "signal " + std::to_string(outcome.code));
      break;
    }
    case ChildOutcome::Kind::timed_out:
      std::snprintf(number, sizeof number, "not finished after %g s", limits.seconds);
      text = number;
      break;
    case ChildOutcome::Kind::out_of_memory:
      std::snprintf(number, sizeof number, "out of memory (limit %g MiB)", double(limits.memory_bytes) / (1 << 20));
      text = number;
      break;
  }
  if (!outcome.note.empty()) text += " while " + outcome.note;
  // LLVM's own words, if it said any: the first line that looks like a diagnosis.
  for (const char* marker : {"LLVM ERROR: ", "Assertion `", "UNREACHABLE executed"}) {
    const auto at = outcome.log.find(marker);
    if (at == std::string::npos) continue;
    text += ": " + outcome.log.substr(at, outcome.log.find('\n', at) - at);
    break;
  }
  return text;
}

}  // namespace r3
