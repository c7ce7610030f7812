; A kernel whose loop has a known, large trip count: unrolled without a threshold it takes all memory there is.
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @spin(ptr noalias %data) #0 {
entry:
  br label %loop

loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %x = phi i32 [ 1, %entry ], [ %y, %loop ]
  %pointer = getelementptr inbounds i32, ptr %data, i32 %i
  %value = load i32, ptr %pointer, align 4
  %y = add i32 %x, %value
  %next = add nuw nsw i32 %i, 1
  %more = icmp ult i32 %next, 5000000
  br i1 %more, label %loop, label %done

done:
  store i32 %y, ptr %data, align 4
  ret void
}

attributes #0 = { convergent nounwind "target-cpu"="sm_90" }
