"""What looks at the arguments of a note, as text of LLVM: scalars, and tensors that are known.

In it `{…}` stands for the address of a function or an object, or a place in the state of a kernel.
A tensor without sizes or strides (nested, sparse CSR) makes torch throw inside, which takes long
and in older versions prints a line: all later launches of its kernel are left to Python.
"""

CONVERT = """
define internal i1 @{name}(ptr %object, ptr %result) {{
  %type_at = getelementptr i8, ptr %object, i64 {type_at}
  %type = load ptr, ptr %type_at
  %is_that = icmp eq ptr %type, {type}
  br i1 %is_that, label %convert, label %no
convert:
  %value = call {result} {function}(ptr %object)
  store {result} %value, ptr %result
  %may_be_error = {is_minus_one} {result} %value, -1{fraction}
  br i1 %may_be_error, label %ask, label %yes
ask:
  %error = call ptr {PyErr_Occurred}()
  %is_fine = icmp eq ptr %error, null
  br i1 %is_fine, label %yes, label %clear
clear:
  call void {PyErr_Clear}()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""
ARGUMENTS = """
define internal i64 @state(ptr %state, i64 %at) {{
  %word_at = getelementptr i8, ptr %state, i64 %at
  %word = load i64, ptr %word_at
  ret i64 %word
}}

define internal i1 @word(ptr %object, ptr %result) {{
  %long = alloca i64
  %is_int = call i1 @signed(ptr %object, ptr %long)
  br i1 %is_int, label %look, label %no
look:
  %value = load i64, ptr %long
  %fits = icmp ult i64 %value, 4294967296
  br i1 %fits, label %yes, label %no
yes:
  %short = trunc i64 %value to i32
  store i32 %short, ptr %result
  ret i1 true
no:
  ret i1 false
}}

define internal i1 @tensor(ptr %state, ptr %object, ptr %seen) {{
  %type_at = getelementptr i8, ptr %object, i64 {type_at}
  %type = load ptr, ptr %type_at
  %is_tensor = icmp eq ptr %type, {Tensor}
  %is_parameter = icmp eq ptr %type, {Parameter}
  %is_either = or i1 %is_tensor, %is_parameter
  br i1 %is_either, label %ask, label %no
ask:
  %handle = getelementptr i8, ptr %object, i64 {handle_at}
  %sizes = getelementptr i8, ptr %seen, i64 8
  %strides = getelementptr i8, ptr %seen, i64 16
  %a = call i32 {aoti_torch_get_dim}(ptr %handle, ptr %seen)
  %b = call i32 {aoti_torch_get_sizes}(ptr %handle, ptr %sizes)
  %c = call i32 {aoti_torch_get_strides}(ptr %handle, ptr %strides)
  %ab = or i32 %a, %b
  %abc = or i32 %ab, %c
  %is_known = icmp eq i32 %abc, 0
  br i1 %is_known, label %yes, label %give_up
give_up:
  %arguments_at = getelementptr i8, ptr %state, i64 {state_arguments}
  store i64 -1, ptr %arguments_at
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}}

define internal i1 @are_same(ptr %found, ptr %known, i64 %count) {{
begin:
  br label %look
look:
  %i = phi i64 [ 0, %begin ], [ %next, %one ]
  %is_one = icmp ult i64 %i, %count
  br i1 %is_one, label %one, label %same
one:
  %next = add i64 %i, 1
  %a_at = getelementptr i64, ptr %found, i64 %i
  %b_at = getelementptr i64, ptr %known, i64 %i
  %a = load i64, ptr %a_at
  %b = load i64, ptr %b_at
  %is_same = icmp eq i64 %a, %b
  br i1 %is_same, label %look, label %other
same:
  ret i1 true
other:
  ret i1 false
}}

define internal i1 @is_like(ptr %seen, ptr %known) {{
  %dims = load i64, ptr %seen
  %known_dims = load i64, ptr %known
  %is_same = icmp eq i64 %dims, %known_dims
  br i1 %is_same, label %compare_sizes, label %other
compare_sizes:
  %sizes_at = getelementptr i8, ptr %seen, i64 8
  %sizes = load ptr, ptr %sizes_at
  %known_sizes = getelementptr i64, ptr %known, i64 1
  %has_sizes = call i1 @are_same(ptr %sizes, ptr %known_sizes, i64 %dims)
  br i1 %has_sizes, label %compare_strides, label %other
compare_strides:
  %strides_at = getelementptr i8, ptr %seen, i64 16
  %strides = load ptr, ptr %strides_at
  %known_strides = getelementptr i64, ptr %known, i64 {strides_word}
  %has_strides = call i1 @are_same(ptr %strides, ptr %known_strides, i64 %dims)
  ret i1 %has_strides
other:
  ret i1 false
}}

define internal ptr @known_set(ptr %state, ptr %seen) {{
begin:
  %count = call i64 @state(ptr %state, i64 {state_sets})
  %tensors = call i64 @state(ptr %state, i64 {state_tensors})
  %set_bytes = call i64 @state(ptr %state, i64 {state_set_bytes})
  %first_at = call i64 @state(ptr %state, i64 {state_sets_at})
  %first = getelementptr i8, ptr %state, i64 %first_at
  br label %look
look:
  %i = phi i64 [ 0, %begin ], [ %next, %other ]
  %set = phi ptr [ %first, %begin ], [ %next_set, %other ]
  %is_one = icmp ult i64 %i, %count
  br i1 %is_one, label %one, label %none
one:
  br label %look_at
look_at:
  %t = phi i64 [ 0, %one ], [ %next_t, %like ]
  %is_tensor = icmp ult i64 %t, %tensors
  br i1 %is_tensor, label %compare, label %found
compare:
  %seen_at = getelementptr [3 x i64], ptr %seen, i64 %t
  %before = getelementptr i64, ptr %set, i64 1
  %known_at = getelementptr [{tensor_words} x i64], ptr %before, i64 %t
  %is_like = call i1 @is_like(ptr %seen_at, ptr %known_at)
  br i1 %is_like, label %like, label %other
like:
  %next_t = add i64 %t, 1
  br label %look_at
other:
  %next = add i64 %i, 1
  %next_set = getelementptr i8, ptr %set, i64 %set_bytes
  br label %look
found:
  ret ptr %set
none:
  ret ptr null
}}
"""
