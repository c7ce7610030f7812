#include "simt/inline_ptx_parse.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>

namespace r3::ptx {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  std::optional<std::vector<Statement>> run(std::string& error) {
    std::vector<Statement> statements;
    for (skip_space(); position_ < source_.size(); skip_space()) {
      if (accept(';')) continue;
      start_ = position_;
      Statement statement;
      if (!parse_statement(statement)) {
        size_t end = source_.find_first_of(";\n", start_);
        error = trim(source_.substr(start_, end == std::string::npos ? end : end - start_));
        return std::nullopt;
      }
      statement.text = trim(source_.substr(start_, position_ - start_));
      statements.push_back(std::move(statement));
    }
    return statements;
  }

 private:
  static std::string trim(std::string text) {
    auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
    text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
    while (!text.empty() && (blank(text.back()) || text.back() == ';')) text.pop_back();
    return text;
  }

  char peek(size_t ahead = 0) const { return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0'; }

  void skip_space() {
    for (;;) {
      if (std::isspace(static_cast<unsigned char>(peek()))) {
        ++position_;
      } else if (peek() == '/' && peek(1) == '/') {
        position_ = std::min(source_.find('\n', position_), source_.size());
      } else if (peek() == '/' && peek(1) == '*') {
        size_t end = source_.find("*/", position_ + 2);
        position_ = end == std::string::npos ? source_.size() : end + 2;
      } else {
        return;
      }
    }
  }

  bool accept(char c) {
    skip_space();
    if (peek() != c) return false;
    ++position_;
    return true;
  }

  static bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '%'; }
  static bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  // An identifier: letters, digits, _ and, after the first character, $ too when it is no operand of the assembly ($$).
  std::string name() {
    std::string result;
    if (!is_name_start(peek())) return result;
    result += source_[position_++];
    for (;;) {
      if (is_name_char(peek())) {
        result += source_[position_++];
      } else if (peek() == '$' && peek(1) == '$') {
        result += '$';
        position_ += 2;
      } else if (peek() == '$' && peek(1) == '{' && peek(2) == ':') {  // ${:uid}: a number unique to this use
        size_t end = source_.find('}', position_);
        if (end == std::string::npos) return {};
        result += "_uid";
        position_ = end + 1;
      } else {
        return result;
      }
    }
  }

  // .global.v2.u32, L1::no_allocate: parts may hold :: themselves.
  std::string dotted() {
    std::string result;
    while (peek() == '.') {
      ++position_;
      if (!result.empty()) result += '.';
      while (is_name_char(peek()) || (peek() == ':' && peek(1) == ':')) {
        if (peek() == ':') result += source_[position_++];
        result += source_[position_++];
      }
    }
    return result;
  }

  bool parse_statement(Statement& statement) {
    if (accept('{')) {
      statement.kind = Statement::Kind::kOpenScope;
      return true;
    }
    if (accept('}')) {
      statement.kind = Statement::Kind::kCloseScope;
      return true;
    }
    if (peek() == '.') return parse_declaration(statement);
    if (accept('@')) {
      Guard guard;
      guard.inverted = accept('!');
      skip_space();
      if (!parse_primary(guard.predicate)) return false;
      statement.guard = std::move(guard);
      skip_space();
    }
    if (peek() == '$' && peek(1) == '$') {  // a label such as $$L
      position_ += 2;
      statement.label = "$" + name();
    } else {
      statement.label = name();
    }
    if (statement.label.empty()) return false;
    skip_space();
    if (peek() == ':' && peek(1) != ':') {
      ++position_;
      statement.kind = Statement::Kind::kLabel;
      return !statement.guard;
    }
    statement.opcode = std::move(statement.label);
    statement.label.clear();
    statement.modifiers = dotted();
    skip_space();
    while (peek() != ';' && peek() != '\0' && peek() != '}') {
      Operand operand;
      if (!parse_operand(operand)) return false;
      statement.operands.push_back(std::move(operand));
      if (!accept(',')) break;
    }
    return end_of_statement();
  }

  bool end_of_statement() {
    skip_space();
    return accept(';') || peek() == '\0' || peek() == '}';
  }

  bool parse_declaration(Statement& statement) {
    statement.kind = Statement::Kind::kDeclaration;
    std::string type = dotted();
    if (type == "pragma") {
      statement.kind = Statement::Kind::kHint;
      position_ = std::min(source_.find(';', position_), source_.size());
      return end_of_statement();
    }
    if (!type.starts_with("reg.") && type != "reg") return false;
    skip_space();
    type += type == "reg" ? "." + dotted() : "";  // ".reg .b32"
    statement.modifiers = type.substr(4);
    if (statement.modifiers.empty()) return false;
    do {
      skip_space();
      std::string declared = name();
      if (declared.empty()) return false;
      if (accept('<')) {  // %p<4>: %p0 … %p3
        Operand count;
        if (!parse_number(count) || !accept('>') || count.integer > 1024) return false;
        for (uint64_t i = 0; i < count.integer; ++i) statement.names.push_back(declared + std::to_string(i));
      } else {
        statement.names.push_back(std::move(declared));
      }
    } while (accept(','));
    return end_of_statement();
  }

  bool parse_operand(Operand& operand) {
    if (!parse_primary(operand)) return false;
    if (!accept('|')) return true;
    Operand second;
    if (!parse_primary(second)) return false;
    Operand pair;
    pair.kind = Operand::Kind::kPair;
    pair.parts = {std::move(operand), std::move(second)};
    operand = std::move(pair);
    return true;
  }

