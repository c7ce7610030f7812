// Exists so that libr3core has a translation unit of its own; see CMakeLists.txt beside it.
#include "compile/compile.h"
