// Texture objects. A handle is the address of a descriptor in device memory, which names the texels by address: so a
// recording that follows pointers holds all of a texture, and a replay finds it where it was.
#pragma once
#include <cstdint>

namespace r3 {

struct Texture {
  static constexpr std::uint64_t mark = 0x6572757478655433;

  enum class Kind : std::uint32_t { sign, unsign, real };              // of a channel; CUDA's numbering
  enum class Outside : std::uint32_t { wrap, clamp, mirror, border };  // CUDA's numbering

  std::uint64_t marked;                  // `mark`
  std::uint64_t texels;                  // address of the first
  std::uint64_t row_pitch, slice_pitch;  // bytes
  std::uint32_t extent[3];               // in texels, 1 where there is no such dimension; layers come last
  std::uint32_t channels, channel_bits;
  Kind kind;
  Outside outside[3];
  std::uint32_t linear;        // interpolates; else takes the nearest texel
  std::uint32_t normalised;    // coordinates run from 0 to 1
  std::uint32_t as_fractions;  // integers are read as fractions of their largest value
  float border[4];
};

// What an instruction asks for, as r3rt_texture takes it: dimensions, plus these.
inline constexpr std::uint32_t texture_layered = 8;   // the last coordinate is a layer, an integer
inline constexpr std::uint32_t texture_integer = 16;  // coordinates are integers: texels, never interpolated

// Four 32-bit results, the first in the low half of `low`. Passed in registers: lowered code expects {i64, i64}.
struct Texel {
  std::uint64_t low, high;
};

// `coordinates` are the bits of floats or integers. Interpolates as a GPU does, with 8 bits of weight.
Texel fetch_texture(const Texture& texture, std::uint32_t form, const std::uint32_t (&coordinates)[3]);

}  // namespace r3
