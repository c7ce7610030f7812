; A barrier between two branches on the same condition: threading the jump would leave two barriers, one a side.
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @twice(ptr %data, i32 %n) #0 {
entry:
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = icmp slt i32 %thread, %n
  br i1 %first, label %write, label %join

write:
  store i32 1, ptr %data, align 4
  br label %join

join:
  %flag = phi i1 [ true, %write ], [ false, %entry ]
  call void @llvm.nvvm.membar.cta()
  br i1 %flag, label %again, label %done

again:
  store i32 2, ptr %data, align 4
  br label %done

done:
  ret void
}

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.membar.cta()

attributes #0 = { nounwind "target-cpu"="sm_90" }
