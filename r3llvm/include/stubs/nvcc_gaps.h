// What nvcc's headers give every CUDA source and clang's do not. Included only where a source does not compile without.
#pragma once
#include <math.h>
#include <time.h>

#include <cmath>

#ifdef __CUDA__

// min and max of numbers, called from host code.
#define R3_MIN_MAX(result, left, right)                                                                       \
  static inline __host__ result min(left a, right b) {                                                        \
    return static_cast<result>(a) < static_cast<result>(b) ? static_cast<result>(a) : static_cast<result>(b); \
  }                                                                                                           \
  static inline __host__ result max(left a, right b) {                                                        \
    return static_cast<result>(a) < static_cast<result>(b) ? static_cast<result>(b) : static_cast<result>(a); \
  }
#define R3_MIN_MAX_OF(with_sign, without_sign)         \
  R3_MIN_MAX(with_sign, with_sign, with_sign)          \
  R3_MIN_MAX(without_sign, without_sign, without_sign) \
  R3_MIN_MAX(without_sign, with_sign, without_sign)    \
  R3_MIN_MAX(without_sign, without_sign, with_sign)
R3_MIN_MAX_OF(int, unsigned)
R3_MIN_MAX_OF(long, unsigned long)
R3_MIN_MAX_OF(long long, unsigned long long)
R3_MIN_MAX(float, float, float)
R3_MIN_MAX(double, double, double)
R3_MIN_MAX(double, float, double)
R3_MIN_MAX(double, double, float)
#undef R3_MIN_MAX_OF
#undef R3_MIN_MAX

using std::isfinite;
using std::isinf;
using std::isnan;
using std::modf;

// Loads and stores with a cache hint: the hint is lost.
template <class T>
static inline __device__ T __ldlu(const T* from) {
  return *from;
}
template <class T>
static inline __device__ void __stwb(T* to, T value) {
  *to = value;
}
template <class T>
static inline __device__ void __stcg(T* to, T value) {
  *to = value;
}
template <class T>
static inline __device__ void __stcs(T* to, T value) {
  *to = value;
}

#endif  // __CUDA__
