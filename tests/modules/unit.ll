; A translation unit as clang leaves it: two kernels, device variables, the builtins without storage, __nvvm_reflect.
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

%struct.__cuda_builtin_blockIdx_t = type { i8 }

@blockIdx = extern_weak dso_local addrspace(1) global %struct.__cuda_builtin_blockIdx_t, align 1
@counter = dso_local addrspace(1) externally_initialized global i32 0, align 4
@coefficients = dso_local addrspace(4) externally_initialized constant [4 x float] zeroinitializer, align 4
@history = internal addrspace(1) global [4 x i32] zeroinitializer, align 4
@table = internal addrspace(1) global [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0], align 4
@__cudart_table = internal addrspace(1) global [2 x i32] [i32 1, i32 2], align 4
@only_other = dso_local addrspace(1) externally_initialized global i32 0, align 4
@tile = internal addrspace(3) global [256 x float] undef, align 4
@arch = private unnamed_addr constant [12 x i8] c"__CUDA_ARCH\00"
@ftz = private unnamed_addr constant [11 x i8] c"__CUDA_FTZ\00"
@llvm.compiler.used = appending global [3 x ptr] [
  ptr addrspacecast (ptr addrspace(1) @counter to ptr),
  ptr addrspacecast (ptr addrspace(4) @coefficients to ptr),
  ptr addrspacecast (ptr addrspace(1) @only_other to ptr)], section "llvm.metadata"

$_Z6helperf = comdat any

define ptx_kernel void @scale(ptr noundef %data, i32 noundef %n) #0 {
entry:
  call void @_ZNK9blockIdx4dim3Ev(ptr noundef nonnull align 1 dereferenceable(1) addrspacecast (ptr addrspace(1) @blockIdx to ptr))
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %base = mul i32 %block, %size
  %i = add i32 %base, %thread
  %inside = icmp slt i32 %i, %n
  br i1 %inside, label %work, label %done

work:
  %wide = sext i32 %i to i64
  %pointer = getelementptr inbounds float, ptr %data, i64 %wide
  %value = load float, ptr %pointer, align 4
  %helped = call contract float @_Z6helperf(float noundef %value)
  %slot = and i32 %i, 3
  %index = zext i32 %slot to i64
  %tabled = getelementptr inbounds [4 x float], ptr addrspacecast (ptr addrspace(1) @table to ptr), i64 0, i64 %index
  %factor = load float, ptr %tabled, align 4
  %constant = getelementptr inbounds [4 x float], ptr addrspacecast (ptr addrspace(4) @coefficients to ptr), i64 0, i64 %index
  %offset = load float, ptr %constant, align 4
  %product = fmul contract float %helped, %factor
  %sum = fadd contract float %product, %offset
  store float %sum, ptr %pointer, align 4
  %cudart = load i32, ptr addrspacecast (ptr addrspace(1) @__cudart_table to ptr), align 4
  %past = getelementptr inbounds [4 x i32], ptr addrspacecast (ptr addrspace(1) @history to ptr), i64 0, i64 %index
  store i32 %cudart, ptr %past, align 4
  %old = atomicrmw add ptr addrspacecast (ptr addrspace(1) @counter to ptr), i32 1 monotonic, align 4
  br label %done

done:
  ret void
}

define ptx_kernel void @other(ptr noundef %data) #1 {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %mine = getelementptr inbounds [256 x float], ptr addrspacecast (ptr addrspace(3) @tile to ptr), i64 0, i32 %thread
  store float 1.0, ptr %mine, align 4
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %mirrored = sub i32 255, %thread
  %theirs = getelementptr inbounds [256 x float], ptr addrspacecast (ptr addrspace(3) @tile to ptr), i64 0, i32 %mirrored
  %one = load float, ptr %theirs, align 4
  store float %one, ptr %data, align 4
  store i32 7, ptr addrspacecast (ptr addrspace(1) @only_other to ptr), align 4
  %warped = call i32 asm sideeffect "mov.u32 $0, %laneid;", "=r"()
  store i32 %warped, ptr %data, align 4
  ret void
}

define linkonce_odr noundef float @_Z6helperf(float noundef %x) #1 comdat {
  %arch = call i32 @__nvvm_reflect(ptr @arch)
  %new = icmp uge i32 %arch, 900
  br i1 %new, label %modern, label %ancient

modern:
  %ftz = call i32 @__nvvm_reflect(ptr @ftz)
  %flush = icmp ne i32 %ftz, 0
  br i1 %flush, label %flushed, label %kept

flushed:
  %a = call float @llvm.nvvm.fabs.ftz.f32(float %x)
  ret float %a

kept:
  %b = call float @llvm.nvvm.fabs.f32(float %x)
  ret float %b

ancient:
  %c = fneg float %x
  ret float %c
}

define linkonce_odr void @_ZNK9blockIdx4dim3Ev(ptr noundef nonnull align 1 dereferenceable(1) %this) #1 {
  ret void
}

define void @nobody_calls_this() #1 {
  ret void
}

declare i32 @__nvvm_reflect(ptr)
declare float @llvm.nvvm.fabs.ftz.f32(float)
declare float @llvm.nvvm.fabs.f32(float)
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)

attributes #0 = { convergent nounwind "target-cpu"="sm_90" "target-features"="+ptx80" "nvvm.maxntid"="16,4,2" }
attributes #1 = { convergent nounwind "target-cpu"="sm_90" "target-features"="+ptx80" }

!llvm.module.flags = !{!0}
!0 = !{i32 4, !"nvvm-reflect-ftz", i32 1}
