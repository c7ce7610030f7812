// Integer and bit instructions, conversions and the exactly rounded float operations: the same on every device.
#include <cuda_fp16.h>

#include "report.h"

__global__ void integers(uint32_t* out, const uint32_t* in) {
  unsigned i = threadIdx.x;
  uint32_t a = in[i], b = in[(i + 5) % 32], c = in[(i + 11) % 32];
  uint32_t* mine = out + i * 24;
  mine[0] = __popc(a) + 100 * __clz(b) + 10000 * __ffs(c);
  mine[1] = __brev(a);
  mine[2] = __byte_perm(a, b, c);
  mine[3] = __funnelshift_l(a, b, c);
  mine[4] = __funnelshift_rc(a, b, c);
  mine[5] = __mulhi((int)a, (int)b);
  mine[6] = __umulhi(a, b);
  mine[7] = __mul24((int)a, (int)b) + __umul24(a, b);
  mine[8] = __sad((int)a, (int)b, c);
  mine[9] = __usad(a, b, c);
  mine[10] = __dp4a(a, b, c);
  mine[11] = __dp4a((int)a, (int)b, (int)c);
  mine[12] = __hadd((int)a, (int)b) + __urhadd(a, b);
  mine[13] = (uint32_t)__mul64hi((long long)a << 17, (long long)b << 13);
  mine[14] = __clzll((long long)a << 9) + 100 * __popcll((unsigned long long)b << 20 | c) +
             10000 * __ffsll((long long)c << 21);
  mine[15] = (uint32_t)(__brevll((unsigned long long)a << 7) >> 11);
  mine[16] = __vadd4(a, b);
  mine[17] = __vabsdiffu4(a, b);
  mine[18] = __vcmpgtu2(a, b);
  mine[19] = __vmaxs4(a, b);
  mine[20] = a / (b | 1) + a % (c | 1);
  mine[21] = (uint32_t)((int)a / ((int)b | 1)) + (uint32_t)((int)a % ((int)c | 1));
  mine[22] = (uint32_t)(((unsigned long long)a << 32 | b) / (c | 1));
  mine[23] = min((int)a, (int)b) ^ max(a, c);
}

__global__ void conversions(uint32_t* out, const float* in) {
  unsigned i = threadIdx.x;
  float x = in[i];
  double d = (double)x * 1.000000123;
  uint32_t* mine = out + i * 24;
  mine[0] = __float2int_rn(x);
  mine[1] = __float2int_rz(x);
  mine[2] = __float2int_ru(x);
  mine[3] = __float2int_rd(x);
  mine[4] = __float2uint_rn(x);
  mine[5] = __double2int_rd(d);
  mine[6] = (uint32_t)(__double2ll_rn(d) >> 3);
  mine[7] = __float_as_uint(__double2float_ru(d));
  mine[8] = __float_as_uint(__double2float_rd(d));
  mine[9] = __float_as_uint(__int2float_ru((int)__float_as_uint(x)));
  mine[10] = __float_as_uint(__uint2float_rz(__float_as_uint(x)));
  mine[11] = __half_as_ushort(__float2half_rn(x));
  mine[12] = __half_as_ushort(__float2half_rz(x));
  mine[13] = __float_as_uint(__half2float(__ushort_as_half((unsigned short)__float_as_uint(x))));
  mine[14] = __float_as_uint(rintf(x)) ^ __float_as_uint(truncf(x));
  mine[15] = __float_as_uint(floorf(x)) ^ __float_as_uint(ceilf(x));
  mine[16] = __float_as_uint(roundf(x));
  mine[17] = __double2hiint(d);
  mine[18] = __double2loint(d);
  mine[19] = (uint32_t)llrint(d);
  mine[20] = (uint32_t)(int)x;
  mine[21] = (uint32_t)x;
  mine[22] = (uint32_t)(long long)d;
  mine[23] = __float_as_uint(__ll2float_rd((long long)__float_as_uint(x) << 17));
}

__global__ void rounding(uint32_t* out, const float* in) {
  unsigned i = threadIdx.x;
  float x = in[i], y = in[(i + 7) % 32], z = in[(i + 3) % 32];
  uint32_t* mine = out + i * 20;
  mine[0] = __float_as_uint(__fadd_rn(x, y));
  mine[1] = __float_as_uint(__fadd_rz(x, y));
  mine[2] = __float_as_uint(__fadd_ru(x, y));
  mine[3] = __float_as_uint(__fadd_rd(x, y));
  mine[4] = __float_as_uint(__fmul_rn(x, y));
  mine[5] = __float_as_uint(__fmul_ru(x, y));
  mine[6] = __float_as_uint(__fmaf_rn(x, y, z));
  mine[7] = __float_as_uint(__fmaf_rz(x, y, z));
  mine[8] = __float_as_uint(__fdiv_rn(x, y));
  mine[9] = __float_as_uint(__fdiv_rd(x, y));
  mine[10] = __float_as_uint(__fsqrt_rn(fabsf(x)));
  mine[11] = __float_as_uint(__fsqrt_ru(fabsf(x)));
  mine[12] = __float_as_uint(__frcp_rn(x));
  mine[13] = __double2loint(__dadd_ru(x, 1e-9 * y));
  mine[14] = __double2loint(__dmul_rd(x * 1.1, y * 0.7));
  mine[15] = __double2loint(__fma_rz(x * 1.3, y * 0.3, z));
  mine[16] = __double2loint(__ddiv_rn(x, 3.0 * y));
  mine[17] = __double2loint(__dsqrt_ru(fabs(x * 1.7)));
  mine[18] = __float_as_uint(fminf(x, y)) ^ __float_as_uint(fmaxf(y, z));
  mine[19] = __float_as_uint(__saturatef(x)) + __float_as_uint(copysignf(y, x));
}

int main() {
  std::vector<uint32_t> words(32);
  uint32_t seed = 12345;
  for (uint32_t& word : words) word = seed = seed * 1664525u + 1013904223u;
  words[3] = 0;
  words[4] = ~0u;
  words[5] = 0x80000000u;
  std::vector<float> reals(32);
  for (int i = 0; i < 32; ++i) reals[i] = ((int)words[i] >> (i % 20)) * (i % 3 ? 0.37f : 1e-3f);
  reals[1] = 2.5f;
  reals[2] = -0.5f;
  reals[6] = 3e10f;
  reals[7] = -1e20f;
  reals[8] = 1e-40f;
  Array<uint32_t> in(32), out(32 * 24);
  Array<float> floats(32);
  check(cudaMemcpy(in.data, words.data(), 128, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(floats.data, reals.data(), 128, cudaMemcpyHostToDevice), "cudaMemcpy");
  integers<<<1, 32>>>(out.data, in.data);
  finish("integers");
  print("integers", out.host());
  conversions<<<1, 32>>>(out.data, floats.data);
  finish("conversions");
  std::vector<uint32_t> converted = out.host();
  for (int i = 0; i < 32; ++i)  // a NaN's payload is not the same on every device
    if ((converted[i * 24 + 13] & 0x7fffffff) > 0x7f800000) converted[i * 24 + 13] = 0x7fffffff;
  print("conversions", converted);
  rounding<<<1, 32>>>(out.data, floats.data);
  finish("rounding");
  std::vector<uint32_t> rounded = out.host();
  rounded.resize(32 * 20);
  print("rounding", rounded);
}
