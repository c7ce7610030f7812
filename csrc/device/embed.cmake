# cmake -DINPUT=kernels.ptx -DOUTPUT=kernels_ptx.h -P embed.cmake: the file as a C string (in pieces, since compilers bound
# a literal's length).
file(READ ${INPUT} text)
string(REGEX REPLACE "//[^\n]*\n" "\n" text "${text}")
string(REPLACE "\n" ")ptx\" \"\\n\" R\"ptx(" text "${text}")
file(WRITE ${OUTPUT} "// Generated from kernels.cu.\n#pragma once\nnamespace r3::device {\ninline constexpr char kernels_ptx[] = R\"ptx(${text})ptx\";\n}\n")
