#pragma once
#include <pybind11/pybind11.h>

namespace r3 {

void bind_device(pybind11::module_& m);

}  // namespace r3
