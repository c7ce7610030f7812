// What the device code of this folder is written with, so that the same source is compiled for the GPU (clang, without
// CUDA's headers) and, for tests, for the CPU (one thread that does it all).
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

#ifdef __CUDA__
#define R3_KERNEL extern "C" __attribute__((global)) void
#define R3_DEVICE static __attribute__((device)) inline
// Of a kernel launched with 256 threads: so many blocks are to fit a multiprocessor. Goes before a declaration.
#define R3_RESIDENT(blocks) extern "C" __attribute__((global, launch_bounds(256, blocks))) void

R3_DEVICE u64 thread_index() {
  return static_cast<u64>(__nvvm_read_ptx_sreg_ctaid_x()) * __nvvm_read_ptx_sreg_ntid_x() +
         __nvvm_read_ptx_sreg_tid_x();
}
R3_DEVICE u64 thread_count() {
  return static_cast<u64>(__nvvm_read_ptx_sreg_nctaid_x()) * __nvvm_read_ptx_sreg_ntid_x();
}
R3_DEVICE void atomic_add(u64* at, u64 value) {
  __nvvm_atom_add_gen_ll(reinterpret_cast<long long*>(at), static_cast<long long>(value));
}
R3_DEVICE void atomic_min(u64* at, u64 value) { __nvvm_atom_min_gen_ull(at, value); }
R3_DEVICE void atomic_max(u64* at, u64 value) { __nvvm_atom_max_gen_ull(at, value); }
R3_DEVICE u64 device_nanoseconds() { return static_cast<u64>(__nvvm_read_ptx_sreg_globaltimer()); }
R3_DEVICE u64 device_cycles() { return static_cast<u64>(__nvvm_read_ptx_sreg_clock64()); }
#else
#define R3_KERNEL extern "C" void
#define R3_DEVICE static inline
#define R3_RESIDENT(blocks) extern "C" void

R3_DEVICE u64 thread_index() { return 0; }
R3_DEVICE u64 thread_count() { return 1; }
R3_DEVICE void atomic_add(u64* at, u64 value) { *at += value; }
R3_DEVICE void atomic_min(u64* at, u64 value) { *at = value < *at ? value : *at; }
R3_DEVICE void atomic_max(u64* at, u64 value) { *at = value > *at ? value : *at; }
R3_DEVICE u64 device_nanoseconds() {  // each look takes a microsecond
  static u64 now = 0;
  return now += 1000;
}
R3_DEVICE u64 device_cycles() { return 0; }
#endif
