#include "simt/runtime.h"

#include <cstring>

#include "simt/format.h"
#include "simt/globals.h"
#include "simt/texture.h"
#include "simt/worker.h"
#include "snapshot/arena.h"

namespace r3 {
namespace {

constexpr std::uint64_t clock_step = 32;         // cycles that pass between two reads
constexpr std::size_t max_output = 64ull << 20;  // of one worker's printf

Thread& current() { return *this_worker->current; }

extern "C" {

ThreadContext* r3rt_context() { return this_context; }

void r3rt_access(std::uint32_t site, std::uint64_t address, std::uint64_t bytes) {
  this_worker->access(site, address, bytes);
}

std::uint32_t r3rt_barrier(std::uint32_t op, std::uint32_t id, std::uint32_t count, std::uint32_t predicate,
                           std::uint32_t site) {
  Thread& thread = current();
  return thread.block->arrive_barrier(thread, BarrierOp(op), id, count, predicate != 0, site);
}

std::uint64_t r3rt_warp(std::uint32_t op, std::uint32_t mask, std::uint64_t value) {
  Thread& thread = current();
  thread.op = WarpOp(op);
  thread.mask = mask;
  thread.value = value;
  return thread.block->arrive_warp_op(thread);
}

std::uint64_t r3rt_shuffle(std::uint32_t op, std::uint32_t mask, std::uint32_t value, std::uint32_t b,
                           std::uint32_t c) {
  Thread& thread = current();
  thread.b = b;
  thread.c = c;
  return r3rt_warp(op, mask, value);
}

std::uint32_t r3rt_converge(std::uint32_t site) {
  Thread& thread = current();
  return thread.block->converge(thread, site);
}

void r3rt_spin() {
  Thread& thread = current();
  thread.block->spin(thread);
}

std::uint64_t r3rt_clock() { return this_context->clock += clock_step; }

void r3rt_exit() {
  Thread& thread = current();
  thread.block->exited(thread);
  this_worker->leave();
}

void r3rt_trap() { this_worker->fail(R3SIMT_TRAP, "trap"); }

Texel r3rt_texture(std::uint64_t handle, std::uint32_t form, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  const auto* texture = reinterpret_cast<const Texture*>(handle);
  if (texture->marked != Texture::mark)
    this_worker->fail(R3SIMT_ILLEGAL_ADDRESS, "no texture object at this address", handle);
  return fetch_texture(*texture, form, {x, y, z});
}

std::uint32_t r3rt_is_space(std::uint64_t address, std::uint32_t space) {
  bool shared = this_worker->is_shared(address, 1);
  bool local = !shared && this_worker->stacks->contains(address);
  switch (space) {
    case as_shared:
      return shared;
    case as_local:
      return local;
    case as_constant:
      return 0;
    default:
      return !shared && !local;
  }
}

std::int32_t r3rt_vprintf(const char* format, const void* arguments) {
  Worker& worker = *this_worker;
  std::uint64_t block = worker.current->block->number();
  if (worker.output.empty() || worker.output.back().first != block) worker.output.push_back({block, {}});
  std::string& text = worker.output.back().second;
  if (text.size() > max_output) return -1;
  return format_device(text, format, arguments);
}

void r3rt_assertfail(const char* message, const char* file, std::uint32_t line, const char* function, std::size_t) {
  this_worker->fail(R3SIMT_ASSERT, std::string(file) + ":" + std::to_string(line) + ": " + function + ": assertion `" +
                                       message + "' failed");
}

}  // extern "C"

template <typename Function>
RuntimeSymbol symbol(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

const RuntimeSymbol symbols[] = {
    symbol("r3rt_context", r3rt_context), symbol("r3rt_access", r3rt_access),
    symbol("r3rt_barrier", r3rt_barrier), symbol("r3rt_warp", r3rt_warp),
    symbol("r3rt_shuffle", r3rt_shuffle), symbol("r3rt_converge", r3rt_converge),
    symbol("r3rt_spin", r3rt_spin),       symbol("r3rt_clock", r3rt_clock),
    symbol("r3rt_exit", r3rt_exit),       symbol("r3rt_trap", r3rt_trap),
    symbol("r3rt_texture", r3rt_texture), symbol("r3rt_is_space", r3rt_is_space),
    symbol("r3rt_vprintf", r3rt_vprintf), symbol("r3rt_assertfail", r3rt_assertfail),
};

}  // namespace

std::span<const RuntimeSymbol> runtime_symbols() { return symbols; }

}  // namespace r3