  bool parse_list(Operand& operand, char close) {
    do {
      Operand part;
      if (!parse_primary(part)) return false;
      operand.parts.push_back(std::move(part));
    } while (accept(','));
    return accept(close);
  }

  bool parse_primary(Operand& operand) {
    skip_space();
    if (accept('!')) {
      if (!parse_primary(operand)) return false;
      operand.inverted = !operand.inverted;
      return true;
    }
    if (peek() == '-' && (peek(1) == '$' || is_name_start(peek(1)))) {
      ++position_;
      if (!parse_primary(operand)) return false;
      operand.negated = !operand.negated;
      return true;
    }
    if (accept('{')) {
      operand.kind = Operand::Kind::kVector;
      return parse_list(operand, '}');
    }
    if (accept('[')) return parse_address(operand);
    if (peek() == '$' && peek(1) != '$') return parse_argument(operand);
    if (peek() == '$' && peek(1) == '$') {
      position_ += 2;
      operand.kind = Operand::Kind::kName;
      operand.name = "$" + name();
      return operand.name.size() > 1;
    }
    if (peek() == '_' && !is_name_char(peek(1))) {
      ++position_;
      operand.kind = Operand::Kind::kSink;
      return true;
    }
    if (is_name_start(peek())) {
      operand.kind = Operand::Kind::kName;
      operand.name = name();
      if (peek() == '.') operand.name += "." + dotted();  // %tid.x
      return true;
    }
    return parse_number(operand);
  }

  bool parse_address(Operand& operand) {
    operand.kind = Operand::Kind::kAddress;
    Operand base;
    if (!parse_primary(base)) return false;
    operand.parts.push_back(std::move(base));
    if (accept(',')) {  // a texture's coordinates
      Operand coordinates;
      if (!parse_primary(coordinates)) return false;
      operand.parts.push_back(std::move(coordinates));
      return accept(']');
    }
    for (skip_space(); peek() == '+' || peek() == '-'; skip_space()) {
      bool minus = peek() == '-';
      ++position_;
      skip_space();
      Operand offset;
      if (peek() == '$' ? !parse_argument(offset) : !parse_number(offset)) return false;
      if (offset.kind == Operand::Kind::kInteger) {
        operand.integer += minus ? -offset.integer : offset.integer;
      } else if (minus || offset.kind == Operand::Kind::kFloat) {
        return false;
      } else {
        operand.parts.push_back(std::move(offset));
      }
    }
    return accept(']');
  }

  bool parse_argument(Operand& operand) {
    ++position_;  // $
    bool braces = accept('{');
    unsigned number = 0;
    auto [end, status] = std::from_chars(source_.data() + position_, source_.data() + source_.size(), number);
    if (status != std::errc()) return false;
    position_ = static_cast<size_t>(end - source_.data());
    if (braces) {
      if (accept(':')) name();
      if (!accept('}')) return false;
    }
    operand.kind = Operand::Kind::kArgument;
    operand.argument = number;
    return true;
  }

  bool parse_number(Operand& operand) {
    skip_space();
    bool negative = false;
    while (peek() == '-' || peek() == '+') {
      negative ^= peek() == '-';
      ++position_;
      skip_space();
    }
    if (peek() == '0' && (peek(1) == 'f' || peek(1) == 'F' || peek(1) == 'd' || peek(1) == 'D')) {
      operand.float_bits = std::tolower(peek(1)) == 'f' ? 32 : 64;
      position_ += 2;
      operand.kind = Operand::Kind::kFloat;
      if (!parse_digits(operand.integer, 16)) return false;
      if (negative) operand.integer ^= uint64_t{1} << (operand.float_bits - 1);
      return true;
    }
    size_t digits = position_;
    while (std::isdigit(static_cast<unsigned char>(source_.c_str()[digits]))) ++digits;
    if (digits > position_ && (source_.c_str()[digits] == '.' || std::tolower(source_.c_str()[digits]) == 'e')) {
      double value = 0;
      auto [end, status] = std::from_chars(source_.data() + position_, source_.data() + source_.size(), value);
      if (status != std::errc()) return false;
      position_ = static_cast<size_t>(end - source_.data());
      operand.kind = Operand::Kind::kFloat;
      operand.float_bits = 64;
      operand.integer = std::bit_cast<uint64_t>(negative ? -value : value);
      return true;
    }
    int base = 10;
    if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) {
      base = 16;
      position_ += 2;
    } else if (peek() == '0' && (peek(1) == 'b' || peek(1) == 'B')) {
      base = 2;
      position_ += 2;
    } else if (peek() == '0' && std::isdigit(static_cast<unsigned char>(peek(1)))) {
      base = 8;
      ++position_;
    }
    operand.kind = Operand::Kind::kInteger;
    if (!parse_digits(operand.integer, base)) return false;
    if (peek() == 'U' || peek() == 'u') ++position_;
    if (negative) operand.integer = -operand.integer;
    return true;
  }

  bool parse_digits(uint64_t& value, int base) {
    auto [end, status] = std::from_chars(source_.data() + position_, source_.data() + source_.size(), value, base);
    if (status != std::errc()) return false;
    position_ = static_cast<size_t>(end - source_.data());
    return true;
  }

  const std::string& source_;
  size_t position_ = 0;
  size_t start_ = 0;
};

}  // namespace

std::optional<std::vector<Statement>> parse(const std::string& source, std::string& error) {
  return Parser(source).run(error);
}

}  // namespace r3::ptx
