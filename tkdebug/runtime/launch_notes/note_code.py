"""What notes a launch, as text of LLVM; what looks at its arguments is in `argument_code`.

In it `{…}` stands for the address of a function or an object, a place in the state of a kernel, or
one in a slot. A note has six arguments before those of the kernel: launch, x, y, z, stream, start.
"""

PARTS = """
define internal i32 @thread(ptr %state) {{
begin:
  %long_key = call i64 @state(ptr %state, i64 {state_thread_key})
  %key = trunc i64 %long_key to i32
  %kept = call i64 {pthread_getspecific}(i32 %key)
  %is_kept = icmp ne i64 %kept, 0
  br i1 %is_kept, label %known, label %ask
ask:
  %asked = call i64 {PyThread_get_thread_native_id}()
  call i32 {pthread_setspecific}(i32 %key, i64 %asked)
  br label %known
known:
  %id = phi i64 [ %kept, %begin ], [ %asked, %ask ]
  %short = trunc i64 %id to i32
  ret i32 %short
}}

define internal i64 @now() {{
  %time = alloca [2 x i64]
  call i32 {clock_gettime}(i32 0, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}}

define internal i1 @values(ptr %state, ptr %args, ptr %seen, ptr %scalars) {{
begin:
  %count = call i64 @state(ptr %state, i64 {state_parameters})
  %kinds = getelementptr i8, ptr %state, i64 {kinds_at}
  %first = getelementptr ptr, ptr %args, i64 {before_values}
  br label %look
look:
  %i = phi i64 [ 0, %begin ], [ %next, %done ]
  %t = phi i64 [ 0, %begin ], [ %next_t, %done ]
  %s = phi i64 [ 0, %begin ], [ %next_s, %done ]
  %is_one = icmp ult i64 %i, %count
  br i1 %is_one, label %one, label %yes
one:
  %next = add i64 %i, 1
  %value_at = getelementptr ptr, ptr %first, i64 %i
  %value = load ptr, ptr %value_at
  %kind_at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind_at
  %scalar = getelementptr i64, ptr %scalars, i64 %s
  switch i8 %kind, label %skipped [ i8 {kind_tensor}, label %tensor
                                    i8 {kind_int}, label %signed
                                    i8 {kind_uint}, label %unsigned
                                    i8 {kind_float}, label %float ]
skipped:
  br label %done
tensor:
  %seen_at = getelementptr [3 x i64], ptr %seen, i64 %t
  %is_tensor = call i1 @tensor(ptr %state, ptr %value, ptr %seen_at)
  %more_t = add i64 %t, 1
  br i1 %is_tensor, label %done, label %no
signed:
  %is_signed = call i1 @signed(ptr %value, ptr %scalar)
  br label %packed
unsigned:
  %is_unsigned = call i1 @unsigned(ptr %value, ptr %scalar)
  br label %packed
float:
  %is_float = call i1 @float(ptr %value, ptr %scalar)
  br label %packed
packed:
  %fits = phi i1 [ %is_signed, %signed ], [ %is_unsigned, %unsigned ], [ %is_float, %float ]
  %more_s = add i64 %s, 1
  br i1 %fits, label %done, label %no
done:
  %next_t = phi i64 [ %t, %skipped ], [ %more_t, %tensor ], [ %t, %packed ]
  %next_s = phi i64 [ %s, %skipped ], [ %s, %tensor ], [ %more_s, %packed ]
  br label %look
yes:
  ret i1 true
no:
  ret i1 false
}}

define internal i64 @next_number(ptr %self) {{
  %numbers = call ptr {PyTuple_GetItem}(ptr %self, i64 {self_numbers})
  %object = call ptr {PyIter_Next}(ptr %numbers)
  %is_there = icmp ne ptr %object, null
  br i1 %is_there, label %some, label %none
some:
  %number = call i64 {PyLong_AsLongLong}(ptr %object)
  call void {Py_DecRef}(ptr %object)
  ret i64 %number
none:
  ret i64 -1
}}

define internal ptr @leave_to(ptr %self, i64 %which, ptr %args, i64 %count) {{
  %function = call ptr {PyTuple_GetItem}(ptr %self, i64 %which)
  %done = call ptr {PyObject_VectorcallDict}(ptr %function, ptr %args, i64 %count, ptr null)
  ret ptr %done
}}

define internal ptr @late(ptr %self, ptr %image, i64 %number) {{
begin:
  %pair = alloca [2 x ptr]
  %second_at = getelementptr ptr, ptr %pair, i64 1
  %first = call ptr {PyLong_FromLongLong}(i64 %number)
  %second = call ptr {PyBytes_FromStringAndSize}(ptr %image, i64 {number})
  store ptr %first, ptr %pair
  store ptr %second, ptr %second_at
  %has_first = icmp ne ptr %first, null
  %has_second = icmp ne ptr %second, null
  %has_both = and i1 %has_first, %has_second
  br i1 %has_both, label %tell, label %end
tell:
  %told = call ptr @leave_to(ptr %self, i64 {self_late}, ptr %pair, i64 2)
  br label %end
end:
  %done = phi ptr [ null, %begin ], [ %told, %tell ]
  call void {Py_DecRef}(ptr %first)
  call void {Py_DecRef}(ptr %second)
  ret ptr %done
}}
"""
NOTE = """
define ptr @note(ptr %self, ptr %args, i64 %count) {{
begin:
  %image = alloca [{slot_words} x i64], align 16
  store [{slot_words} x i64] zeroinitializer, ptr %image
  %state_object = call ptr {PyTuple_GetItem}(ptr %self, i64 {self_state})
  %state = call ptr {PyByteArray_AsString}(ptr %state_object)
  %wanted = call i64 @state(ptr %state, i64 {state_arguments})
  %is_whole = icmp eq i64 %count, %wanted
  br i1 %is_whole, label %scopes, label %instead
scopes:
  %plain = call ptr {PyObject_GetAttr}(ptr {SCOPES}, ptr {is_plain_name})
  %has_plain = icmp ne ptr %plain, null
  br i1 %has_plain, label %ask, label %raised
ask:
  call void {Py_DecRef}(ptr %plain)
  %is_plain = icmp eq ptr %plain, {True}
  br i1 %is_plain, label %values, label %inside
inside:
  %path = call ptr @leave_to(ptr %self, i64 {self_scopes_now}, ptr null, i64 0)
  %has_path = icmp ne ptr %path, null
  br i1 %has_path, label %number_scopes, label %raised
number_scopes:
  %scopes_at = getelementptr i8, ptr %image, i64 {scopes}
  %has_scopes = call i1 @word(ptr %path, ptr %scopes_at)
  call void {Py_DecRef}(ptr %path)
  br i1 %has_scopes, label %values, label %instead
values:
{heads}
  %tensors = call i64 @state(ptr %state, i64 {state_tensors})
  %seen = alloca [3 x i64], i64 %tensors
  %scalars = getelementptr i8, ptr %image, i64 {scalars}
  %has_values = call i1 @values(ptr %state, ptr %args, ptr %seen, ptr %scalars)
  %has_all = and i1 %heads, %has_values
  br i1 %has_all, label %find, label %instead
find:
  %set = call ptr @known_set(ptr %state, ptr %seen)
  %is_known = icmp ne ptr %set, null
  br i1 %is_known, label %fill, label %instead
fill:
  %facts = load i32, ptr %set
  %facts_at = getelementptr i8, ptr %image, i64 {facts}
  store i32 %facts, ptr %facts_at
  %variant_in = getelementptr i8, ptr %state, i64 {state_variant}
  %variant = load i32, ptr %variant_in
  %variant_at = getelementptr i8, ptr %image, i64 {variant}
  store i32 %variant, ptr %variant_at
  %flags_word = call i64 @state(ptr %state, i64 {state_flags})
  %flags_in = inttoptr i64 %flags_word to ptr
  %flags_byte = load i8, ptr %flags_in
  %flags = zext i8 %flags_byte to i32
  %flags_at = getelementptr i8, ptr %image, i64 {flags}
  store i32 %flags, ptr %flags_at
  %thread = call i32 @thread(ptr %state)
  %thread_at = getelementptr i8, ptr %image, i64 {thread}
  store i32 %thread, ptr %thread_at
  %end_ns = call i64 @now()
  %end_at = getelementptr i8, ptr %image, i64 {end_ns}
  store i64 %end_ns, ptr %end_at
  %number = call i64 @next_number(ptr %self)
  %has_number = icmp sge i64 %number, 0
  br i1 %has_number, label %room, label %failed
room:
  %ring_word = call i64 @state(ptr %state, i64 {state_ring})
  %ring = inttoptr i64 %ring_word to ptr
  %read_at = getelementptr i8, ptr %ring, i64 {read_at}
  %read = load atomic i64, ptr %read_at acquire, align 8
  %ahead = sub i64 %number, %read
  %is_free = icmp slt i64 %ahead, {slots}
  br i1 %is_free, label %write, label %late
write:
  %place = and i64 %number, {mask}
  %offset = mul i64 %place, {size_bytes}
  %in_ring = add i64 %offset, {first}
  %slot = getelementptr i8, ptr %ring, i64 %in_ring
{copies}
  %number_at = getelementptr i8, ptr %slot, i64 {number}
  %after = add i64 %number, 1
  store atomic i64 %after, ptr %number_at release, align 8
  call void {Py_IncRef}(ptr {None})
  ret ptr {None}
late:
  %noted = call ptr @late(ptr %self, ptr %image, i64 %number)
  ret ptr %noted
raised:
  %is_error = call i32 {PyErr_ExceptionMatches}(ptr {Exception})
  %is_interrupt = icmp eq i32 %is_error, 0
  br i1 %is_interrupt, label %failed, label %clear
clear:
  call void {PyErr_Clear}()
  br label %instead
instead:
  %done = call ptr @leave_to(ptr %self, i64 {self_instead}, ptr %args, i64 %count)
  ret ptr %done
failed:
  ret ptr null
}}
"""
