#include "simt/texture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace r3 {
namespace {

constexpr float farthest = 1 << 30;  // coordinates beyond are outside any texture

float half_to_float(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction | 1024), exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

// The texel that a position stands for, or -1 for the border.
std::int64_t place(std::int64_t position, std::int64_t size, Texture::Outside outside, bool normalised) {
  if (position >= 0 && position < size) return position;
  if (outside == Texture::Outside::border) return -1;
  if (normalised && outside == Texture::Outside::wrap) return (position % size + size) % size;
  return std::clamp<std::int64_t>(position, 0, size - 1);
}

// Normalised coordinates that repeat, brought into [0, 1].
float repeat(float coordinate, Texture::Outside outside) {
  if (outside != Texture::Outside::wrap && outside != Texture::Outside::mirror) return coordinate;
  const float whole = std::floor(coordinate), fraction = coordinate - whole;
  const bool backwards = outside == Texture::Outside::mirror && std::fmod(whole, 2.0f) != 0;
  return backwards ? 1 - fraction : fraction;
}

std::uint32_t channel_bits(const Texture& texture, const char* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, texture.channel_bits / 8);
  if (texture.kind == Texture::Kind::sign && texture.channel_bits < 32) {
    const unsigned unused = 32 - texture.channel_bits;
    bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(bits << unused) >> unused);
  }
  return bits;
}

double largest(const Texture& texture) {
  return std::ldexp(1.0, static_cast<int>(texture.channel_bits) - (texture.kind == Texture::Kind::sign)) - 1;
}

// Of integers that are read as fractions, the integer.
double channel_value(const Texture& texture, std::uint32_t bits) {
  if (texture.kind == Texture::Kind::real)
    return texture.channel_bits == 16 ? half_to_float(static_cast<std::uint16_t>(bits)) : std::bit_cast<float>(bits);
  if (texture.kind == Texture::Kind::unsign) return bits;
  return std::max<double>(static_cast<std::int32_t>(bits), -largest(texture));
}

std::uint32_t result_of(const Texture& texture, double sum) {
  if (texture.as_fractions) {
    const bool is_byte = texture.kind == Texture::Kind::unsign && texture.channel_bits == 8;
    sum = is_byte ? std::floor(sum * 257 + 0.5) / 65535 : sum / largest(texture);  // bytes interpolate to 16 bits
  }
  return std::bit_cast<std::uint32_t>(static_cast<float>(sum));
}

// One dimension of a fetch: two neighbouring texels (the same one when not interpolating) and the second's weight, in
// parts of `one`.
constexpr unsigned one = 256;

struct Axis {
  std::int64_t texel[2] = {0, 0};
  unsigned weight = 0;
};

Axis axis_at(const Texture& texture, unsigned dimension, bool is_integer, std::uint32_t coordinate) {
  const std::int64_t size = texture.extent[dimension];
  Axis axis;
  if (is_integer) {
    const std::int64_t position = static_cast<std::int32_t>(coordinate);
    axis.texel[0] = axis.texel[1] = position >= 0 && position < size ? position : -1;
    return axis;
  }
  float position = std::bit_cast<float>(coordinate);
  if (texture.normalised) position = repeat(position, texture.outside[dimension]) * static_cast<float>(size);
  if (texture.linear) position -= 0.5f;
  position = std::isnan(position) ? 0 : std::clamp(position, -farthest, farthest);
  const float whole = std::floor(position);
  for (int i = 0; i < 2; ++i) {
    axis.texel[i] = place(static_cast<std::int64_t>(whole) + (texture.linear ? i : 0), size, texture.outside[dimension],
                          texture.normalised);
  }
  if (texture.linear) axis.weight = static_cast<unsigned>(std::round((position - whole) * one));
  return axis;
}

unsigned part(unsigned of, unsigned weight) { return (of * weight + one / 2) / one; }

// The weights of the corners (x + 2 y + 4 z), in parts of `one`: each is rounded, and all add up to one. How an H200
// rounds them was found by comparing with it.
void weigh(const Axis (&axes)[3], bool solid, unsigned (&weights)[8]) {
  const unsigned x = axes[0].weight, y = axes[1].weight, z = axes[2].weight;
  const auto square = [](unsigned a, unsigned b, unsigned (&corners)[4]) {
    const unsigned both = part(a, b);
    corners[0] = one - a - b + both, corners[1] = a - both, corners[2] = b - both, corners[3] = both;
  };
  unsigned corners[4];
  square(solid ? y : x, solid ? z : y, corners);
  for (unsigned i = 0; i < 4; ++i) {
    if (!solid) {
      weights[i] = corners[i];
    } else {
      weights[2 * i + 1] = part(corners[i], x);
      weights[2 * i] = corners[i] - weights[2 * i + 1];
    }
  }
}

}  // namespace

Texel fetch_texture(const Texture& texture, std::uint32_t form, const std::uint32_t (&coordinates)[3]) {
  const unsigned dimensions = form & 7;
  const bool layered = form & texture_layered, is_integer = form & texture_integer;
  Axis axes[3];
  for (unsigned d = 0; d < dimensions; ++d) axes[d] = axis_at(texture, d, is_integer, coordinates[d]);
  // Hardware takes a line for a picture one row high, and samples it on that row's edge.
  if (dimensions == 1 && !is_integer) axes[1] = axis_at(texture, 1, false, 0);
  if (layered) {
    const std::uint32_t layer = std::min(coordinates[dimensions], texture.extent[2] - 1);
    axes[2].texel[0] = axes[2].texel[1] = layer;
  }

  const bool as_float = texture.kind == Texture::Kind::real || texture.as_fractions;
  const std::size_t channel_bytes = texture.channel_bits / 8;
  unsigned weights[8] = {one};
  if (as_float && texture.linear && !is_integer) weigh(axes, dimensions == 3, weights);
  std::uint32_t results[4] = {};
  double sums[4] = {};
  const double unit = texture.as_fractions ? largest(texture) : 1;  // of border colours
  for (unsigned corner = 0; corner < 8; ++corner) {
    if (weights[corner] == 0) continue;
    const double weight = static_cast<double>(weights[corner]) / one;
    const std::int64_t texel[3] = {axes[0].texel[corner & 1], axes[1].texel[corner >> 1 & 1],
                                   axes[2].texel[corner >> 2]};
    const bool border = texel[0] < 0 || texel[1] < 0 || texel[2] < 0;
    const std::uint64_t offset = border ? 0
                                        : static_cast<std::uint64_t>(texel[2]) * texture.slice_pitch +
                                              static_cast<std::uint64_t>(texel[1]) * texture.row_pitch +
                                              static_cast<std::uint64_t>(texel[0]) * texture.channels * channel_bytes;
    for (unsigned c = 0; c < texture.channels; ++c) {
      const char* at = reinterpret_cast<const char*>(texture.texels + offset + c * channel_bytes);
      if (!as_float) {
        results[c] = border ? std::bit_cast<std::uint32_t>(texture.border[c]) : channel_bits(texture, at);
      } else {
        sums[c] += weight * (border ? texture.border[c] * unit : channel_value(texture, channel_bits(texture, at)));
      }
    }
  }
  if (as_float) std::transform(sums, sums + 4, results, [&](double sum) { return result_of(texture, sum); });
  return {results[0] | std::uint64_t{results[1]} << 32, results[2] | std::uint64_t{results[3]} << 32};
}

}  // namespace r3
