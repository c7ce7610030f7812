// nvcc lets host code call min and max of mixed integer types at global scope; clang needs to be told.
#pragma once
#include <type_traits>

template <typename A, typename B>
__host__ inline std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> left = a, right = b;
  return right < left ? right : left;
}

template <typename A, typename B>
__host__ inline std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> left = a, right = b;
  return left < right ? right : left;
}
