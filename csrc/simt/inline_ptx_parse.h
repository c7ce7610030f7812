// The syntax of PTX as inline assembly uses it: statements, nothing about what they mean.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace r3::ptx {

struct Operand {
  enum class Kind {
    kName,      // register, special register, label, variable; `name`
    kArgument,  // $N of the inline assembly; `argument`
    kInteger,   // `integer`
    kFloat,     // `real`; `float_bits` for 0f and 0d literals
    kVector,    // {a, b, …}: `parts`
    kAddress,   // [base + offset]: parts[0] is the base, `integer` the offset; [base, {a, b}]: parts[1] is a vector
    kPair,      // d|p: two `parts`
    kSink,      // _
  };
  Kind kind = Kind::kSink;
  std::string name;
  unsigned argument = 0;
  uint64_t integer = 0;
  unsigned float_bits = 0;  // 32 or 64: `integer` holds the value's bits
  bool inverted = false;    // !p
  bool negated = false;     // -r
  std::vector<Operand> parts;
};

struct Guard {
  Operand predicate;
  bool inverted = false;
};

struct Statement {
  enum class Kind { kInstruction, kLabel, kDeclaration, kOpenScope, kCloseScope, kHint };
  Kind kind = Kind::kInstruction;  // kHint: a .pragma
  std::string text;                // as written
  std::optional<Guard> guard;      // @p, @!p
  std::string opcode;              // "ld"
  std::string modifiers;           // "global.u32"; of a declaration, the type
  std::vector<Operand> operands;
  std::string label;
  std::vector<std::string> names;  // of a declaration
};

// The statements of an inline-assembly string, or, when it is not PTX that this parser knows, nothing; `error` then
// holds the text where it stopped.
std::optional<std::vector<Statement>> parse(const std::string& source, std::string& error);

}  // namespace r3::ptx
