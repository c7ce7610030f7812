// Texture fetches: tex.1d, tex.2d, tex.3d and their layered forms. Mipmaps, cubes and gathers have no translation.
#include <llvm/IR/Module.h>

#include "simt/inline_ptx_translate.h"
#include "simt/texture.h"

using namespace llvm;

namespace r3::ptx {

// tex.geometry.v4.dtype.ctype {a, b, c, d}, [texture, {coordinates}];
bool Translator::emit_tex(Instruction& i) {
  StringRef geometry = i.mods.take_any({"1d", "2d", "3d", "a1d", "a2d"});
  std::optional<Type> coordinate = take_type(i);
  std::optional<Type> result = take_type(i);
  if (geometry.empty() || !i.mods.take("v4") || !coordinate || !result || result->width() != 32 || i.count() != 2)
    return false;
  const Operand& to = i.operand(0);
  const Operand& from = i.operand(1);
  if (to.kind != Operand::Kind::kVector || to.parts.size() != 4 || from.kind != Operand::Kind::kAddress ||
      from.parts.size() != 2 || from.parts[1].kind != Operand::Kind::kVector)
    return false;

  bool layered = geometry.consume_front("a");
  auto dimensions = static_cast<unsigned>(geometry[0] - '0');
  uint32_t form = dimensions | (layered ? texture_layered : 0) | (coordinate->is_float() ? 0 : texture_integer);
  const std::vector<Operand>& coordinates = from.parts[1].parts;
  if (coordinates.size() < dimensions + layered || coordinate->width() != 32) return false;
  Value* places[3] = {b_.getInt32(0), b_.getInt32(0), b_.getInt32(0)};
  for (unsigned d = 0; d < dimensions; ++d) places[d] = read(coordinates[layered + d], bits_type(32));
  if (layered) places[dimensions] = read(coordinates[0], bits_type(32));  // the layer is written first

  llvm::Type* i64 = b_.getInt64Ty();
  llvm::Type* i32 = b_.getInt32Ty();
  Module* module = b_.GetInsertBlock()->getModule();
  FunctionCallee fetch = module->getOrInsertFunction(
      "r3rt_texture", FunctionType::get(StructType::get(i64, i64), {i64, i32, i32, i32, i32}, false));
  Value* halves = b_.CreateCall(fetch, {read(from.parts[0], kU64), b_.getInt32(form), places[0], places[1], places[2]});
  for (unsigned c = 0; c < 4; ++c) {
    Value* half = b_.CreateExtractValue(halves, c / 2);
    write(to.parts[c], b_.CreateTrunc(c % 2 == 0 ? half : b_.CreateLShr(half, 32), i32));
  }
  return true;
}

}  // namespace r3::ptx
